"""What the command ``check`` prints: a table for people, or one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckResult, NotApplicable, Observation, Outcome, sentence
from streamplan.cli.output import table_console
from streamplan.cli.tables import checks_table
from streamplan.kafka.brokers import Brokers
from streamplan.model.topics import TopicRole

_WORDS = {
    TopicRole.SOURCE: "source",
    TopicRole.REPARTITION: "repartition topic",
    TopicRole.CHANGELOG: "changelog",
    TopicRole.SINK: "sink",
}


@dataclass
class CheckReport:
    """The results of all checks of one application.

    Attributes:
        brokers: Where the application runs.
        name: What the user called it.
        application: What was found; None where it was not found.
        results: One result for each check that ran.
        left_out: The checks that have nothing to look at in this application.
        error: Why no check ran; else empty.
    """

    brokers: Brokers
    name: str
    application: Application | None = None
    results: list[CheckResult] = field(default_factory=list)
    left_out: Mapping[str, NotApplicable] = field(default_factory=dict)
    error: str = ""

    @property
    def outcome(self) -> Outcome:
        """Failed where a check failed; passed only where every check passed."""
        outcomes = {result.outcome for result in self.results}
        if Outcome.FAILED in outcomes:
            return Outcome.FAILED
        return Outcome.PASSED if outcomes == {Outcome.PASSED} and not self.error else Outcome.COULD_NOT_LOOK

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``cli.check`` describes."""
        specs = self.application.topics if self.application else ()
        return {
            "application_id": self.application.application_id if self.application else None,
            "name": self.name,
            "bootstrap_servers": str(self.brokers),
            "outcome": str(self.outcome),
            "reason": self.error,
            "topics": {spec.name: {"role": str(spec.role), "partitions": spec.partitions} for spec in specs},
            "notes": list(self.application.notes) if self.application else [],
            "checks": [
                {
                    "check": result.check,
                    "outcome": str(result.outcome),
                    "reason": result.reason,
                    "at": result.at,
                    "advice": list(result.advice),
                    "observations": [_row_as_json(row) for row in result.observations],
                }
                for result in self.results
            ],
            "left_out": {name: inapplicable.reason for name, inapplicable in self.left_out.items()},
        }

    def show(self) -> None:
        """Print a table of all checks, then each wrong row, the notes and the error."""
        console = table_console()
        if self.application:
            console.print(_heading(self.application), style="bold", soft_wrap=True)
            table = checks_table(self.results)
            for name, inapplicable in self.left_out.items():
                reason = ": ".join(filter(None, (inapplicable.reason, inapplicable.remedy)))
                table.add_row(name, "left out", reason, style="dim")
            console.print(table)
        for result in self.results:
            for row in result.observations:
                if not row.agrees:
                    console.print(f"{result.check}: {sentence(row)}", style="red", soft_wrap=True)
            for advice in result.advice:
                console.print(f"{result.check}: next: {advice}", soft_wrap=True)
            for row in result.not_judged:
                console.print(f"{result.check}: {row.subject}: not judged: {row.where}", style="yellow", soft_wrap=True)
        for note in self.application.notes if self.application else ():
            console.print(f"Note: {note}", style="dim", soft_wrap=True)
        if self.error:
            console.print(f"Could not look: {self.error}", style="yellow", soft_wrap=True)


def _row_as_json(row: Observation) -> dict[str, Any]:
    content = asdict(row) | {"agrees": row.agrees}
    del content["topic"], content["advice"]  # what to do next stands once, at the check
    return content


def _heading(application: Application) -> str:
    """Return ``my-app: 1 source, 1 repartition topic, 1 changelog``."""
    counts = {word: len(application.with_role(role)) for role, word in _WORDS.items()}
    listed = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)
    return f"{application.application_id}: {listed}"
