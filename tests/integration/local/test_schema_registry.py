"""The stand-in for a Schema Registry as a process of the stack of one machine."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamplan import processes
from streamplan.errors import SchemaRegistryUnavailable
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.schema_registry import SchemaRegistry
from streamplan.local.brokers import local_brokers
from streamplan.local.ports import Ports
from streamplan.local.schema_registry import DEFAULT_PORTS, PROCESS, LocalSchemaRegistry
from streamplan.local.stack import Stack
from streamplan.serdes.schema_source import WrittenSchema
from streamplan.settings import Settings

from tests.support.waiting import DEADLINE_SECONDS

SCHEMA = WrittenSchema('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}')


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    found = Settings.from_environment({"STREAMPLAN_HOME": str(tmp_path / "a home")})
    yield found
    for ref in processes.registered(found.run):
        processes.stop(ref)


def registry(settings: Settings, *, wanted: bool = False) -> LocalSchemaRegistry:
    return LocalSchemaRegistry(settings, Ports(settings.home / "stack.json", DEFAULT_PORTS), wanted=wanted)


def started(settings: Settings, *, wanted: bool = False) -> LocalSchemaRegistry:
    made = registry(settings, wanted=wanted)
    made.start(lambda line: None)
    made.wait_until_ready(deadline_seconds=DEADLINE_SECONDS)
    return made


def client(settings: Settings) -> SchemaRegistry:
    return SchemaRegistry.of(local_brokers(settings))


def test_schemas_password_and_port_survive_down_and_up(settings: Settings) -> None:
    first = started(settings, wanted=True)
    schema_id = client(settings).register("orders", "Order", SCHEMA)
    assert first.down() == [PROCESS]
    assert first.down() == []
    with pytest.raises(SchemaRegistryUnavailable):
        client(settings).schema(schema_id)
    again = started(settings)  # nobody asks for it any more, and what was deployed goes on
    assert again.properties == first.properties
    assert client(settings).schema(schema_id) == SCHEMA
    assert client(settings).register("orders", "Order", SCHEMA) == schema_id
    again.start(lambda line: None)  # it runs
    assert [ref.name for ref in processes.registered(settings.run)] == [PROCESS]


def test_it_asks_for_a_password_that_its_owner_alone_can_read(settings: Settings) -> None:
    made = started(settings, wanted=True)
    properties = local_brokers(settings).registry
    password = properties["basic.auth.user.info"]
    wrong = Brokers.from_connection(
        {"bootstrap.servers": "one:1", **properties, "basic.auth.user.info": "streamplan:x"}
    )
    with pytest.raises(SchemaRegistryUnavailable, match=r"HTTP 401, Unauthorized.*Correct the credentials"):
        SchemaRegistry.of(wrong).register("orders", "Order", SCHEMA)
    assert json.loads((settings.run / f"{PROCESS}.json").read_text())["argv"]
    assert password not in (settings.run / f"{PROCESS}.json").read_text()
    [file] = [file for file in settings.home.rglob("*") if file.is_file() and password in file.read_text()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.address in properties["schema.registry.url"]


def test_a_deployment_without_such_a_pipeline_has_none(settings: Settings) -> None:
    made = registry(settings)
    made.start(lambda line: None)
    assert (made.is_used, made.process(), made.properties) == (False, None, {})
    assert local_brokers(settings).registry == {}
    assert PROCESS not in [state.name for state in Stack(settings).states()]


def test_status_tells_where_it_is_and_what_is_wrong(settings: Settings) -> None:
    made = started(settings, wanted=True)

    def state() -> tuple[bool, str, str]:
        (found,) = (each for each in Stack(settings).states() if each.name == PROCESS)
        return found.alive, found.address, found.fault

    assert state() == (True, made.address, "")
    made.down()
    assert state() == (False, made.address, "not running")
