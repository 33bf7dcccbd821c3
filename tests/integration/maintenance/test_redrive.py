"""Dead letters that are processed again, on real brokers and Spark: each once, and the checks stay exact."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from streamplan.checks import check_named
from streamplan.checks.framework.application import application_of
from streamplan.checks.framework.check import CheckResult, Outcome, run_check
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.membership import GroupMember
from streamplan.kafka.topics import apply_topics
from streamplan.kafka.transactions import Fenced, open_producer
from streamplan.maintenance import redrive as redriving
from streamplan.maintenance import redriven_records
from streamplan.maintenance.redrive import Redriver
from streamplan.maintenance.redrive_plan import Choice, RedrivePlan, Verdict
from streamplan.maintenance.reset import Resetter
from streamplan.model.pipeline import Pipeline, TestData
from streamplan.model.topology import Topology
from streamplan.observability.lookup import DeadLetterView, newest_dead_letters
from streamplan.pipelines.orders import PIPELINE as ORDERS
from streamplan.pipelines.orders import order
from streamplan.reports.check_context import check_context
from streamplan.serdes.json import Json
from streamplan.settings import Settings
from streamplan.spark.recount.recount import recount

from tests.support.draining import drain
from tests.support.records import read_committed

_numbers = itertools.count()

_NO_TEST_DATA = TestData((), lambda n: ("", b"", b""), "n")

KINDS = {0: "Jackets", 1: "Shirts", 2: "Socks", 3: "Caps"}


class Application:
    """An application whose declaration allows some kinds of orders alone. One topology counts, the other passes on."""

    def __init__(self, bootstrap_servers: str, home: Path, spark: SparkSession) -> None:
        self.name = f"redriven-{os.getpid()}-{next(_numbers)}"
        self.bootstrap_servers, self.spark = bootstrap_servers, spark
        self.brokers = Brokers(bootstrap_servers)
        self.cluster = KafkaCluster(self.brokers)
        self.settings = Settings.from_environment({"STREAMPLAN_HOME": str(home)})
        self.orders, self.paid = f"{self.name}-orders", f"{self.name}-paid"
        self.produced: list[bytes] = []

    def counting(self, *kinds: int) -> Pipeline:
        """Orders by kind, where these kinds are allowed."""
        topology = Topology(self.name)
        topology.stream(self.orders, value=_order(kinds)).group_by("kind", name="by-kind").count(store="totals")
        return Pipeline(self.name, topology, "", {self.orders: 2}, _NO_TEST_DATA)

    def passing(self, *kinds: int) -> Pipeline:
        """The ids of paid orders, where these kinds are allowed."""
        topology = Topology(self.name)
        topology.stream(self.orders, value=_order(kinds)).filter("paid").map_values({"id": "id"}).to(self.paid)
        return Pipeline(self.name, topology, "", {self.orders: 2, self.paid: 2}, _NO_TEST_DATA)

    def begin(self, narrow: Pipeline) -> None:
        """Process sixteen orders of four kinds, and a record that is no order. The even ones are paid."""
        apply_topics(self.brokers, narrow)
        orders = [{"id": f"order {n}", "kind": n % 4, "paid": n % 2 == 0} for n in range(16)]
        self.produced = [*(json.dumps(order).encode() for order in orders), b"not JSON"]
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "partitioner": "murmur2_random"})
        for number, value in enumerate(self.produced):
            producer.produce(self.orders, value, f"k{number}", headers=[("own", b"header"), ("none", None)])
        assert producer.flush(120) == 0
        self.drain(narrow)

    def drain(self, pipeline: Pipeline) -> None:
        drain(self.spark, pipeline, self.brokers, self.settings.checkpoints)

    def counted(self, *kinds: int) -> dict[bytes, int]:
        """A plain recount: how many orders there are of each kind that is allowed."""
        return dict(Counter(b"%d" % order["kind"] for order in self._allowed(kinds)))

    def payments(self, *kinds: int) -> Counter[str]:
        """A plain recount: the paid orders of the kinds that are allowed."""
        return Counter(order["id"] for order in self._allowed(kinds) if order["paid"])

    def _allowed(self, kinds: tuple[int, ...]) -> list[dict[str, Any]]:
        orders = [json.loads(value) for value in self.produced if value.startswith(b"{")]
        return [order for order in orders if order["kind"] in kinds]

    def totals(self, pipeline: Pipeline) -> dict[bytes, int]:
        """The last value of each key in the changelog."""
        changelog = read_committed(self.bootstrap_servers, pipeline.topology.changelog_topic("totals"))
        return {m.key(): int.from_bytes(m.value(), "big", signed=True) for m in changelog}

    def check(self, pipeline: Pipeline, *, full: bool = False) -> CheckResult:
        subject = application_of(pipeline)
        check = check_named("totals").configure(check_context(subject, self.settings.reports, full=full))
        return run_check(subject, check, self.cluster)

    def wrong(self, pipeline: Pipeline) -> list[str]:
        """What Spark's recount of every sub-topology finds."""
        rows = recount(self.spark, pipeline, self.cluster, self.brokers)
        return [f"{row.subject}: {row.expected}, {row.observed}; {row.where}" for row in rows if not row.agrees]

    def letters(self, pipeline: Pipeline) -> list[DeadLetterView]:
        return newest_dead_letters(application_of(pipeline), self.cluster, 100)

    def plan(self, pipeline: Pipeline, choice: Choice | None = None, *, looks_only: bool = False) -> RedrivePlan:
        return Redriver(
            pipeline,
            self.brokers,
            self.settings,
            spark=self.spark,
            choice=choice or Choice(),
            looks_only=looks_only,
        ).observe()

    def redrive(self, pipeline: Pipeline, plan: RedrivePlan) -> list[str]:
        said: list[str] = []
        Redriver(
            pipeline,
            self.brokers,
            self.settings,
            said.append,
            spark=self.spark,
            choice=Choice(),
            by="ann",
            run="a run",
        ).apply(plan.written())
        return said

    def reset(self, pipeline: Pipeline) -> None:
        reset = Resetter(pipeline, self.brokers, self.settings)
        reset.apply(reset.observe().written())

    def close(self, pipeline: Pipeline) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for future in admin.delete_topics([spec.name for spec in pipeline.topics()]).values():
            future.exception(120)


