from __future__ import annotations

import json
import shlex

import pytest
from streamplan.cli import main
from streamplan.model.acls import Role, required_acls
from streamplan.registry import pipeline_named


def test_the_commands_add_one_resource_each(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--role", "producer", "--principal", "producer=User:CN=a b"]
    connection = ["--bootstrap-servers", "kafka-1:9093", "--command-config", "admin.properties"]
    assert main(["acls", "orders", "--format", "commands", *arguments, *connection]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == "# producer"
    begin = "kafka-acls.sh --bootstrap-server kafka-1:9093 --command-config admin.properties --add --allow-principal"
    assert [shlex.split(line) for line in lines] == [
        [*begin.split(), "User:CN=a b", *rest.split()]
        for rest in (
            "--operation Write --operation Read --topic orders",
            "--operation Write --transactional-id orders-aggregator-producer",
        )
    ]


def test_a_prefix_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acls", "orders", "--format", "commands", "--role", "aggregator"]) == 0
    printed = capsys.readouterr().out
    assert "--transactional-id orders-aggregator- --resource-pattern-type prefixed\n" in printed
    assert "--allow-principal User:orders-aggregator " in printed


def test_json_has_every_entry_of_every_role(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acls", "orders", "--format", "json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    pipeline = pipeline_named("orders")
    assert len(entries) == sum(len(required_acls(pipeline, role)) for role in Role)
    assert {
        "role": "checks",
        "principal": "User:orders-checks",
        "resourceType": "group",
        "patternType": "literal",
        "name": "orders-aggregator",
        "operation": "Describe",
        "reason": "positions and members",
    } in entries


def test_the_list_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acls", "orders", "--role", "aggregator"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "aggregator  User:orders-aggregator"
    assert lines[1] == "  group orders-aggregator"
    assert lines[2].split() == ["Read", *["membership", "and", "the", "positions", "of", "the", "stream", "tasks"]]


@pytest.mark.parametrize("principal", ["aggregator", "aggregator=alice", "somebody=User:alice"])
def test_a_principal_in_another_form_is_refused(principal: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acls", "orders", "--principal", principal]) == 2
    assert "ROLE=TYPE:NAME" in capsys.readouterr().err
