"""An option without an effect is wrong usage: who gives it expects something of it."""

from __future__ import annotations

import pytest
from streamplan.cli import main


@pytest.mark.parametrize(
    ("arguments", "missing", "given"),
    [
        (["produce", "orders", "--value", "{}", "--rate", "5"], "--records", "--rate"),
        (["produce", "orders", "--lines", "--rate", "0"], "--records", "--rate"),
        (["plan", "orders", "--json"], "--against-cluster", "--json"),
        (["acls", "orders", "--command-config", "admin.properties"], "--format commands", "--command-config"),
        (
            ["acls", "orders", "--format", "json", "--bootstrap-servers", "kafka:9092"],
            "--format commands",
            "--bootstrap-servers",
        ),
        (["exporter", "orders", "--otlp-seconds", "5"], "--otlp", "--otlp-seconds"),
        (["check", "--application-id", "x", "--store", "s"], "--count", "--store"),
        (["check", "--application-id", "x", "--value", "Id string", "--store", "s"], "--count", "--value, --store"),
        (["doctor", "--role", "producer"], "PIPELINE", "--role"),
    ],
)
def test_an_option_that_belongs_to_another_one(
    arguments: list[str], missing: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{given}: expected together with {missing}, observed alone. Add {missing}, or leave out {given}." in said


@pytest.mark.parametrize(
    ("arguments", "beside", "given"),
    [
        (["topic", "orders", "--topic", "orders", "--describe", "--last", "5"], "--describe", "--last"),
        (
            ["topic", "orders", "--topic", "orders", "--describe", "--partition", "0", "--offset", "0"],
            "--describe",
            "--partition, --offset",
        ),
        (
            ["topic", "orders", "--topic", "orders", "--describe", "--since", "earliest", "--containing", "x"],
            "--describe",
            "--since, --containing",
        ),
        (["topic", "orders", "--topic", "orders", "--describe", "--uncommitted"], "--describe", "--uncommitted"),
        (["plan", "orders", "--against-cluster", "--instances", "3"], "--against-cluster", "--instances"),
        (["plan", "orders", "--against-cluster", "--load", "1_0=9"], "--against-cluster", "--load"),
        (["upgrade", "orders", "plan", "--max-offsets", "9"], "plan", "--max-offsets"),
        (["upgrade", "orders", "build", "--accept-differences"], "build", "--accept-differences"),
        (["produce", "orders", "--records", "5", "--key", "k", "--topic", "orders"], "--records", "--key, --topic"),
    ],
)
def test_an_option_without_effect_beside_another_one(
    arguments: list[str], beside: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{given}: expected without {beside}, observed both. Leave out one of them." in said


@pytest.mark.parametrize("command", [["topic", "orders", "--topic", "orders"], ["letters", "orders"]])
def test_at_least_one_record_is_shown(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--last", "0"])
    assert ended.value.code == 2
    assert "argument --last: expected a whole number, 1 or more, observed 0" in capsys.readouterr().err