def _order(kinds: tuple[int, ...]) -> Json:
    return Json("id string, kind int, paid boolean", allowed={"kind": {kind: KINDS[kind] for kind in kinds}})


@pytest.fixture(scope="module")
def counted(
    bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[Application]:
    """An application that counts, with two kinds allowed; its totals are verified."""
    made = Application(bootstrap_servers, tmp_path_factory.mktemp("counted"), spark)
    made.begin(narrow := made.counting(0, 1))
    assert made.check(narrow).outcome is Outcome.PASSED  # a verified cut, from which the next check begins
    yield made
    made.close(narrow)


def test_after_a_mended_declaration_the_checks_say_what_to_do_with_the_old_dead_letters(counted: Application) -> None:
    mended = counted.counting(0, 1, 2)
    found = counted.check(mended, full=True)
    assert found.outcome is Outcome.FAILED
    assert any("that could be aggregated" in row.subject and "re-drive" in row.where for row in found.observations)


def test_a_plan_says_what_the_declaration_makes_of_each_dead_letter_and_changes_nothing(counted: Application) -> None:
    mended = counted.counting(0, 1, 2)
    before = read_committed(counted.bootstrap_servers, mended.topology.dead_letter_topic)
    plan = counted.plan(mended)
    done = Counter({group.verdict: 0 for group in plan.groups})
    for group in plan.groups:
        done[group.verdict] += group.letters
    assert done == {Verdict.PROCESSED: 4, Verdict.REJECTED: 4 + 1}  # of kind 2; of kind 3, and what is no order
    assert "- 4 × `kind is not one of 0, 1`: processed again (" in plan.text
    assert "- 4 × `kind is not one of 0, 1`: rejected again, it stays a dead letter: kind is not one of 0, 1, 2 (" in (
        plan.text
    )
    assert RedrivePlan.read(plan.written()) == plan
    with GroupMember(counted.brokers, counted.name, [f"{counted.name}-orders"], "another-host:1:x") as running:
        running.await_join(lambda line: None)
        assert counted.plan(mended, looks_only=True) == plan
    assert len(read_committed(counted.bootstrap_servers, mended.topology.dead_letter_topic)) == len(before) == 9


def test_each_record_is_processed_again_once_however_often_a_redrive_dies_or_is_run(
    counted: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before a commit and after one, and another one takes its transactional id. Then it runs to its end."""
    mended = counted.counting(0, 1, 2)
    plan = counted.plan(mended)
    process_again = redriving._process_again
    monkeypatch.setattr(redriven_records, "TRANSACTION_LETTERS", 3)  # of 4 that are accepted

    def dies_after_one(*arguments: object) -> None:
        process_again(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    def dies_before_the_commit(judge: object, producer: Producer, *arguments: object) -> None:
        class Dying:
            def __getattr__(self, name: str) -> object:
                if name == "commit_transaction":
                    assert producer.flush(60) == 0  # all of it is there, uncommitted
                    raise KeyboardInterrupt
                return getattr(producer, name)

        process_again(judge, Dying(), *arguments)  # type: ignore[arg-type]

    def is_overtaken(judge: object, producer: Producer, *arguments: object) -> None:
        open_producer(counted.brokers, f"{counted.name}-redrive").close()
        process_again(judge, producer, *arguments)  # type: ignore[arg-type]

    for fault, error in (
        (dies_after_one, KeyboardInterrupt),
        (dies_before_the_commit, KeyboardInterrupt),
        (is_overtaken, Fenced),
    ):
        monkeypatch.setattr(redriving, "_process_again", fault)
        with pytest.raises(error):
            counted.redrive(mended, plan)
    monkeypatch.setattr(redriving, "_process_again", process_again)
    said = counted.redrive(mended, plan)
    assert said[-1] == f"{counted.name}: 1 of 6 chosen dead letters are re-driven"  # 3 of 9 were before it died
    assert counted.plan(mended).done == 0
    assert counted.redrive(mended, plan)  # once more: there is nothing left

    counted.drain(mended)
    assert counted.totals(mended) == counted.counted(0, 1, 2)


def test_the_checks_are_exact_after_a_redrive(counted: Application) -> None:
    """From the verified cut before it, from the beginning, and as Spark recounts every sub-topology."""
    mended = counted.counting(0, 1, 2)
    since_the_cut = counted.check(mended)
    assert since_the_cut.outcome is Outcome.PASSED, since_the_cut
    full = counted.check(mended, full=True)
    assert full.outcome is Outcome.PASSED, full
    assert counted.wrong(mended) == []
    narrower = counted.check(counted.counting(0, 1), full=True)
    assert narrower.outcome is Outcome.FAILED


def test_a_dead_letter_tells_who_redrove_it_and_when(counted: Application) -> None:
    mended = counted.counting(0, 1, 2)
    letters = counted.letters(mended)
    assert len(letters) == 9
    redriven = [letter for letter in letters if letter.redriven is not None]
    assert {letter.redriven.by for letter in redriven if letter.redriven} == {"ann"}
    assert {letter.redriven.run for letter in redriven if letter.redriven} == {"a run"}
    assert {json.loads(letter.value or "")["kind"] for letter in redriven} == {2}
    assert len(redriven) == 4


def test_a_dead_letter_that_was_redriven_or_is_not_there_is_refused(counted: Application) -> None:
    mended = counted.counting(0, 1, 2)
    letters = counted.letters(mended)
    at = next(f"{letter.partition}@{letter.offset}" for letter in letters if letter.redriven is not None)
    (group,) = counted.plan(mended, Choice.of(None, [at])).groups
    assert group.verdict is Verdict.REFUSED
    assert group.said.startswith("ann re-drove it at ")
    with pytest.raises(Refused, match=r"the dead letters: expected places .*, observed no dead letter at 1@99"):
        counted.plan(mended, Choice.of(None, ["1@99"]))


def test_a_reset_afterwards_counts_each_record_once(counted: Application) -> None:
    mended = counted.counting(0, 1, 2)
    counted.reset(mended)
    counted.drain(mended)
    assert counted.totals(mended) == counted.counted(0, 1, 2)
    letters = counted.letters(mended)
    assert [letter.redriven for letter in letters] == [None] * 5
    found = counted.check(mended)
    assert found.outcome is Outcome.PASSED, found


def test_a_record_whose_source_was_deleted_is_taken_from_its_dead_letter(counted: Application) -> None:
    """All kinds are allowed now, and the records in the source are gone. The check goes on from its verified cut."""
    wide = counted.counting(0, 1, 2, 3)
    admin = AdminClient({"bootstrap.servers": counted.bootstrap_servers})
    borders = counted.cluster.offsets(counted.orders)
    ends = [TopicPartition(counted.orders, number, at.high_watermark) for number, at in borders.items()]
    for future in admin.delete_records(ends).values():
        future.result(120)
    plan = counted.plan(wide)
    assert plan.done == 4
    counted.redrive(wide, plan)
    counted.drain(wide)
    assert counted.totals(wide) == counted.counted(0, 1, 2, 3)
    found = counted.check(wide)
    assert found.outcome is Outcome.PASSED, found


def test_what_is_passed_on_is_there_once_and_in_an_order_that_spark_recounts(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> None:
    """A record that the mended declaration leaves out is dealt with, too: it gets a mark, and nothing is written."""
    passing = Application(bootstrap_servers, tmp_path, spark)
    passing.begin(passing.passing(0, 1))
    mended = passing.passing(0, 1, 2, 3)
    try:
        assert any("could not process" in row and "re-drive" in row for row in passing.wrong(mended))
        plan = passing.plan(mended, Choice.of("kind is not one of 0, 1", ()))
        assert {group.verdict: group.letters for group in plan.groups} == {Verdict.PROCESSED: 4, Verdict.LEFT_OUT: 4}
        passing.redrive(mended, plan)
        written = read_committed(bootstrap_servers, passing.paid)
        assert Counter(json.loads(m.value())["id"] for m in written) == passing.payments(0, 1, 2, 3)
        assert {tuple(m.headers()) for m in written} == {(("own", b"header"), ("none", None))}
        assert [letter.redriven is None for letter in passing.letters(mended)].count(True) == 1
        assert passing.wrong(mended) == []
    finally:
        passing.close(mended)


@pytest.mark.soak
def test_the_command_processes_dead_letters_in_a_spark_of_its_own(
    bootstrap_servers: str, tmp_path: Path, spark_environment: Mapping[str, str]
) -> None:
    """A dead letter of an order that is right: as one that an older declaration rejected."""
    brokers = Brokers(bootstrap_servers)
    apply_topics(brokers, ORDERS)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    key, value = order(1)
    producer.produce("orders", value, key, 0)
    origin = [("streamplan.source.topic", b"orders"), ("streamplan.source.partition", b"0")]
    headers = [("streamplan.reason", b"old"), ("streamplan.task", b"0_0"), *origin, ("streamplan.source.offset", b"0")]
    producer.produce(ORDERS.topology.dead_letter_topic, value, key, 0, headers=headers)
    assert producer.flush(120) == 0
    repartition = ORDERS.topology.decorate("orders-products-quantities-repartition")
    environment = {**spark_environment, "STREAMPLAN_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "streamplan", "redrive", "orders", "--all", "--yes"]
    command += ["--bootstrap-servers", bootstrap_servers]

    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "1 × old: processed again (0@0)" in done.stdout
        assert "1 of 1 chosen dead letters are re-driven" in done.stdout
        assert [(m.key(), m.value()) for m in read_committed(bootstrap_servers, repartition)] == [(b"1", value)]
    finally:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for future in admin.delete_topics([spec.name for spec in ORDERS.topics()]).values():
            future.exception(120)


@pytest.mark.soak
def test_a_record_whose_row_could_not_be_read_is_processed_again_with_the_new_row(
    bootstrap_servers: str, tmp_path: Path, spark: SparkSession
) -> None:
    made = Application(bootstrap_servers, tmp_path, spark)
    prices = f"{made.name}-prices"
    topology = Topology(made.name)
    table = topology.global_table(prices, value=Json("price bigint"))
    orders = topology.stream(made.orders, value=Json("id string, product string"))
    orders.join(table, {"id": "id", "price": "table.price"}, key="product").to(made.paid)
    pipeline = Pipeline(made.name, topology, "", {made.orders: 2, made.paid: 2, prices: 3}, _NO_TEST_DATA)
    apply_topics(made.brokers, pipeline)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})

    def produce(topic: str, key: str, value: bytes) -> None:
        producer.produce(topic, value, key)
        assert producer.flush(120) == 0

    try:
        produce(prices, "hat", b"no JSON")
        produce(prices, "cap", b'{"price": 1}')
        produce(made.orders, "ann", b'{"id": "1", "product": "hat"}')
        produce(made.orders, "ann", b'{"id": "2", "product": "cap"}')
        made.drain(pipeline)
        (letter,) = made.letters(pipeline)
        assert letter.reason.startswith(f"its row, {prices}-")
        assert {group.verdict: group.letters for group in made.plan(pipeline).groups} == {Verdict.REJECTED: 1}
        produce(prices, "hat", b'{"price": 7}')
        plan = made.plan(pipeline)
        assert {group.verdict: group.letters for group in plan.groups} == {Verdict.PROCESSED: 1}
        made.redrive(pipeline, plan)
        written = [json.loads(message.value()) for message in read_committed(bootstrap_servers, made.paid)]
        assert sorted(written, key=str) == [{"id": "1", "price": 7}, {"id": "2", "price": 1}]
    finally:
        made.close(pipeline)
