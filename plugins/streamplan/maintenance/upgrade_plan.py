"""What an upgrade does, and what its comparison found: values that people read, and that Airflow's tasks hand on.

An upgrade lets an application with a changed declaration take over from the application that runs. The two have
different application ids, so that neither touches the state of the other. The new one is the *candidate* until
it has the same input behind it: it writes to staging topics, and no aggregator of it starts. Then the two change places
in one moment, at the same offsets of the input. The old one keeps all that it has, so that it can take over again.

Which of the two runs stands in the metadata of their committed positions (:class:`~streamplan.model.generation
.Generation`). Nothing else holds the progress of an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

UPGRADED_ALONE = ("deploy", "reset", "repartition", "redrive")
"""DAGs of the pipeline with whose active runs an upgrade is refused: they work on the topics that are written."""


class Stage(StrEnum):
    """How far an upgrade is.

    ``NOT_BEGUN``: the new application has no positions. ``BESIDE``: it is the candidate. ``HALFWAY``: neither writes
    the outputs, because a switch has died; the old one has ended. ``DONE``: it has taken over.
    """

    NOT_BEGUN = "not begun"
    BESIDE = "beside"
    HALFWAY = "halfway"
    DONE = "done"


@dataclass(frozen=True)
class UpgradePlan:
    """What an upgrade has to do.

    Attributes:
        pipeline: The name of the pipeline.
        application_id: The application that takes over.
        upgrade_from: The application that runs.
        stage: How far it is.
        records: By source topic the most records that the old application has processed and the new one has not.
        staging: By topic that the topology writes its staging topic.
        missing: What the old application has read of the input, and the new one cannot read any more.
        notes: What a person should know.
        left_over: What was left in Kafka of an upgrade that is done.
    """

    pipeline: str
    application_id: str
    upgrade_from: str
    stage: Stage
    records: Mapping[str, int] = field(default_factory=dict)
    staging: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left_over: tuple[str, ...] = ()

    def lines(self) -> Iterable[str]:
        """Return the plan for people, as Markdown."""
        new, old = f"`{self.application_id}`", f"`{self.upgrade_from}`"
        if self.stage is Stage.DONE:
            yield f"Nothing to do: {new} has taken over from {old} (pipeline {self.pipeline})."
            if self.left_over:
                yield ""
                yield f"These parts of {old} and of the build are kept, so that {old} can take over again:"
                yield ""
                yield from (f"- {part}" for part in self.left_over)
            return
        yield f"Application {new} takes over from {old} (pipeline {self.pipeline})."
        yield ""
        if self.stage is Stage.HALFWAY:
            yield f"An earlier switch stopped halfway: {old} has ended. `switch` completes it."
            return
        if self.stage is Stage.BESIDE:
            yield "It was built before, and goes on from there."
        for topic, records in self.records.items():
            yield f"- `{topic}`: at most {records:,} records are to be read"
        for topic, staging in self.staging.items():
            yield f"- what it writes to `{topic}` goes to `{staging}` until it takes over"
        yield f"- then {old} ends at its last position, and {new} goes on there. {old} keeps all that it has"
        yield from (f"- {missing}: what was deleted is not in the new state" for missing in self.missing)
        yield from (f"- {note}" for note in self.notes)

    @property
    def text(self) -> str:
        """The plan for people, as Markdown."""
        return "\n".join(self.lines())


@dataclass(frozen=True)
class StoreComparison:
    """What the comparison of a store found.

    Attributes:
        store: The name of the store.
        left_out: Why it was not compared; empty where it was.
        is_same: Whether the two stores are known to mean the same.
        equal: How many keys have equal values.
        changed: How many keys were not compared, for they have changed since.
        different: How many keys have different values, or are in one of them alone.
        examples: Some of these, as people read them.
        has_totals: Whether it has results, and not only records that wait for others.
    """

    store: str
    left_out: str = ""
    is_same: bool = False
    equal: int = 0
    changed: int = 0
    different: int = 0
    examples: tuple[str, ...] = ()
    has_totals: bool = True

    def lines(self) -> Iterable[str]:
        """Return it for people, as Markdown."""
        if self.left_out:
            yield f"- store `{self.store}`: not compared, {self.left_out}"
            return
        text = f"- store `{self.store}`: {self.equal:,} keys are equal, {self.different:,} differ"
        if self.changed:
            text += f", {self.changed:,} have changed since and were not compared"
        if not self.is_same:
            text += ". Whether the two mean the same is not known: no checkpoint of the old one is here"
        yield text
        yield from (f"  - {example}" for example in self.examples)


@dataclass(frozen=True)
class Comparison:
    """What the comparison of the stores of two applications found.

    Attributes:
        stores: By store what was found.
        is_final: Whether it was made where the old application has ended, so that no key is left out.
        left_out: Why nothing was compared; empty where it was.
        missing: What the old application has read of the input, and the new one could not read any more.
    """

    stores: tuple[StoreComparison, ...]
    is_final: bool
    left_out: str = ""
    missing: tuple[str, ...] = ()

    @property
    def differing(self) -> Sequence[StoreComparison]:
        """The stores that mean the same and differ."""
        return [store for store in self.stores if store.is_same and store.different]

    @property
    def incomplete(self) -> Sequence[StoreComparison]:
        """The stores in which records are missing that were deleted, as far as the comparison does not say otherwise.

        A store that means the same, and has the same values, needs nothing of what was deleted.
        """
        return [store for store in self.stores if self.missing and store.has_totals and not store.is_same]

    def lines(self) -> Iterable[str]:
        """Return it for people, as Markdown."""
        if self.left_out:
            yield f"The stores were not compared: {self.left_out}. The switch compares them."
            return
        when = "where the old application has ended" if self.is_final else "while the old application goes on"
        yield f"The stores were compared {when}:"
        yield ""
        for store in self.stores:
            yield from store.lines()
        if not self.stores:
            yield "- the declaration has no store that could be compared"
        if incomplete := ", ".join(f"`{store.store}`" for store in self.incomplete):
            yield ""
            yield f"Records are missing in {incomplete}, because the input is not whole any more:"
            yield ""
            yield from (f"- {missing}" for missing in self.missing)
        if not self.is_final and (self.differing or self.incomplete):
            yield ""
            yield "The switch refuses that, unless it is told to accept differences (accept_differences)."

    @property
    def text(self) -> str:
        """It for people, as Markdown."""
        return "\n".join(self.lines())
