from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console
from streamplan.checks import lag, names
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import Check, CheckResult, Observation, Outcome
from streamplan.checks.framework.consistent_cut import Deadline
from streamplan.cli import check as console
from streamplan.cli import check_subject, main
from streamplan.cli.check_progress import CheckProgress
from streamplan.errors import CouldNotLook
from streamplan.model.pipeline import Limits
from streamplan.pipelines.orders import PIPELINE
from streamplan.settings import PROJECT
from streamplan.testing import health as testing

from tests.support.fake_cluster import FakeApplication, FakeCluster
from tests.support.waiting import DEADLINE_SECONDS

SERVERS = "127.0.0.1:1"
ANY = ["check", "--bootstrap-servers", SERVERS, "--application-id", "orders-aggregator"]
FAST = ["--only", "copartitioning,names"]
"""Checks that a cluster in memory answers as it stands."""


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeApplication:
    """Healthy, and what the command finds at every address."""
    cluster = FakeCluster()
    application = FakeApplication(cluster, PIPELINE)
    for n in range(19):
        application.order(n)
    application.drain()
    for module in (console, testing):
        monkeypatch.setattr(module, "KafkaCluster", lambda servers: cluster)
        monkeypatch.setattr(module, "require_reachable", lambda servers: None)
    monkeypatch.setenv("STREAMPLAN_HOME", str(tmp_path))
    return application


@pytest.mark.parametrize(
    ("file", "text", "behind"),
    [
        ("order.avsc", '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}', ""),
        (
            "all.avsc",
            '[{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]},'
            ' {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}]',
            ":Order",
        ),
        (
            "shop.avpr",
            '{"protocol": "Shop", "types": ['
            '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}]}',
            ":Order",
        ),
        ("order.schema.json", '{"type": "object", "properties": {"id": {"type": "string"}}}', ""),
        ("order.proto", 'syntax = "proto3"; message Order { string id = 1; } message Line { int32 n = 1; }', ":Order"),
    ],
)
def test_the_fields_of_counted_values_may_stand_in_the_file_of_a_schema(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, text: str, behind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).write_text(text)
    serde = check_subject._serde(file + behind)
    assert dict(serde.fields) == {"id": "string"}


def answer_of(capsys: pytest.CaptureFixture[str]) -> dict:  # type: ignore[type-arg]
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def one_check(monkeypatch: pytest.MonkeyPatch, *observations: Observation, error: CouldNotLook | None = None) -> None:
    """Instead of the eight."""

    class OneCheck(Check):
        name, title, healthy = "names", "Names", "healthy"

        def observe(self, application: object, cluster: object) -> tuple[Observation, ...]:
            if error is not None:
                raise error
            return observations

    check = OneCheck()
    for module in (console, testing):
        monkeypatch.setattr(module, "CHECKS", (check,))
        monkeypatch.setattr(module, "check_named", lambda name: check)


# -- exit status


def test_healthy_is_0(orders: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ANY, *FAST]) == 0
    printed = capsys.readouterr()
    assert "orders-aggregator: 1 source, 1 repartition topic, 1 changelog" in printed.out
    assert [line.split()[:2] for line in printed.out.splitlines() if " passed " in line] == [
        ["copartitioning", "passed"],
        ["names", "passed"],
    ]
    assert "Looking: Co-partitioning" in printed.err
    assert "Co-partitioning: passed" in printed.err


def test_wrong_is_1_and_every_wrong_row_is_printed_whole(
    orders: FakeApplication, capsys: pytest.CaptureFixture[str]
) -> None:
    for key in (b"a", b"b", b"c"):
        for partition in (0, 1):
            orders.cluster.produce(orders.repartition, key, b"v", partition=partition)
    assert main([*ANY, *FAST]) == 1
    lines = capsys.readouterr().out.splitlines()
    for key in "abc":
        assert any(line.startswith(f"copartitioning: {orders.repartition}: key '{key}'") for line in lines)


