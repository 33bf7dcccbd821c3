"""``orders_reset``, ``_redrive`` and ``_repartition`` through the real Airflow processes, as a person meets them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka.groups import members, set_positions
from streamplan.kafka.topics import apply_topics
from streamplan.local.airflow import USER
from streamplan.local.airflow_rest import AirflowRest
from streamplan.local.stack import Stack
from streamplan.maintenance.reset import Resetter
from streamplan.pipelines.orders import order
from streamplan.registry import pipeline_named

from tests.support.airflow_rest import patient_rest
from tests.support.records import read_committed
from tests.support.waiting import eventually

ORDERS = pipeline_named("orders")
GROUP = ORDERS.topology.application_id
CHANGELOG = ORDERS.topology.changelog_topic("orders-products-quantities")
SECONDS = 420.0
READ_SECONDS = 5.0


def totals(stack: Stack) -> dict[bytes, int]:
    found = read_committed(stack.kafka.bootstrap_servers, CHANGELOG, stack.kafka.brokers.properties)
    return {message.key(): int.from_bytes(message.value(), "big") for message in found}


def asked(rest: AirflowRest, run: str, dag: str = "orders_reset", subject: str = f"Reset {GROUP}?") -> str:
    """The body of the question that a run asks, once it does."""

    def is_asked() -> bool:
        states = rest.task_states(dag, run)
        assert states["plan"] not in ("failed", "skipped"), rest.task_log(dag, run, "plan")
        return states["approval"] == "awaiting_input"

    eventually(is_asked, "the question", SECONDS)
    question = rest.asked(dag, run, "approval")
    assert question is not None
    assert question["options"] == ["Approve", "Reject"]
    assert question["subject"] == subject
    return str(question["body"])


def answer(rest: AirflowRest, run: str, option: str, dag: str = "orders_reset") -> None:
    # As long as a person takes to read. The worker reports a parked task a moment after it was parked; the scheduler
    # would take that report for the end of the resumed one (see SETTLE_SECONDS of our triggers).
    time.sleep(READ_SECONDS)
    rest.answer(dag, run, "approval", option)


def ended(rest: AirflowRest, run: str, dag: str = "orders_reset") -> dict[str, str | None]:
    rest.wait(dag, run, deadline_seconds=SECONDS)
    states = rest.task_states(dag, run)
    for task, state in states.items():
        if state == "failed":
            print("\n".join(rest.task_log(dag, run, task)))  # noqa: T201
    return states


def stop_aggregator(stack: Stack, rest: AirflowRest) -> None:
    for run in rest.runs("orders_aggregator"):
        if run["state"] == "running":
            rest.set_run_state("orders_aggregator", run["dag_run_id"], "failed")
    eventually(
        lambda: not any("aggregator" in state.name for state in stack.states()), "the aggregator has gone", SECONDS
    )
    eventually(lambda: not members(stack.kafka.brokers, GROUP), "the brokers have forgotten it", SECONDS)


def test_a_person_sees_the_plan_and_decides(stack: Stack) -> None:
    """What an aggregator leaves is put there by hand, beside what there may be: this is about question and answers."""
    brokers = stack.kafka.brokers
    rest = patient_rest(stack)
    stop_aggregator(stack, rest)
    apply_topics(brokers, ORDERS)
    producer = Producer({"bootstrap.servers": brokers.servers, **brokers.properties})
    producer.produce(CHANGELOG, (7).to_bytes(8, "big"), b"0", 0)
    assert producer.flush(120) == 0
    set_positions(brokers, GROUP, {("orders", 0): 0, ("orders", 1): 0})
    before = totals(stack)
    assert before[b"0"] == 7
    records = sum(of.high_watermark - of.log_start for of in KafkaCluster(brokers).offsets(CHANGELOG).values())
    rest.wait_for_dag("orders_reset", deadline_seconds=SECONDS)

    rejected = rest.trigger("orders_reset")
    body = asked(rest, rejected)
    assert f"- topic `{CHANGELOG}`: at most {records:,} records" in body
    assert f"- the consumer group `{GROUP}` with its positions: orders-0 at 0, orders-1 at 0" in body
    answer(rest, rejected, "Reject")
    assert ended(rest, rejected) == {"plan": "success", "approval": "success", "apply": "skipped"}
    assert totals(stack) == before

    approved = rest.trigger("orders_reset")
    asked(rest, approved)
    assert totals(stack) == before  # nothing is deleted while it waits
    answer(rest, approved, "Approve")
    assert ended(rest, approved) == {"plan": "success", "approval": "success", "apply": "success"}
    assert totals(stack) == {}
    assert KafkaCluster(brokers).committed_offsets(GROUP) == {}


@pytest.mark.soak
def test_a_reset_is_refused_beside_an_aggregator_and_the_next_deployment_counts_all_anew(stack: Stack) -> None:
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_reset", deadline_seconds=SECONDS)

    def deployed(records: int) -> None:
        run = rest.trigger("orders_deploy", {"records": records})
        state = rest.wait("orders_deploy", run, deadline_seconds=2 * SECONDS)
        assert state == "success", rest.task_states("orders_deploy", run)

    deployed(19)
    counted = totals(stack)
    assert (
        sum(counted.values())
        == len(read_committed(stack.kafka.bootstrap_servers, "orders", stack.kafka.brokers.properties))
        >= 19
    )

    refused = rest.trigger("orders_reset")
    assert rest.wait("orders_reset", refused, deadline_seconds=SECONDS) == "failed"
    log = "".join(rest.task_log("orders_reset", refused, "plan"))
    assert "an active run of orders_aggregator" in log
    stop_aggregator(stack, rest)

    # It may still be a member of its group, if it was killed. The plan waits for that.
    approved = rest.trigger("orders_reset")
    assert f"topic `{CHANGELOG}`: at most" in asked(rest, approved)
    answer(rest, approved, "Approve")
    assert ended(rest, approved) == {"plan": "success", "approval": "success", "apply": "success"}
    assert totals(stack) == {}
    assert KafkaCluster(stack.kafka.brokers).committed_offsets(GROUP) == {}
    assert not Path(stack.settings.checkpoints, GROUP).exists()

    deployed(0)
    assert totals(stack) == counted


@pytest.mark.soak
def test_a_dead_letter_is_processed_again_in_the_name_of_who_approved_it(stack: Stack) -> None:
    """The dead letter is put there by hand: an order that is right, as an older declaration may have rejected it."""
    brokers, rest, dag = stack.kafka.brokers, patient_rest(stack), "orders_redrive"
    stop_aggregator(stack, rest)
    apply_topics(brokers, ORDERS)
    letters, repartition = ORDERS.topology.dead_letter_topic, f"{GROUP}-orders-products-quantities-repartition"
    offset = KafkaCluster(brokers).offsets("orders")[0].high_watermark
    key, value = order(1)
    headers = [("streamplan.reason", b"old"), ("streamplan.task", b"0_0"), ("streamplan.source.topic", b"orders")]
    headers += [("streamplan.source.partition", b"0"), ("streamplan.source.offset", b"%d" % offset)]
    producer = Producer({"bootstrap.servers": brokers.servers, **brokers.properties})
    producer.produce("orders", value, key, 0)
    producer.produce(letters, value, key, 0, headers=headers)
    assert producer.flush(120) == 0
    try:
        rest.wait_for_dag(dag, deadline_seconds=SECONDS)
        run = rest.trigger(dag, {"reason": "old"})
        assert "- 1 × `old`: processed again (0@" in asked(rest, run, dag, f"Re-drive dead letters of {GROUP}?")
        answer(rest, run, "Approve", dag)
        assert ended(rest, run, dag) == {"plan": "success", "approval": "success", "apply": "success"}
        written = read_committed(brokers.servers, repartition, brokers.properties)
        assert [message.value() for message in written if message.key() == b"1"][-1] == value  # of one partition
        mark = dict(read_committed(brokers.servers, letters, brokers.properties)[-1].headers())
        assert mark["streamplan.redriven.by"] == USER.encode()
        assert mark["streamplan.redriven.run"] == run.encode()
    finally:  # a later deployment counts the order, too
        reset = Resetter(ORDERS, brokers, stack.settings, print)
        reset.apply(reset.observe().written())


@pytest.mark.soak
def test_more_partitions_without_a_declaration_says_what_to_declare(stack: Stack) -> None:
    rest = patient_rest(stack)
    rest.wait_for_dag("orders_repartition", deadline_seconds=SECONDS)
    run = rest.trigger("orders_repartition")
    assert rest.wait("orders_repartition", run, deadline_seconds=SECONDS) == "failed"
    log = "".join(rest.task_log("orders_repartition", run, "plan"))
    assert "repartition_from={'orders-v2': 'orders'}" in log
