#!/usr/bin/env bash
# Names each port of docker-compose.yml that another program holds, and the variable of .env to set. Compose itself binds
# the ports after it has built the image. Ports that this deployment itself holds are no fault.
set -euo pipefail
cd "$(dirname "$0")/.."

# "|| true": the pipe fails where nothing of it runs, or where no Compose is there to ask. Then no port is held by us, and
# each one is tried.
held_by_us=" $(docker compose ps --format json | grep -o '"PublishedPort": *[0-9]*' | grep -o '[0-9]*$' | tr '\n' ' ' || true)"
from_file() {
  [ ! -f .env ] || sed -n "s/ #.*//; s/^$1=//p" .env | tail -n 1 | tr -d "\"'\r "
}

value_of() {
  # As Compose does: the shell's value before that of .env, and the last of several there.
  echo "${!1:-$(from_file "$1")}"
}

brokers=$(value_of BROKERS)
seen=' '
faults=0
while IFS=: read -r variable default; do
  case $brokers$variable in ownKAFKA_*) continue ;; esac # no broker of this file runs
  value=$(value_of "$variable")
  port=${value:-$default}
  case $seen in
    *" $port "*)
      echo "Port $port of $variable is that of another service. Set $variable in .env to another port." >&2
      faults=1
      ;;
    *)
      case $held_by_us in
        *" $port "*) ;;
        *)
          if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "Port $port is taken by another program. Set $variable in .env to a free one, or stop that program." >&2
            faults=1
          fi
          ;;
      esac
      ;;
  esac
  seen="$seen$port "
done < <(grep -o '127\.0\.0\.1:\${[A-Z0-9_]*:-[0-9]*}' docker-compose.yml | sed 's/.*{\(.*\):-\(.*\)}/\1:\2/' | sort -u)
exit "$faults"
