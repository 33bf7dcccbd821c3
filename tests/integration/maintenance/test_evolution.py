"""What a plan says of a changed declaration, compared with what its deployment and its start then do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession
from streamplan.errors import Refused
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.task_ownership import TaskOwnership
from streamplan.maintenance.evolution import observe_evolution
from streamplan.maintenance.evolution_plan import EvolutionPlan

from tests.support.checkpoints import checkpoint_of
from tests.support.tried_topology import SALE, Tried, sale
from tests.support.waiting import eventually

BEFORE, AFTER = (f"KSTREAM-AGGREGATE-STATE-STORE-000000000{number}" for number in (2, 3))


class Changed(Tried):
    """An application whose declaration changes."""

    def plan(self) -> EvolutionPlan:
        return observe_evolution(self.pipeline, KafkaCluster(Brokers(self.bootstrap_servers)), str(self.checkpoints))

    def verdicts(self) -> dict[str, str]:
        return {f"{change.part} {change.name}": change.verdict.value for change in self.plan().changes}

    def start(self, *shops: str) -> list[str]:
        """Deploy and start with one more sale of each of these shops. Returns what the start said of its state."""
        self.create_topics()
        self.produce("sales", [(shop, sale(shop, 1), 0) for shop in shops])
        del self.lines[:]
        self.drain()
        return [line for line in self.lines if "begins with" in line or "restored" in line]

    def counts(self, store: str) -> dict[str, int]:
        """The last value of each key of a changelog, read without the product's code."""
        found = self.read(f"{self.name}-{store}-changelog")
        return {message.key().decode(): int.from_bytes(message.value(), "big") for message in found}


@pytest.fixture
def changed(bootstrap_servers: str, tmp_path: Path, spark: SparkSession) -> Changed:
    return Changed(bootstrap_servers, tmp_path / "checkpoints", spark, restoring=False)


@pytest.mark.soak
def test_sub_topologies_that_are_linked_no_more_have_their_state_rebuilt(changed: Changed) -> None:
    sales = changed.named("sales")
    changed.topology.stream(sales, value=SALE).group_by("shop").count(store="sold")
    changed.start("x", "x", "y")
    kept = {"sub-topology 0": "kept", "sub-topology 1": "kept", "store sold": "kept"}
    assert changed.verdicts() == kept
    changed.declare_anew().stream(sales, value=SALE).filter("amount > 0").group_by("shop").count(store="sold")
    assert changed.verdicts() == {**kept, "sub-topology 1": "rebuilt", "store sold": "rebuilt"}
    said = "\n".join(changed.start("x"))
    assert "sub-topology 1 begins with its changelog topics, because its checkpoint " in said
    assert "restored 2 rows" in said
    assert changed.counts("sold") == {"x": 3, "y": 1}


def test_the_start_does_what_the_plan_has_said(changed: Changed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPLAN_LINKED", "false")  # a filter divides linked sub-topologies: see above
    sales, name = changed.named("sales"), changed.name
    changed.topology.stream(sales, value=SALE).group_by("shop").count()
    assert {verdict for part, verdict in changed.verdicts().items() if not part.startswith("topic")} == {"new"}
    changed.start("x", "x", "y")
    assert changed.counts(BEFORE) == {"x": 2, "y": 1}
    kept = {"sub-topology 0": "kept", "sub-topology 1": "kept", f"store {BEFORE}": "kept"}
    assert changed.verdicts() == kept

    # A filter in front: the store has another number. Under its old name it is kept, as the plan tells.
    changed.declare_anew().stream(sales, value=SALE).filter("amount > 0").group_by("shop").count()
    told = changed.plan().text
    assert f"before it was {BEFORE}" in told
    changed.declare_anew().stream(sales, value=SALE).filter("amount > 0").group_by("shop").count(store=BEFORE)
    assert f"declare store={BEFORE!r}." in told
    assert changed.verdicts() == kept
    assert changed.start("x") == []
    assert changed.counts(BEFORE) == {"x": 3, "y": 1}

    # Without its checkpoint it is rebuilt.
    shutil.rmtree(checkpoint_of(changed.checkpoints, name, 1))
    assert changed.verdicts() == {**kept, "sub-topology 1": "rebuilt", f"store {BEFORE}": "not known"}
    begun = changed.start("y")
    assert begun[0].startswith("sub-topology 1 begins with its changelog topics")
    assert changed.counts(BEFORE) == {"x": 3, "y": 2}

    # With another meaning it is refused.
    grouped = changed.declare_anew().stream(sales, value=SALE).filter("amount > 0").group_by("shop")
    grouped.aggregate({"count": "sum(amount)"}, store=BEFORE)
    verdicts = changed.verdicts()
    assert verdicts == {**kept, "sub-topology 1": "refused", f"store {BEFORE}": "refused"}
    with pytest.raises(Refused, match=f"store {BEFORE} is not that of its checkpoint"):
        changed.start()

    # Renumbered after all: it begins empty, and what it had is left over.
    changed.declare_anew().stream(sales, value=SALE).filter("amount > 0").group_by("shop").count()
    assert changed.verdicts() == {
        "sub-topology 0": "kept",
        "sub-topology 1": "new",
        f"store {AFTER}": "new",
        f"topic {name}-{AFTER}-repartition": "created",
        f"topic {name}-{AFTER}-changelog": "created",
        f"topic {name}-{BEFORE}-repartition": "orphaned",
        f"topic {name}-{BEFORE}-changelog": "orphaned",
    }
    assert changed.start("x") == []
    assert changed.counts(AFTER) == {"x": 1}
    assert changed.counts(BEFORE) == {"x": 3, "y": 2}
    written = json.dumps(changed.plan().written())
    assert "probably the same store" not in written  # it exists by now, and nothing asks any more

    # While an aggregator runs, and while another program is a member of its group.
    with TaskOwnership(changed.pipeline, Brokers(changed.bootstrap_servers)) as ownership:
        ownership.claim({0: True, 1: True})
        plan = changed.plan()
        assert not plan.refused
        assert "an aggregator runs: streamplan:" in plan.text
    consumer = Consumer({"bootstrap.servers": changed.bootstrap_servers, "group.id": name, "client.id": "foreign"})
    try:
        consumer.subscribe([sales])
        eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "the consumer has joined")
        (refused,) = changed.plan().refused
        assert "observed foreign on " in refused.reason
    finally:
        consumer.close()
    changed.delete_topics()


@pytest.mark.soak
def test_numbers_that_moved_mix_two_stores_which_the_plan_alone_notices(changed: Changed) -> None:
    def declare(filters: int) -> list[str]:
        stream = changed.declare_anew().stream(changed.named("sales"), value=SALE)
        for _ in range(filters):
            stream = stream.filter("amount > 0")
        stream.group_by("shop").count()
        stream.group_by("paid").count()
        return [str(node.store) for _, node in changed.pipeline.stores]

    by_shop, by_paid = declare(0)
    changed.start("x", "x")
    assert (changed.counts(by_shop), changed.counts(by_paid)) == ({"x": 2}, {"true": 2})
    assert declare(6)[0] == by_paid  # six numbers further, the first store has that of the second
    verdicts = changed.verdicts()
    assert verdicts[f"store {by_paid}"] == "refused"
    changed.start("x")
    assert changed.counts(by_paid) == {"true": 2, "x": 1}  # the shop has had three sales
    changed.delete_topics()
