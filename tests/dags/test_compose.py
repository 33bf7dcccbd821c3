"""docker-compose.yml, Dockerfile and .env.example: valid, at one with themselves, and at one with the code.

No engine is needed. What others define is asked of them: the Compose schema, Airflow's own configuration and
connections, the broker settings of the stack of one machine.
"""

from __future__ import annotations

import ast
import fnmatch
import inspect
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from streamplan import __version__, java, settings
from streamplan.local.brokers import HEAP, NODES, SERVER_PROPERTIES
from streamplan.local.jars import BROKERS, JAR_SETS
from streamplan.local.security import LocalSecurity

PROJECT = settings.PROJECT
COMPOSE_FILE = PROJECT / "docker-compose.yml"
DOCKERFILE = (PROJECT / "Dockerfile").read_text()
VARIABLE = re.compile(r"\$\{(\w+):\?[^}]+\}")
"""One that must have a value."""
PORT = re.compile(r"\$\{(\w+_PORT):-(\d+)\}")
"""A port of this machine, and its default. Files that were written before there were such variables go on working."""
SECRET = re.compile(r"password|secret|fernet_key|token(?!_callbacks)", re.IGNORECASE)


def parse_dockerfile(text: str) -> list[tuple[str, str]]:
    """(instruction, arguments), with continued lines joined and comments left out."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
INSTRUCTIONS = parse_dockerfile(DOCKERFILE)
IMAGE_ENVIRONMENT = {
    name: value
    for instruction, arguments in INSTRUCTIONS
    if instruction == "ENV"
    for name, _, value in (pair.partition("=") for pair in shlex.split(arguments))
}
OURS = {name for name, service in SERVICES.items() if service["image"].startswith("streamplan:")}
AIRFLOW = {name for name in OURS if name.startswith("airflow-")}
WORKERS = {name for name in OURS if name.startswith("spark-worker-")}
KAFKA = {name for name, service in SERVICES.items() if service["image"].startswith("apache/kafka")}
SECURED = {name for name in KAFKA if name.endswith("-secured")}
PROFILES = {"plain": KAFKA - SECURED, "secured": SECURED, "own": set()}
"""The brokers of each value of ``BROKERS`` in ``.env``, which is also the active profile."""
ONE_SHOT = {name for name, service in SERVICES.items() if service["restart"] == "no"}


def environment(service: str) -> dict[str, str]:
    """What a container of the service sees: the image's variables and Compose's, with every secret set to ``x``."""
    given = SERVICES[service].get("environment", {})
    own = {name: PORT.sub(r"\2", VARIABLE.sub("x", value)) for name, value in given.items()}
    return (IMAGE_ENVIRONMENT if service in OURS else {}) | own


def mounts(service: str) -> dict[str, str]:
    """Volume by the path it is mounted at."""
    return {path: volume for volume, path, *_ in (text.split(":") for text in SERVICES[service].get("volumes", []))}


def connection(profile: str) -> dict[str, str]:
    """What Airflow's connection says of the brokers of a profile."""
    path = COMPOSE["secrets"]["connections"]["file"].replace("${BROKERS:?see .env.example}", profile)
    extra: dict[str, str] = json.loads((PROJECT / path).read_text())["kafka_default"]["extra_dejson"]
    return extra


def networks(service: str) -> set[str]:
    return set(SERVICES[service].get("networks", []))


def published(service: str) -> dict[int, int]:
    """Host port by the container's port."""
    ports = (PORT.sub(r"\2", text).split(":") for text in SERVICES[service]["ports"])
    return {int(inner): int(outer) for _, outer, inner in ports}


def listeners(service: str, variable: str) -> dict[str, tuple[str, int]]:
    """Host and port by the name of the Kafka listener."""
    found = (re.fullmatch(r"(\w+)://(.*):(\d+)", text) for text in environment(service)[variable].split(","))
    return {match[1]: (match[2], int(match[3])) for match in found if match}


def command(service: str) -> str:
    return " ".join(SERVICES[service]["command"])


def option(text: str, name: str) -> str:
    """The value of a command line's option."""
    found = re.search(rf"--{name}[ =](\S+)", text)
    assert found, f"--{name} in: {text}"
    return found[1]


def spark_defaults() -> dict[str, str]:
    lines = COMPOSE["configs"]["spark-defaults"]["content"].splitlines()
    return dict(line.split() for line in lines if not line.startswith("#"))