def test_what_could_not_be_looked_at_is_75(
    orders: FakeApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_check(monkeypatch, error=CouldNotLook("the group", observed="no permission"))
    assert main(ANY) == 75
    assert "no permission" in " ".join(capsys.readouterr().out.split())


def test_wrong_wins_over_what_could_not_be_looked_at(
    orders: FakeApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del orders.cluster.existing["orders"]  # lag cannot look
    orders.cluster.produce(orders.repartition, b"1", b"v", partition=0)
    assert main([*ANY, "--only", "copartitioning,lag", "--json"]) == 1
    assert [one["outcome"] for one in answer_of(capsys)["checks"]] == ["failed", "could not look"]


def test_no_rows_is_wrong(orders: FakeApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    one_check(monkeypatch)
    assert main(ANY) == 1


def test_nothing_left_to_look_at_is_75(orders: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ANY, "--only", "totals"]) == 75
    assert "left out" in capsys.readouterr().out


def test_an_unknown_application_is_75_with_those_near(
    orders: FakeApplication, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--bootstrap", SERVERS, "--application-id", "orders-agregator"]) == 75
    assert "Is it orders-aggregator?" in capsys.readouterr().out


def test_a_command_config_that_cannot_be_followed_is_78_and_shows_no_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    login = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
    file.write_text(f"{login}sasl.jaas.config=com.example.Module required password='s3cret';\n")
    assert main([*ANY, "--command-config", str(file)]) == 78
    printed = capsys.readouterr()
    assert "client.properties, line 3): expected the login module" in " ".join(printed.err.split())
    assert "s3cret" not in printed.out + printed.err


def test_brokers_away_is_75_with_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (ANY, ["check", "orders", "--bootstrap-servers", SERVERS]):
        assert main(arguments) == 75
        printed = capsys.readouterr()
        assert (printed.out + printed.err).count("Connection refused") == 1


def test_brokers_that_go_away_meanwhile_are_said_of_each_check(
    orders: FakeApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(method: str) -> None:
        if method == "offsets":
            raise CouldNotLook(f"Kafka at {SERVERS}", observed="refused")

    monkeypatch.setattr(check_subject, "discover", lambda *_, **__: application_of(PIPELINE))
    orders.cluster.before = stop
    assert main([*ANY, "--only", "copartitioning,skew,names", "--json"]) == 75
    outcomes = {one["check"]: one["outcome"] for one in answer_of(capsys)["checks"]}
    assert outcomes == {"copartitioning": "could not look", "skew": "could not look", "names": "passed"}


def test_a_check_that_waits_holds_no_other_up_and_says_what_it_waits_for(
    orders: FakeApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task stands still. Its check waits until all the others are done."""
    done = threading.Event()
    seconds = iter(range(1_000))

    class Last(Check):
        name, title, healthy = "names", "Names", "healthy"

        def observe(self, application: object, cluster: object) -> tuple[Observation, ...]:
            done.set()
            return (Observation("a row", 1, 1),)

    def sleep(_: float) -> None:
        assert done.wait(DEADLINE_SECONDS), "the other check did not run meanwhile"

    waiting = lag.LagCheck(deadline=Deadline(90.0, 1.0, clock=lambda: next(seconds), sleep=sleep))
    monkeypatch.setattr(console, "CHECKS", (waiting, Last()))
    orders.order(19)
    assert main([*ANY, "--json"]) == 1
    printed = capsys.readouterr()
    assert [one["check"] for one in json.loads(printed.out)["checks"]] == ["lag", "names"]
    assert "Lag and liveness waits up to 90 s until positions or transactions move on orders-" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected either PIPELINE or --application-id ID"),
        (["orders", "--application-id", "x"], "expected either PIPELINE or --application-id ID"),
        (["orders", "--topology", "f", "--source", "t"], "leave out --source, --topology. A declared pipeline"),
        (["--application-id", "x", "--store", "s"], "--store: expected together with --count"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "copartition"], "check 'copartition': expected copartitioning or"),
        (["--topology", "/nowhere"], "--topology /nowhere: expected a text file"),
        (["--key-type", "orders=short"], "expected string or int or long"),
        (["--key-type", "orders"], "expected TOPIC="),
        (["--partitioner", "orders=nowhere:place"], "No module named 'nowhere'"),
        (["--partitioner", "orders=streamplan.model.partitioner:place"], "no attribute 'place'"),
        (["--partitioner", "orders=streamplan.model.partitioner:LIBRDKAFKA_PARTITIONER"], "expected a function"),
        (["--count", "orders:ProductType", "--value", "ProductType"], "'ProductType' is not a field"),
    ],
)
def test_an_option_that_is_not_understood_is_2(
    orders: FakeApplication, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main([*ANY, *arguments])
    except SystemExit as ended:  # argparse ends the process itself
        status = int(ended.code or 0)
    assert status == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--count", "orders:ProductType"], "ProductType is not declared"),
        (["--count", "order"], "expected a topic that orders-aggregator reads: orders"),
    ],
)
def test_options_that_do_not_fit_the_application_are_78(
    orders: FakeApplication, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ANY, *arguments]) == 78
    assert said in capsys.readouterr().err


def test_a_terminal_shows_a_line_for_each_check_until_the_table_comes() -> None:
    written = io.StringIO()
    with CheckProgress(Console(file=written, force_terminal=True, width=120)) as progress:
        progress.looking_for("orders")
        wait = progress.begin(lag.CHECK)
        progress.begin(names.CHECK)
        wait("waits up to 90 s until positions move")
        progress.finish(CheckResult("orders", "names", Outcome.PASSED, "", "", ()))
        wait("")
    screens = written.getvalue().split("Looking: Names and assignment size", 1)[1]
    assert "Looking for orders" not in screens
    waiting = screens.index("Lag and liveness waits up to 90 s until positions move")
    passed = screens.index("Names and assignment size: passed")
    assert waiting < passed < screens.rindex("Looking: Lag and liveness")


def test_a_pipeline_that_is_not_declared_is_78(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "order"]) == 78
    assert "pipeline 'order': expected orders" in capsys.readouterr().err


# -- what it looks at


def test_json(orders: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    orders.cluster.produce(orders.changelog, b"1", bytes(8), partition=0)
    assert main([*ANY, "--only", "copartitioning,totals", "--json"]) == 1
    found = answer_of(capsys)
    (copartitioning,) = found.pop("checks")
    assert found == {
        "application_id": "orders-aggregator",
        "name": "orders-aggregator",
        "bootstrap_servers": SERVERS,
        "outcome": "failed",
        "reason": "",
        "topics": {
            "orders": {"role": "source", "partitions": 2},
            orders.repartition: {"role": "repartition", "partitions": 2},
            orders.changelog: {"role": "changelog", "partitions": 2},
        },
        "notes": [],
        "left_out": {"totals": "there is no count that can be recounted without Spark"},
    }
    assert copartitioning["outcome"] == "failed"
    rows = [row for row in copartitioning["observations"] if not row["agrees"]]
    assert {"subject", "expected", "observed", "where", "figures", "agrees"} == rows[0].keys()
    assert rows[1]["subject"] == f"{orders.changelog}: key '1'"


def test_json_of_brokers_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ANY, "--json"]) == 75
    found = answer_of(capsys)
    assert (found["outcome"], found["checks"]) == ("could not look", [])
    assert "Connection refused" in found["reason"]


def test_a_declared_pipeline(orders: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "orders", "--only", "totals,copartitioning", "--json"]) == 0
    found = answer_of(capsys)
    assert [one["check"] for one in found["checks"]] == ["copartitioning", "totals"]  # in their own order
    assert found["bootstrap_servers"] == "127.0.0.1:9092,127.0.0.1:9192"  # those of `up`
    assert orders.dead_letters in found["topics"]


def test_totals_of_a_count_that_is_told(orders: FakeApplication, capsys: pytest.CaptureFixture[str]) -> None:
    count = ["--count", "orders:ProductType", "--value", "Id string, ProductType int", "--only", "totals"]
    assert main([*ANY, *count]) == 0
    orders.order(20)
    orders.drain()
    assert main([*ANY, *count]) == 0  # from the verified cut on
    orders.cluster.produce(orders.changelog, b"0", (12).to_bytes(8, "big"))
    assert main([*ANY, *count]) == 1
    assert "orders-products-quantities[0]: expected 11, observed 12" in capsys.readouterr().out
    orders.cluster.produce(orders.changelog, b"0", (11).to_bytes(8, "big"))
    assert main([*ANY, *count, "--full"]) == 0


def test_a_count_told_otherwise_begins_anew(orders: FakeApplication) -> None:
    by_product = [*ANY, "--count", "orders:ProductType", "--value", "Id string, ProductType int", "--only", "totals"]
    by_id = [*ANY, "--count", "orders:Id", "--value", "Id string, ProductType int", "--only", "totals"]
    assert main(by_product) == 0
    assert main(by_id) == 1
    assert main(by_product) == 0


def test_options_reach_the_discovery(
    orders: FakeApplication, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described = tmp_path / "topology.txt"
    described.write_text(PIPELINE.topology.describe())
    more = ["--topology", str(described), "--key-type", f"{orders.repartition}=int", "--source", "orders"]
    more += ["--partitioner", f"{orders.repartition}=streamplan.model.partitioner:partition_for_key"]
    assert main([*ANY, *FAST, *more, "--json"]) == 0
    rows = answer_of(capsys)["checks"][0]["observations"]
    assert rows[1]["subject"] == f"{orders.changelog}: partitions (sub-topology 1)"
    # all that lies in it is in the wrong place by this one
    wrong = ["--partitioner", f"{orders.repartition}=tests.unit.cli.test_check:in_the_last"]
    assert main([*ANY, *FAST, *wrong]) == 1


def in_the_last(key: bytes, partitions: int) -> int:
    return partitions - 1


def test_a_sample_unless_all_is_wanted(
    orders: FakeApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_subject, "Limits", lambda *_: Limits(scanned_records=10))
    assert main([*ANY, *FAST, "--json"]) == 0
    assert "a sample out of 19" in json.dumps(answer_of(capsys))
    assert main([*ANY, *FAST, "--json", "--full"]) == 0
    assert "a sample" not in json.dumps(answer_of(capsys))


def test_it_brings_neither_airflow_nor_spark_nor_great_expectations() -> None:
    script = (
        "import sys\n"
        "from streamplan.cli import main\n"
        f"assert main({ANY!r}) == 75\n"
        "slow = {'airflow', 'pyspark', 'great_expectations', 'pyarrow', 'pandas'}\n"
        "print(slow & {name.split('.')[0] for name in sys.modules})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(PROJECT / "plugins")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


# -- for tests


def test_assert_healthy(orders: FakeApplication) -> None:
    results = testing.assert_healthy(SERVERS, "orders-aggregator", checks=["copartitioning", "names"])
    assert [result.check for result in results] == ["copartitioning", "names"]
    testing.assert_healthy(SERVERS, PIPELINE, checks=["copartitioning", "totals"])
    orders.cluster.produce(orders.repartition, b"1", b"v", partition=0)
    with pytest.raises(AssertionError) as failed:
        testing.assert_healthy(SERVERS, "orders-aggregator", checks=["copartitioning", "names"])
    assert f"copartitioning: {orders.repartition}: key '1'" in str(failed.value)
    assert len(str(failed.value).splitlines()) >= 3


def test_assert_healthy_that_cannot_look(
    orders: FakeApplication, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TypeError, match="leave out sources: a declared pipeline"):
        testing.assert_healthy(SERVERS, PIPELINE, sources=["orders"])
    with pytest.raises(CouldNotLook, match="application other"):
        testing.assert_healthy(SERVERS, "other")
    one_check(monkeypatch, error=CouldNotLook("the group", observed="no permission"))
    with pytest.raises(CouldNotLook, match="no permission"):
        testing.assert_healthy(SERVERS, "orders-aggregator")
