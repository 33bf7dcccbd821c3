"""The rounds: break, wait until all has come back by itself, compare with the truth."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from random import Random

from confluent_kafka import KafkaException
from streamplan.errors import StreamplanError

from tests.chaos.faults import hold
from tests.chaos.report import Report, RoundResult
from tests.chaos.resources import Resources
from tests.chaos.schedule import Round
from tests.chaos.system import BACK_SECONDS, System
from tests.chaos.truth import Violation
from tests.chaos.verification import Verification
from tests.chaos.waiting import NotSettled, wait_for


class Failed(Exception):
    """The suite has found something; the report has it."""


def run(
    system: System, rounds: Iterable[Round], report: Report, resources: Resources, say: Callable[[str], None]
) -> None:
    """All rounds and the end. Raises :class:`Failed` at the first fault that did damage."""
    verification = Verification(system.servers)
    began = time.monotonic()
    try:
        verification.await_processed()
        for planned in rounds:
            result = RoundResult(planned.number, [fault.fault.name for fault in planned.faults])
            report.rounds.append(result)
            try:
                _round(system, verification, planned, result)
            except (Violation, NotSettled, StreamplanError, KafkaException, TimeoutError) as error:
                report.failure = result.failure = _told(error)
                result.complete = True
                raise Failed(f"round {planned.number} ({planned.name}): {_text(error)}") from error
            finally:
                result.orders = verification.source.orders
            resources.measure(planned.number)
            say(
                f"[{time.monotonic() - began:6.0f} s] round {planned.number:3}: {planned.name}: recovered in "
                f"{result.recovered or 0:.1f} s; supervised {result.settled:.0f} s, verified {result.verified:.0f} s, "
                f"checked {result.checked:.0f} s, in all {result.seconds:.0f} s; {result.orders:,} orders"
            )
        try:
            _end(system, verification, report, say)
        except (Violation, NotSettled, StreamplanError, KafkaException, TimeoutError) as error:
            report.failure = _told(error)
            raise Failed(f"after the last round: {_text(error)}") from error
    finally:
        verification.close()


def _round(system: System, verification: Verification, planned: Round, result: RoundResult) -> None:
    began = time.monotonic()
    system.send_bad(planned.bad_records)
    for fault in planned.faults:
        hold(fault.pause)
        result.notes.append(fault.fault.apply(system, Random(fault.seed)))
    ended = time.monotonic()
    verification.await_processed()
    result.recovered = time.monotonic() - ended
    settling = time.monotonic()
    wait_for("exactly one aggregator, known to Airflow", system.one_aggregator, BACK_SECONDS)
    wait_for("exactly one producer", system.one_producer, BACK_SECONDS)
    verifying = time.monotonic()
    verification.look()
    checking = time.monotonic()
    system.await_healthy()
    system.readers.await_answers()
    ended = time.monotonic()
    result.settled, result.verified, result.checked = verifying - settling, checking - verifying, ended - checking
    result.seconds = ended - began
    result.complete = True


def _end(system: System, verification: Verification, report: Report, say: Callable[[str], None]) -> None:
    """With the producer stopped, everything must be there to the last record, and in the state store too."""
    system.stop_producer()
    verification.await_processed()
    verification.look(stopped=True)
    if verification.source.rejected != system.bad_sent:
        raise Violation("wrong", "bad records in topic orders", system.bad_sent, verification.source.rejected)
    store = {key.encode(): count for key, count in system.state_store().items()}
    if store != verification.changelog.last:
        raise Violation("wrong", "the state store", verification.changelog.last, store)
    wait_for("the service of queries has the totals", lambda: _unlike(system, verification), BACK_SECONDS)
    system.check_by_airflow()  # last: a green one purges the repartition topic
    report.final = {
        "orders": verification.source.orders,
        "repartitioned": verification.repartition.records,
        "changelog_updates": verification.changelog.records,
        "dead_letters": verification.dead_letters.records,
        "state_store": {key.decode(): count for key, count in store.items()},
    }
    say(f"all verified: {json.dumps(report.final)}")


def _unlike(system: System, verification: Verification) -> str:
    found = system.readers.totals()
    return "" if found == verification.changelog.last else f"{found} in place of {verification.changelog.last}"


def _told(error: Exception) -> dict[str, str]:
    if isinstance(error, Violation):
        return {"kind": error.kind, "where": error.where, "expected": error.expected, "observed": error.observed}
    return {"kind": type(error).__name__, "where": "", "expected": "", "observed": str(error)}


def _text(error: Exception) -> str:
    """A time-out of a future has no text."""
    return str(error) or type(error).__name__