def test_is_valid_by_the_compose_specification() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_images_are_pinned() -> None:
    images = {service["image"] for service in SERVICES.values()}
    bases = {arguments for instruction, arguments in INSTRUCTIONS if instruction == "FROM"}
    for image in images | bases:
        assert re.search(r":\d+\.\d+", image), f"{image}: expected a version as its tag"
    assert {SERVICES[name]["image"] for name in OURS} == {f"streamplan:{__version__}"}
    assert {SERVICES[name]["image"] for name in KAFKA} == {f"apache/kafka:{BROKERS.version}"}


def test_every_volume_is_declared_and_used() -> None:
    assert {volume for name in SERVICES for volume in mounts(name).values()} == set(COMPOSE["volumes"])
    configs = {config["source"] for service in SERVICES.values() for config in service.get("configs", [])}
    assert configs == set(COMPOSE["configs"])


def test_volumes_of_our_image_belong_to_its_user() -> None:
    """A named volume takes its owner from the directory of the image that it is mounted on."""
    users = [arguments for instruction, arguments in INSTRUCTIONS if instruction == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert re.search(rf"useradd .*\b{users[-1]}\b", DOCKERFILE)
    made = next(arguments for instruction, arguments in INSTRUCTIONS if "install --directory" in arguments)
    owned = shlex.split(made.partition(f"--owner={users[-1]} --group={users[-1]}")[2])
    for name in OURS:
        written = [text.split(":")[1] for text in SERVICES[name].get("volumes", []) if not text.endswith(":ro")]
        assert set(written) <= set(owned) or SERVICES[name].get("user") == "root"
    workdir = [arguments for instruction, arguments in INSTRUCTIONS if instruction == "WORKDIR"][-1]
    assert {workdir, IMAGE_ENVIRONMENT["AIRFLOW_HOME"]} <= set(owned)


def test_one_service_builds_the_image_and_the_others_name_it() -> None:
    """With several builds of one name each service has an image of its own, and the tag is one of them at random."""
    builders = {name for name, service in SERVICES.items() if "build" in service}
    assert len(builders) == 1
    [builder] = builders
    assert builder in OURS
    assert "profiles" not in SERVICES[builder], "its image would not be built with another profile"
    assert {SERVICES[name].get("pull_policy") for name in OURS} == {"never"}, "no registry has it"


def test_who_shares_a_namespace_is_restarted_with_its_owner() -> None:
    sharing = {name: service["pid"] for name, service in SERVICES.items() if "pid" in service}
    assert sharing
    for name, pid in sharing.items():
        owner = pid.removeprefix("service:")
        assert SERVICES[name]["depends_on"][owner].get("restart") is True, name


def test_every_service_has_time_to_stop_and_is_told_to() -> None:
    """A process with the pid 1 ignores each signal that it has no handler for. An init takes this pid."""
    for name, service in SERVICES.items():
        if name not in ONE_SHOT:
            seconds = re.fullmatch(r"(\d+)s", service.get("stop_grace_period", "10s"))
            assert seconds, name
            assert int(seconds[1]) > 120, f"{name}: Airflow's API server waits 120 s for requests that do not end"
        if name in OURS:
            assert service.get("init") is True or "pid" in service, name
            assert isinstance(service["command"], list), "a string is run by a shell that keeps the signal"
            if service["command"][0] == "sh" and name not in ONE_SHOT:
                assert re.search(r"^\s*exec ", service["command"][-1], re.MULTILINE), name
    assert {instruction for instruction, _ in INSTRUCTIONS} & {"ENTRYPOINT", "CMD"} == set()


def test_every_service_that_stays_is_watched_and_restarted() -> None:
    for name, service in SERVICES.items():
        assert ("healthcheck" in service) == (name not in ONE_SHOT), name
        assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped"), name


def test_dependencies_can_come_true() -> None:
    for name, service in SERVICES.items():
        for other, dependency in service.get("depends_on", {}).items():
            assert other in SERVICES, f"{name} waits for {other}"
            on, others = SERVICES[name].get("profiles", []), SERVICES[other].get("profiles", [])
            assert on == others or not others or dependency["required"] is False, f"{name} waits for {other}"
            condition = dependency["condition"]
            assert (condition == "service_completed_successfully") == (other in ONE_SHOT), f"{name} waits for {other}"
            assert condition != "service_healthy" or "healthcheck" in SERVICES[other], f"{name} waits for {other}"


def test_dependencies_have_no_cycle() -> None:
    waiting = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    while waiting:
        ready = {name for name, others in waiting.items() if not others & set(waiting)}
        assert ready, f"wait for each other: {sorted(waiting)}"
        for name in ready:
            del waiting[name]


def test_publishes_on_loopback_alone_and_no_port_twice() -> None:
    for brokers in PROFILES.values():
        active = [service for name, service in SERVICES.items() if name not in KAFKA - brokers]
        ports = [port for service in active for port in service.get("ports", [])]
        assert ports
        for port in ports:
            assert re.fullmatch(rf"127\.0\.0\.1:{PORT.pattern}:\d+", port), f"{port}: the port of this machine is fixed"
        for number in (1, 2):  # variables and defaults
            outer = [match[number] for port in ports if (match := PORT.search(port))]
            assert len(set(outer)) == len(outer) == len(ports)
    assert not any(service.get("network_mode") == "host" or "privileged" in service for service in SERVICES.values())


def test_holds_no_secret() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable) and not variable.endswith("_FILE") and "SECRETS__BACKEND" not in variable:
                assert VARIABLE.fullmatch(value), f"{name}: {variable} is {value}"
            if "://" in value and (password := re.search(r"://[^/@\s]*:([^/\s]*)@", value)):
                assert VARIABLE.fullmatch(password[1]), f"{name}: {variable}"
    text = COMPOSE_FILE.read_text()
    # Every reference but a port insists on a value: none has a default, none may be empty.
    assert len([*VARIABLE.findall(text), *PORT.findall(text)]) == len(re.findall(r"(?<!\$)\$(?!\$)", text))


