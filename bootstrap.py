#!/usr/bin/env python3
"""Make `.venv`, find or install Java and fetch the jars. `make` calls it before everything else.

It runs on any python3 with the standard library alone. A second call is quick and needs no network. When a call was
interrupted, the next one finishes its work.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time

PROJECT = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(PROJECT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "streamplan-stamp")
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")
FIT_PYTHONS = ((3, 11), (3, 12), (3, 13))
INSTALL_SECONDS = 1800
HOME = os.environ.get("STREAMPLAN_HOME") or os.path.join(PROJECT, ".streamplan")
LOG = os.path.join(HOME, "logs", "bootstrap.log")
LAST_LINES = 10
BEGUN = time.time()


class Failed(Exception):
    """A step failed. The message says to a person what to do."""


class StepFailed(Failed):
    """A command failed whose output is in the log. The message ends with the last lines of that output."""

    def __init__(self, what):
        with open(LOG, errors="replace") as log:
            last = [line.rstrip() for line in log if line.strip()][-LAST_LINES:]
        super().__init__("\n".join([f"{what} failed. The last lines of {LOG} are:", *(f"  {line}" for line in last)]))


def report(line):
    """Print one line with the seconds since the start."""
    sys.stdout.write(f"{time.time() - BEGUN:7.1f} s  {line}\n")
    sys.stdout.flush()


def run(argv, env=None):
    """Run a step with its output in the log, and return whether it succeeded."""
    with open(LOG, "ab") as log:
        log.write(f"\n$ {' '.join(argv)}\n".encode())
        log.flush()
        try:
            status = subprocess.call(
                argv, cwd=PROJECT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.write(f"{error}\n".encode())
            return False
    return status == 0


def version_of(python):
    """Return (major, minor) of an interpreter that can make environments; None for any other."""
    code = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        out = subprocess.run(
            [python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(int(part) for part in out.split())


def find_python():
    """Return the environment's interpreter while it works, else the first one of a version that fits."""
    names = [f"python3.{minor}" for _, minor in reversed(FIT_PYTHONS)] + ["python3", sys.executable]
    for python in [PYTHON, *filter(None, map(shutil.which, names))]:
        if version_of(python) in FIT_PYTHONS:
            return python
    raise Failed(
        "Python 3.11, 3.12 or 3.13 with its venv module is needed and none was found on PATH: install one "
        "(on Debian and Ubuntu the packages python3 and python3-venv)."
    )


def digest():
    """Return a digest of everything from which the environment is made."""
    content = hashlib.sha256()
    for name in REQUIREMENTS:
        with open(os.path.join(PROJECT, name), "rb") as file:
            content.update(file.read())
    # The path belongs to it: the scripts of an environment name its path, so they fail after a move.
    content.update(repr((VENV, version_of(PYTHON))).encode())
    return content.hexdigest()


def stamp():
    """Return the digest of the environment that was last finished; None when none was."""
    try:
        with open(STAMP) as file:
            return file.read()
    except OSError:
        return None


def make_environment():
    """Make the environment, or bring it up to date, unless it is."""
    if stamp() is not None and stamp() == digest():
        return
    python = find_python()
    if python != PYTHON or not run([PYTHON, "-m", "pip", "--version"]):
        report(f"Making .venv with {python}.")
        python = os.path.realpath(python)  # a link in the broken environment would be deleted with it
        shutil.rmtree(VENV, ignore_errors=True)
        if not run([python, "-m", "venv", VENV]):
            raise StepFailed(f"`{python} -m venv .venv`")
    elif stamp() is not None:
        os.unlink(STAMP)
    count = 0
    for name in REQUIREMENTS:
        with open(os.path.join(PROJECT, name)) as file:
            count += sum("==" in line for line in file)
    requirements = [word for name in REQUIREMENTS for word in ("-r", name)]
    report(f"Installing the {count} pinned packages.")
    pip = [PYTHON, "-m", "pip", "install"]
    uv = [PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON]
    if not (run([*pip, "--only-binary", "uv", "uv"]) and run(uv + requirements, uv_environment())):
        report("uv cannot install them here: using pip, which takes a minute or two.")
        if not run(pip + requirements):
            raise StepFailed("Installing the packages")
    with open(STAMP, "w") as file:
        file.write(digest())


def uv_environment():
    """Return the environment for uv, with pip's configuration in it, which uv does not read."""
    listed = subprocess.run(
        [PYTHON, "-m", "pip", "config", "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    ).stdout.decode()
    pip = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        pip[key.rpartition(".")[2]] = value.strip("'\"")
    env = dict(os.environ)
    for option, variable in (
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("cert", "SSL_CERT_FILE"),
        ("proxy", "HTTPS_PROXY"),
        ("no-index", "UV_NO_INDEX"),
    ):
        if option in pip:
            env.setdefault(variable, pip[option].replace("\\n", " ").strip())
    places = pip.get("find-links", "").replace("\\n", " ").split()
    places = [place for place in places if "://" in place or os.path.isdir(place)]
    if places:
        env.setdefault("UV_FIND_LINKS", ",".join(places))
    # All versions are pinned, so any index may serve them, as with pip.
    env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return env


def prepare_java(sets):
    """Find or install Java, and fetch the jars. The package knows how."""
    env = dict(os.environ, PYTHONPATH=os.path.join(PROJECT, "plugins"))
    if subprocess.call([PYTHON, "-m", "streamplan.local.jars", *sets], env=env, cwd=PROJECT) != 0:
        raise Failed("Java or its jars are missing. The line above says what to do.")


def main():
    """Prepare this directory, one call at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", action="store_true", help="also fetch the Kafka Streams library (for tests)")
    options = parser.parse_args()
    os.makedirs(os.path.dirname(LOG), exist_ok=True)
    with open(os.path.join(HOME, "bootstrap.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            report("Another make prepares this directory. Waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            make_environment()
            oracle = ["kafka-streams", "kafka-streams-test-utils"] if options.oracle else []
            prepare_java(["brokers", "spark", *oracle])
        except Failed as error:
            sys.exit(str(error))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
        sys.exit(0)
    sys.exit("Interrupted: the next make goes on from here.")