def test_env_example_names_exactly_what_is_required() -> None:
    lines = (PROJECT / ".env.example").read_text().splitlines()
    assigned = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert assigned.pop("COMPOSE_PROFILES") == "${BROKERS}"
    text = COMPOSE_FILE.read_text()
    ports = {name: assigned.pop(name) for name in list(assigned) if name.endswith("_PORT")}
    assert set(ports.items()) == set(PORT.findall(text)), "an example that differs from the default"
    assert set(assigned) == set(VARIABLE.findall(text))
    assert assigned.pop("BROKERS") in PROFILES
    assert set(assigned.values()) == {""}, "an example's secret would be used"
    ignored = (PROJECT / ".gitignore").read_text().splitlines()
    assert {".env", "compose/own.json"} <= set(ignored), "it would be committed"


def test_the_commands_of_env_example_write_every_value(tmp_path: Path) -> None:
    example = (PROJECT / ".env.example").read_text()
    (tmp_path / ".env.example").write_text(example)
    commands = "\n".join(line.removeprefix("#   ") for line in example.splitlines()[2:6])
    ports = dict(PORT.findall(COMPOSE_FILE.read_text()))
    subprocess.run(["sh", "-euc", commands], cwd=tmp_path, check=True)
    written = (tmp_path / ".env").read_text().splitlines()
    values = dict(line.split("=", 1) for line in written if line and not line.startswith("#"))
    assert set(values) == {"COMPOSE_PROFILES", *VARIABLE.findall(COMPOSE_FILE.read_text()), *ports}
    assert {name: values[name] for name in ports} == ports
    assert all(values.values())
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("profile", ["plain", "secured"])
def test_the_connection_of_a_profile_leads_to_its_brokers(profile: str) -> None:
    found = connection(profile)
    brokers = {f"{name}:{listeners(name, 'KAFKA_LISTENERS')['INTERNAL'][1]}" for name in PROFILES[profile]}
    assert set(found.pop("bootstrap.servers").split(",")) == brokers
    [protocol] = {
        dict(text.split(":") for text in environment(name)["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))[
            "INTERNAL"
        ]
        for name in PROFILES[profile]
    }
    assert found.pop("security.protocol", "PLAINTEXT") == protocol
    for path in found.values():  # of certificates
        for name in {*WORKERS, "airflow-scheduler", "airflow-triggerer", "airflow-api-server"}:
            assert mounts(name)[str(Path(path).parent)] == "client-security"


def test_each_service_reaches_what_it_needs_and_no_more() -> None:
    reached = {
        name: {other for other in SERVICES if other != name and networks(name) & networks(other)} for name in SERVICES
    }
    spark = {"spark-master", *WORKERS, "airflow-scheduler", *KAFKA}
    tasks = {"airflow-api-server", "airflow-triggerer", "airflow-scheduler"}
    assert reached["postgres"] == AIRFLOW
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert reached["airflow-init"] == {"postgres", *AIRFLOW - {"airflow-init"}}
    for name in ("spark-master", *WORKERS):
        assert reached[name] == spark - {name}
    assert not reached["airflow-dag-processor"] & {*KAFKA, "spark-master", *WORKERS}
    for name in tasks:
        assert reached[name] >= KAFKA
    assert reached["certificates"] == reached["processes"] == set()
    assert SERVICES["certificates"]["network_mode"] == SERVICES["processes"]["network_mode"] == "none"


def test_the_secured_brokers_are_those_of_the_stack_of_one_machine(tmp_path: Path) -> None:
    """But for passwords: here everybody shows a certificate."""
    local = LocalSecurity(tmp_path).server_properties()
    for name in SECURED:
        properties = {
            variable.removeprefix("KAFKA_").lower().replace("_", "."): value.replace("$$", "$")
            for variable, value in environment(name).items()
        }
        for key, value in local.items():
            if key.endswith(".location"):
                assert properties[key] == f"/etc/kafka/security/{Path(value).name}"
            elif key.endswith("ssl.client.auth"):
                assert properties["ssl.client.auth"] == value
            elif "sasl" not in key and key != "inter.broker.listener.name":
                assert properties[key] == value
        protocols = dict(text.split(":") for text in properties["listener.security.protocol.map"].split(","))
        assert set(protocols.values()) == {"SSL"}
        # The image's entry point asks for passwords of key stores where it sees this.
        assert "SSL://" not in properties["advertised.listeners"]


def test_certificates_are_made_for_the_brokers_and_each_volume_has_only_its_own_keys(tmp_path: Path) -> None:
    """The service's own command is run. Only root can give files to the users of the images."""
    service = SERVICES["certificates"]
    places = mounts("certificates")
    script = service["command"][-1].replace("$$", "$")
    for path in places:
        (tmp_path / path.lstrip("/")).mkdir(parents=True)
        script = script.replace(f"={path} ", f"={tmp_path}{path} ")
    script, owners = re.subn(r"--owner=(\w+) ", "", script)
    assert owners == 2
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {"PATH": path, "PYTHONPATH": str(PROJECT / "plugins")}
    home = tmp_path / service["working_dir"].lstrip("/")
    subprocess.run(["sh", "-euc", script], cwd=home, env=variables, check=True)

    found = {volume: set(os.listdir(f"{tmp_path}{path}")) for path, volume in places.items() if volume != "authority"}
    assert found == {
        "broker-security": {"broker-both.pem", "ca.pem"},
        "client-security": {"streamplan.pem", "streamplan.key", "ca.pem"},
    }
    text = subprocess.run(
        ["openssl", "x509", "-in", "broker.pem", "-noout", "-ext", "subjectAltName"],
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in {*SECURED, "localhost"}:
        assert f"DNS:{name}" in text
    assert {name for name in SERVICES if "authority" in mounts(name).values()} == {"certificates"}
    for name in SERVICES:
        if name != "certificates":
            writable = [text for text in SERVICES[name].get("volumes", []) if "security" in text]
            assert all(text.endswith(":ro") for text in writable)
            assert len(writable) <= 1


def test_brokers_are_those_of_the_stack_of_one_machine() -> None:
    assert {f"kafka-{node}" for node in NODES} == PROFILES["plain"]
    assert {f"kafka-{node}-secured" for node in NODES} == SECURED
    for name in KAFKA:
        variables = environment(name)
        expected = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in SERVER_PROPERTIES.items()}
        assert {key: variables.get(key) for key in expected} == expected
        assert tuple(variables["KAFKA_HEAP_OPTS"].split()) == HEAP
        assert variables["KAFKA_NODE_ID"] == name.split("-")[1]
        assert variables["KAFKA_PROCESS_ROLES"] == ("broker,controller" if "-1" in name else "broker")
        assert variables["KAFKA_LOG_DIRS"] in mounts(name)
    assert len({environment(name)["CLUSTER_ID"] for name in KAFKA}) == 1
    assert not set.intersection(*(set(mounts(name).values()) for name in KAFKA))


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_listeners_of_a_broker_agree(name: str) -> None:
    variables = environment(name)
    bound, advertised = listeners(name, "KAFKA_LISTENERS"), listeners(name, "KAFKA_ADVERTISED_LISTENERS")
    controller = variables["KAFKA_CONTROLLER_LISTENER_NAMES"]
    internal = variables["KAFKA_INTER_BROKER_LISTENER_NAME"]
    secured = {text.partition(":")[0] for text in variables["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    assert set(bound) | {controller} == secured
    assert set(advertised) == set(bound) - {controller}
    assert (controller in bound) == ("controller" in variables["KAFKA_PROCESS_ROLES"])

    assert advertised[internal] == (name, bound[internal][1])
    (outer,) = set(advertised) - {internal}
    assert advertised[outer] == ("localhost", published(name)[bound[outer][1]])
    [port] = SERVICES[name]["ports"]
    told = SERVICES[name]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert PORT.findall(told) == PORT.findall(port), "a client of this machine would be sent to another port"

    voter, _, address = variables["KAFKA_CONTROLLER_QUORUM_VOTERS"].partition("@")
    host, port = address.split(":")
    assert environment(host)["KAFKA_NODE_ID"] == voter
    assert listeners(host, "KAFKA_LISTENERS")[controller][1] == int(port)

    *_, check, host = SERVICES[name]["healthcheck"]["test"]
    assert host == name
    assert re.findall(r"/dev/tcp/\$\$0/(\d+)", check) == [str(bound[internal][1])]


def test_addresses_in_health_checks_and_urls_are_served() -> None:
    """Every http://service:port that the file names is a service's own server."""
    served = {
        "spark-master": int(option(command("spark-master"), "webui-port")),
        "airflow-api-server": int(environment("airflow-api-server")["AIRFLOW__API__PORT"]),
    }
    named = set(re.findall(r"http://([a-z][\w.-]*):(\d+)", PORT.sub(r"\2", yaml.safe_dump(SERVICES))))
    (outer,) = published("airflow-api-server").values()
    assert named == {(host, str(port)) for host, port in served.items()} | {("localhost", str(outer))}
    [port] = SERVICES["airflow-api-server"]["ports"]
    for name in AIRFLOW:
        assert environment(name)["AIRFLOW__API__BASE_URL"] == f"http://localhost:{outer}"
        assert PORT.findall(SERVICES[name]["environment"]["AIRFLOW__API__BASE_URL"]) == PORT.findall(port)
    for host, port in served.items():
        assert port in published(host)


def test_spark_is_one_cluster_with_room_for_a_second_application() -> None:
    master = f"spark://{option(command('spark-master'), 'host')}:{option(command('spark-master'), 'port')}"
    assert option(command("spark-master"), "host") in SERVICES
    assert WORKERS
    for name in WORKERS:
        assert command(name).endswith(f" {master}")
        assert SERVICES[name]["hostname"] == name  # what the health check asks the master for
        assert SERVICES[name]["healthcheck"]["test"][-1] == name
    cores = sum(int(option(command(name), "cores")) for name in WORKERS)
    assert int(spark_defaults()["spark.cores.max"]) < cores
    memory = int(spark_defaults()["spark.executor.memory"].removesuffix("g"))
    assert all(int(option(command(name), "memory").removesuffix("g")) >= 2 * memory for name in WORKERS)
    for main_class in ("master.Master", "worker.Worker"):
        assert any(f"spark-class org.apache.spark.deploy.{main_class} " in command(name) for name in OURS - AIRFLOW)


def test_executors_reach_the_driver_and_the_checkpoints() -> None:
    scheduler = SERVICES["airflow-scheduler"]
    assert spark_defaults()["spark.driver.host"] == scheduler["hostname"] == "airflow-scheduler"
    assert spark_defaults()["spark.driver.bindAddress"] == "0.0.0.0"
    target = Path(scheduler["configs"][0]["target"])
    assert target == Path(environment("airflow-scheduler")["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    assert not any("SPARK_LOCAL_IP" in environment(name) for name in OURS)
    path = environment("airflow-scheduler")["STREAMPLAN_CHECKPOINTS"]
    assert {mounts(name).get(path) for name in {"airflow-scheduler", *WORKERS}} == {"checkpoints"}


def test_who_stops_jobs_sees_the_processes_of_the_tasks() -> None:
    sharing = ("airflow-scheduler", "airflow-triggerer", "airflow-api-server")
    shared = {SERVICES[name]["pid"] for name in sharing}
    assert len(shared) == 1
    owner = shared.pop().removeprefix("service:")
    assert SERVICES[owner]["init"] is True, "somebody must reap what the jobs leave"
    assert not any(SERVICES[name].get("init") for name in SERVICES if "pid" in SERVICES[name])
    for name in sharing:
        assert owner in SERVICES[name]["depends_on"]
        assert SERVICES[name]["image"] == SERVICES[owner]["image"]


def test_streamplan_variables_are_read_by_the_code() -> None:
    strings = {
        node.value
        for file in (PROJECT / "plugins").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    used = {name for service in OURS for name in environment(service) if name.startswith("STREAMPLAN_")}
    used |= set(re.findall(r"\bSTREAMPLAN_[A-Z_]+\b", DOCKERFILE))
    assert used <= strings, "a variable that nobody reads"
    wanted = set(re.findall(r"STREAMPLAN_[A-Z_]+", inspect.getsource(settings)))
    for name in AIRFLOW:
        assert wanted <= set(environment(name)), name
        found = settings.Settings.from_environment(environment(name))
        assert str(found.home) in mounts(name)
        assert found.checkpoints in mounts(name)
        assert any(found.reports.is_relative_to(path) for path in mounts(name))
        logs = environment(name)["AIRFLOW__LOGGING__BASE_LOG_FOLDER"]
        assert Path(logs).is_relative_to(found.logs), "the API server reads the log files of the others"


ASK_AIRFLOW = """
import inspect, json, os, sys
from airflow.api_fastapi.core_api.datamodels.monitor import HealthInfoResponse
from airflow.cli.cli_parser import get_parser
from airflow.configuration import conf
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from streamplan.airflow.connections import brokers

known = conf.configuration_description
options = [name.removeprefix("AIRFLOW__").lower() for name in os.environ if name.startswith("AIRFLOW__")]
for command in json.loads(sys.argv[1]):
    get_parser().parse_args(command)
spark = SparkSubmitHook(conn_id="spark_default")._connection
print(json.dumps({
    "unknown": [name for name in options
                if name.partition("__")[2] not in known.get(name.partition("__")[0], {}).get("options", {})],
    "connection": {"bootstrap.servers": str(brokers("orders")), **brokers("orders").properties},
    "master": spark["master"],
    "deploy mode": spark["deploy_mode"],
    "components": list(HealthInfoResponse.model_fields),
}))
"""


def test_airflow_knows_its_options_and_connections_lead_to_the_services(tmp_path: Path) -> None:
    """Asked of Airflow itself, in a process of its own with the scheduler's environment."""
    commands = [shlex.split(words)[1:] for words in re.findall(r"airflow [a-z-]+.*", "\n".join(map(command, AIRFLOW)))]
    assert len(commands) == len(AIRFLOW)
    here = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path)}
    [secret] = SERVICES["airflow-scheduler"]["secrets"]
    connections = json.loads(environment("airflow-scheduler")["AIRFLOW__SECRETS__BACKEND_KWARGS"])
    assert connections == {"connections_file_path": f"/run/secrets/{secret['target']}"}
    paths = {
        "AIRFLOW__CORE__FERNET_KEY": "",  # "x" is none
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(tmp_path),
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps(
            {"connections_file_path": str(PROJECT / "compose" / "secured.json")}
        ),
        "PYTHONPATH": str(PROJECT / "plugins"),
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK_AIRFLOW, json.dumps(commands)],
        env=environment("airflow-scheduler") | here | paths,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["unknown"] == []
    assert answer["connection"] == connection("secured")
    assert answer["master"] == command("spark-worker-1").split()[-1]
    assert answer["deploy mode"] == "client", "a standalone cluster takes no Python application in cluster mode"
    for name in AIRFLOW - ONE_SHOT:
        component = SERVICES[name]["healthcheck"]["test"][-1]
        assert component in answer["components"]
        expected = name.removeprefix("airflow-").replace("-", "_")
        assert component == ("metadatabase" if name == "airflow-api-server" else expected)


def test_airflow_services_share_one_environment() -> None:
    """But for what one of them alone needs: a secret differs nowhere, or their tokens would be worth nothing."""
    common = environment("airflow-init")
    extra = {name: set(environment(name).items()) - set(common.items()) for name in AIRFLOW}
    assert {name: {variable for variable, _ in items} for name, items in extra.items() if items} == {
        "airflow-api-server": {"AIRFLOW_ADMIN_PASSWORD"},
        "airflow-scheduler": {"SPARK_CONF_DIR"},
    }
    url = urlsplit(common["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    postgres = environment("postgres")
    assert SERVICES["postgres"]["image"].startswith("postgres:")
    assert url.hostname == "postgres"
    assert (url.username, url.password) == (postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"])
    assert url.path == f"/{postgres['POSTGRES_DB']}"
    check = " ".join(SERVICES["postgres"]["healthcheck"]["test"])
    assert (option(check, "port"), option(check, "dbname")) == (str(url.port), postgres["POSTGRES_DB"])
    api = urlsplit(common["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"])
    assert (api.hostname, str(api.port), api.path) == (
        "airflow-api-server",
        common["AIRFLOW__API__PORT"],
        "/execution/",
    )


def test_the_password_from_the_environment_becomes_the_file_that_airflow_reads(tmp_path: Path) -> None:
    """The API server's own command is run, with a stand-in for ``airflow`` that shows what it was left."""
    service = environment("airflow-api-server")
    assert service["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "admin:admin"
    passwords = tmp_path / Path(service["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]).name
    stand_in = tmp_path / "airflow"
    stand_in.write_text('#!/bin/sh\necho "$@ ${AIRFLOW_ADMIN_PASSWORD-unset}"\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        [words.replace("$$", "$") for words in SERVICES["airflow-api-server"]["command"]],
        env={
            "PATH": os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "AIRFLOW_ADMIN_PASSWORD": 'a "quoted" $ecret\\',
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "api-server unset\n"
    assert json.loads(passwords.read_text()) == {"admin": 'a "quoted" $ecret\\'}
    assert passwords.stat().st_mode & 0o077 == 0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A program that listens on a port of this machine, and accepts what comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def run_ports_script(tmp_path: Path, dotenv: str, *, held_by_us: int = 0, **shell: str) -> tuple[int, str]:
    """Run ``compose/ports.sh`` in a copy, with a stand-in for ``docker`` that tells the ports of the deployment."""
    project, programs = tmp_path / "a clone", tmp_path / "bin"
    (project / "compose").mkdir(parents=True, exist_ok=True)
    programs.mkdir(exist_ok=True)
    for name in ("docker-compose.yml", "compose/ports.sh"):
        shutil.copy(PROJECT / name, project / name)
    (project / ".env").write_text(dotenv)
    docker = programs / "docker"
    publishers = [{"URL": "127.0.0.1", "TargetPort": 8080, "PublishedPort": held_by_us, "Protocol": "tcp"}]
    said = json.dumps({"Name": "streamplan-airflow-api-server-1", "Publishers": publishers}, separators=(",", ":"))
    docker.write_text(f"#!/bin/sh\n[ \"$*\" = 'compose ps --format json' ] || exit 9\necho '{said}'\n")
    docker.chmod(0o755)
    done = subprocess.run(
        ["bash", str(project / "compose" / "ports.sh")],
        cwd=tmp_path,
        env={"PATH": os.pathsep.join([str(programs), os.environ["PATH"]]), **shell},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


def free_ports() -> dict[str, str]:
    """A free port for each variable. All are open at once, so that they differ."""
    names = sorted(dict(PORT.findall(COMPOSE_FILE.read_text())))
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: str(each.getsockname()[1]) for name, each in zip(names, opened, strict=True)}


@pytest.mark.parametrize("name", ["AIRFLOW_PORT", "SPARK_PORT", "KAFKA_1_PORT", "KAFKA_2_PORT"])
@pytest.mark.parametrize("place", [".env", "quoted in .env", "shell"])
def test_a_port_that_another_program_holds_is_told_before_the_build(
    tmp_path: Path, server: socket.socket, name: str, place: str
) -> None:
    taken = str(server.getsockname()[1])
    written = free_ports() | ({name: taken} if place == ".env" else {})
    dotenv = "".join(f"{variable}={port}\n" for variable, port in written.items())
    if place == "quoted in .env":
        dotenv += f'{name}="{taken}" # mine\n'
    status, said = run_ports_script(tmp_path, dotenv, **({name: taken} if place == "shell" else {}))
    assert status == 1
    assert f"Port {taken} is taken by another program. Set {name} in .env" in said
    assert len(said.splitlines()) == 1
    assert run_ports_script(tmp_path, dotenv, held_by_us=int(taken), **({name: taken} if place == "shell" else {})) == (
        0,
        "",
    )


def test_free_ports_are_no_fault_and_one_port_for_two_services_is(tmp_path: Path) -> None:
    ports = free_ports()
    assert run_ports_script(tmp_path, "".join(f"{name}={port}\n" for name, port in ports.items())) == (0, "")
    ports["SPARK_PORT"] = ports["AIRFLOW_PORT"]
    status, said = run_ports_script(tmp_path, "".join(f"{name}={port}\n" for name, port in ports.items()))
    assert status == 1
    assert f"Port {ports['SPARK_PORT']} of SPARK_PORT is that of another service" in said


def test_the_ports_of_brokers_are_free_to_others_where_you_have_your_own(tmp_path: Path, server: socket.socket) -> None:
    ports = free_ports() | {"KAFKA_1_PORT": str(server.getsockname()[1])}
    dotenv = "".join(f"{name}={port}\n" for name, port in ports.items())
    assert run_ports_script(tmp_path, f"BROKERS=own\n{dotenv}") == (0, "")
    assert run_ports_script(tmp_path, f"BROKERS=plain\n{dotenv}")[0] == 1


def test_the_check_of_ports_stands_before_the_build_in_every_description() -> None:
    for page in (COMPOSE_FILE, PROJECT / "docs" / "deploy.md"):
        text = page.read_text()
        assert 0 < text.index("bash compose/ports.sh") < text.index("docker compose up --build"), page


def broker_check(name: str, port: int) -> subprocess.Popen[bytes]:
    """Start a broker's own health check against a port of this machine."""
    program, *arguments, script, _ = SERVICES[name]["healthcheck"]["test"][1:]
    script = script.replace("$$", "$").replace("/9092", f"/{port}")
    return subprocess.Popen([program, *arguments, script, "127.0.0.1"], stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_a_broker_that_listens_and_answers_is_healthy_and_one_that_does_not_listen_is_not(
    name: str, server: socket.socket
) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    check = broker_check(name, server.getsockname()[1])
    answering, _ = server.accept()
    with answering:
        if name not in SECURED:
            # Kafka's protocol: size, api_key 18 (ApiVersions), api_version 0, correlation_id 1, no client_id.
            assert answering.recv(14, socket.MSG_WAITALL) == struct.pack(">ihhih", 10, 18, 0, 1, -1)
            answering.sendall(struct.pack(">iihi", 10, 1, 0, 0))
        assert check.wait(timeout=60) == 0
    port = server.getsockname()[1]
    server.close()
    assert broker_check(name, port).wait(timeout=60) != 0


@pytest.mark.parametrize("name", sorted(KAFKA - SECURED))
def test_a_broker_that_only_accepts_connections_is_not_healthy(name: str, server: socket.socket) -> None:
    check = broker_check(name, server.getsockname()[1])
    answering, _ = server.accept()
    answering.recv(14, socket.MSG_WAITALL)
    answering.close()
    assert check.wait(timeout=60) != 0


def test_health_checks_of_brokers_start_no_java() -> None:
    for name in KAFKA:
        assert not re.search(r"java|kafka-[a-z-]+\.sh|/opt/kafka", " ".join(SERVICES[name]["healthcheck"]["test"])), (
            name
        )


def test_files_of_a_clone_with_umask_077_are_readable_in_the_image(tmp_path: Path) -> None:
    """The Dockerfile's own instruction after the last COPY is run on such files. COPY keeps the mode of the files."""
    copied = [rest.split()[:-1] for name, rest in INSTRUCTIONS if name == "COPY"]
    directories = {path.rstrip("/") for sources in copied for path in sources if path.endswith("/")}
    files = {path for sources in copied for path in sources} - {f"{directory}/" for directory in directories}
    last = max(index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "COPY")
    user = next(index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "USER")
    for directory in directories:
        (tmp_path / directory / "inner").mkdir(parents=True)
        (tmp_path / directory / "inner").chmod(0o700)
        files |= {f"{directory}/module.py", f"{directory}/inner/module.py"}
        (tmp_path / directory).chmod(0o700)
    for file in files:
        (tmp_path / file).touch(mode=0o600)
    for name, command_line in INSTRUCTIONS[last + 1 : user]:
        if name == "RUN":
            subprocess.run(["sh", "-euc", command_line], cwd=tmp_path, check=True)
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o007 == (0o005 if path.is_dir() else 0o004), path


def test_dockerfile_copies_what_exists_and_is_not_ignored() -> None:
    rules = [line for line in (PROJECT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert rules[0] == "*"
    copied = {Path(source) for name, rest in INSTRUCTIONS if name == "COPY" for source in rest.split()[:-1]}
    assert {str(path) for path in copied} == {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    for path in copied:
        assert (PROJECT / path).exists(), path
    used = {"dags", "jobs", "plugins", "requirements.txt"}
    assert {str(path) for path in copied} == used
    assert any(fnmatch.fnmatch("plugins/__pycache__", rule) for rule in rules)


def test_paths_in_the_image_are_those_of_the_project() -> None:
    workdir = next(arguments for instruction, arguments in INSTRUCTIONS if instruction == "WORKDIR")
    for name in AIRFLOW:
        variables = environment(name)
        assert variables["AIRFLOW__CORE__DAGS_FOLDER"] == f"{workdir}/dags"
        assert variables["AIRFLOW__CORE__PLUGINS_FOLDER"] == variables["PYTHONPATH"] == f"{workdir}/plugins"
        assert variables["STREAMPLAN_JARS"] == f"{workdir}/jars"


def test_image_has_the_java_the_python_and_the_jars_of_the_project() -> None:
    assert java.DEBIAN_PACKAGE in DOCKERFILE.split()
    base = next(arguments for instruction, arguments in INSTRUCTIONS if instruction == "FROM")
    minor = re.fullmatch(r"python:3\.(\d+)\.\d+-slim-bookworm", base)
    assert minor
    requires = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["requires-python"]
    low, high = (int(bound) for bound in re.findall(r"3\.(\d+)", requires))
    assert low <= int(minor[1]) < high
    module, name = re.findall(r"python -m (\S+) (\S+)", DOCKERFILE)[0]
    assert find_spec(module)
    assert f"mv /tmp/cache/jars/{JAR_SETS[name].name}-* jars" in DOCKERFILE
    assert "pip install --no-cache-dir --requirement requirements.txt" in DOCKERFILE
    spark = re.search(r"^pyspark==(\S+)$", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    assert spark
    assert JAR_SETS[name].version == spark[1]
