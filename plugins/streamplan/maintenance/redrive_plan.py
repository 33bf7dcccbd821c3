"""The plan of a re-drive: which dead letters are processed again, what becomes of each, and which cannot be.

A re-drive processes the original record of a dead letter once more, under the declaration in force. It writes nothing
to the source topic, because a copy there would be a second record of the source: each recount and each reset would
count it twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from streamplan.errors import Refused
from streamplan.model.dead_letters import LetterPlace, Origin, Redrive
from streamplan.model.functions import REJECT
from streamplan.model.operations import MAKES_SEVERAL, Aggregate, Count, PeekFunction, Split
from streamplan.model.pipeline import Pipeline
from streamplan.model.processor_topology import Sink, Subtopology
from streamplan.model.stages import stage_of

REDRIVE_ALONE = ("aggregator", "deploy", "reset", "repartition")
"""A re-drive is refused while a run of one of these DAGs is active; a producer may go on."""

_NAMED = 5
"""At most this many letters of a group are named."""

BY_RESET = "a reset processes it again"


class Verdict(StrEnum):
    """What a re-drive does with a dead letter."""

    PROCESSED = "processed again"
    LEFT_OUT = "left out by the declaration, nothing is written"
    REJECTED = "rejected again, it stays a dead letter"
    REFUSED = "refused"

    @property
    def is_done(self) -> bool:
        """Whether its record is dealt with, so that it gets a mark."""
        return self in (Verdict.PROCESSED, Verdict.LEFT_OUT)


@dataclass(frozen=True)
class Letter:
    """A dead letter, without its record.

    Attributes:
        place: Where it lies in the dead-letter topic.
        subtopology: The number of the sub-topology that met the record; None where no header says it.
        origin: Where the record lies; None where no header says it.
        reason: Why it could not be processed.
        is_whole: Whether nothing was left out of the record.
        size: The bytes of key and value.
        redriven: Who had the record processed again; None for an open dead letter.
    """

    place: LetterPlace
    subtopology: int | None
    origin: Origin | None
    reason: str
    is_whole: bool = True
    size: int = 0
    redriven: Redrive | None = None

    @property
    def record(self) -> tuple[int | None, Origin | None]:
        """What is processed again at most once: a record, as its sub-topology sees it."""
        return self.subtopology, self.origin


@dataclass(frozen=True)
class Judged:
    """A dead letter with what a re-drive does with it. ``said`` is the new reason, or why it is refused."""

    letter: Letter
    verdict: Verdict
    said: str = ""


@dataclass(frozen=True)
class Choice:
    """Which dead letters are to be processed again: all that are open, those of a reason, or single ones."""

    reason: str | None = None
    places: tuple[LetterPlace, ...] = ()

    @classmethod
    def of(cls, reason: str | None, places: Iterable[str]) -> Choice:
        """Return the choice that a person wrote.

        Args:
            reason: A reason as it stands in the dead letters; None or empty for all.
            places: Dead letters, each ``<partition>@<offset>``; none for all.

        Raises:
            Refused: A text names no dead letter, or both a reason and dead letters are given.
        """
        parsed = []
        for text in places:
            place = LetterPlace.parse(text)
            if place is None:
                raise Refused("the dead letter", expected="PARTITION@OFFSET, for example 0@17", observed=text)
            parsed.append(place)
        if reason and parsed:
            raise Refused("the dead letters", expected="a reason, or single dead letters", observed="both")
        return cls(reason or None, tuple(dict.fromkeys(parsed)))

    def select(self, letters: Sequence[Letter]) -> list[Letter]:
        """Return the chosen dead letters, in the order in which their records are processed.

        Raises:
            Refused: A dead letter that was named is not there.
        """
        if self.places:
            by_place = {letter.place: letter for letter in letters}
            if missing := [str(place) for place in self.places if place not in by_place]:
                raise Refused(
                    "the dead letters",
                    expected="places at which a dead letter is, each PARTITION@OFFSET",
                    observed=f"no dead letter at {', '.join(missing)}",
                    remedy="`python -m streamplan letters` shows the places.",
                )
            chosen = [by_place[place] for place in self.places]
        else:
            chosen = [letter for letter in letters if letter.redriven is None and self.reason in (None, letter.reason)]
        return sorted(chosen, key=_in_order)


def _in_order(letter: Letter) -> tuple[Any, ...]:
    number = -1 if letter.subtopology is None else letter.subtopology
    return number, letter.origin or Origin("", 0, 0), letter.place


def refusal(letter: Letter, pipeline: Pipeline) -> str:
    """Return why a dead letter cannot be processed again, whatever is in its record; empty where it can.

    Args:
        pipeline: The declaration in force.
    """
    if letter.redriven is not None:
        return f"{letter.redriven.by} re-drove it at {letter.redriven.at}"
    if letter.origin is None or letter.subtopology is None:
        return f"no header says where its record is: {BY_RESET}"
    subtopologies = {each.id: each for each in pipeline.topology.subtopologies}
    subtopology = subtopologies.get(letter.subtopology)
    if subtopology is None or letter.origin.topic not in pipeline.source_topics(subtopology):
        return f"no sub-topology {letter.subtopology} of the declaration reads {letter.origin.topic}: {BY_RESET}"
    if why := needs_other_records(subtopology):
        return why
    if not has_one_result(subtopology) and may_have_results(letter.reason):
        return (
            f"sub-topology {subtopology.id} makes more than one result of a record, and which of them were written "
            f"cannot be told: {BY_RESET}"
        )
    return ""


def needs_other_records(subtopology: Subtopology) -> str:
    """Return why what a sub-topology makes of a record depends on other records; empty where it does not."""
    why = stage_of(subtopology).needs_other_records
    return f"sub-topology {subtopology.id} {why}: {BY_RESET}" if why else ""


def possible_redrive(subtopology: Subtopology) -> str:
    """Return whether a re-drive can process dead letters of a sub-topology again, and why not, for people."""
    if why := stage_of(subtopology).needs_other_records:
        return f"no re-drive, because it {why}: {BY_RESET}"
    if not has_one_result(subtopology):
        return (
            "a re-drive of records that could not be read. One that an operation rejected may have other results: "
            f"{BY_RESET}"
        )
    return "a re-drive"


def has_one_result(subtopology: Subtopology) -> bool:
    """Whether each record has one result at most. Then a record with a dead letter has no other result.

    One for which the function of a ``peek`` has raised is passed all the same.
    """
    split = {node.name for node in subtopology.processors if isinstance(node.operation, Split)}
    nodes = (node for node in subtopology.nodes if not (isinstance(node, Sink) and node.is_further))
    successors = Counter(
        before for node in nodes for before in subtopology.predecessors[node.name] if before not in split
    )
    several = any(
        isinstance(operation, MAKES_SEVERAL)
        or (isinstance(operation, PeekFunction) and operation.function.on_error == REJECT)
        for operation in subtopology.operations
    )
    return not several and all(number == 1 for number in successors.values())


_OF_SINKS = (
    "key, value and headers are larger than ",
    "the topic ",
    "the value cannot be written: ",
    "a moment of the value is not in the years ",
)
"""How the reasons begin for which a sink rejects a record. Another sink may have written it."""


def may_have_results(reason: str) -> bool:
    """Whether a record that was rejected for a reason may have other results: it was not rejected when it was read.

    These are the reasons of operations: of ``operators.py`` and ``written_values.py`` of ``spark/planning``, and what a
    Python function raised or returned (``python_functions.py``). A reader may have the same.
    """
    return (
        reason in ("", "the key is null", "the value is null")
        or reason.endswith(" is missing")
        or reason.startswith(_OF_SINKS)
        or " raised " in reason
        or " returned " in reason
    )


def without_repeated(letters: Iterable[Letter]) -> tuple[list[Letter], list[Judged]]:
    """Divide dead letters into the first of each record, and further ones, which are refused."""
    first: dict[tuple[int | None, Origin | None], Letter] = {}
    repeated = []
    for letter in letters:
        if letter.origin is not None and first.setdefault(letter.record, letter) is not letter:
            said = f"{first[letter.record].place} is about the same record"
            repeated.append(Judged(letter, Verdict.REFUSED, said))
    again = {each.letter.place for each in repeated}
    return [letter for letter in letters if letter.place not in again], repeated


@dataclass(frozen=True)
class Group:
    """Dead letters of one reason with which a re-drive does the same. ``some`` are the places of the first of them."""

    reason: str
    verdict: Verdict
    said: str
    letters: int
    some: tuple[str, ...]


@dataclass(frozen=True)
class RedrivePlan:
    """What a re-drive would do.

    Attributes:
        pipeline: The name of the pipeline.
        application_id: The application id.
        choice: Which dead letters were chosen.
        groups: The chosen dead letters, by reason and by what is done with them.
        notes: What else a person should know.
    """

    pipeline: str
    application_id: str
    choice: Choice
    groups: tuple[Group, ...]
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> int:
        """The number of chosen dead letters."""
        return sum(group.letters for group in self.groups)

    @property
    def done(self) -> int:
        """The number of those whose records are dealt with."""
        return sum(group.letters for group in self.groups if group.verdict.is_done)

    @property
    def empty(self) -> bool:
        """Whether no chosen dead letter can be processed again."""
        return not self.done

    def lines(self) -> Iterable[str]:
        """Return the plan for people, as Markdown."""
        yield f"Re-drive of dead letters of application `{self.application_id}` (pipeline {self.pipeline})."
        yield ""
        if not self.groups:
            yield "No open dead letter is chosen: there is nothing to do."
            return
        yield f"{self.chosen:,} chosen, {self.done:,} of them are dealt with:"
        yield ""
        for group in self.groups:
            some = ", ".join(group.some) + (", …" if group.letters > len(group.some) else "")
            said = f": {group.said}" if group.said else ""
            yield f"- {group.letters:,} × `{group.reason or 'no reason is given'}`: {group.verdict}{said} ({some})"
        if self.done:
            yield ""
            yield from self.notes

    @property
    def text(self) -> str:
        """The plan for people, as Markdown."""
        return "\n".join(self.lines())

    def more_than(self, approved: RedrivePlan) -> list[str]:
        """List what would be processed again and was not approved. Empty after a re-drive that died halfway."""
        allowed = approved._done_by_reason()
        return [
            f"{number:,} × {reason}, not {allowed.get(reason, 0):,}"
            for reason, number in self._done_by_reason().items()
            if number > allowed.get(reason, 0)
        ]

    def _done_by_reason(self) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for group in self.groups:
            if group.verdict.is_done:
                counts[group.reason] += group.letters
        return counts

    def written(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it."""
        return {
            "pipeline": self.pipeline,
            "application_id": self.application_id,
            "reason": self.choice.reason,
            "letters": [str(place) for place in self.choice.places],
            "groups": [
                [group.reason, group.verdict.value, group.said, group.letters, list(group.some)]
                for group in self.groups
            ],
            "notes": list(self.notes),
        }

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> RedrivePlan:
        """Return the plan of which :meth:`written` returned this."""
        groups = tuple(
            Group(reason, Verdict(verdict), said, letters, tuple(some))
            for reason, verdict, said, letters, some in written["groups"]
        )
        choice = Choice.of(written["reason"], written["letters"])
        return cls(written["pipeline"], written["application_id"], choice, groups, tuple(written["notes"]))


def plan_redrive(pipeline: Pipeline, choice: Choice, judged: Collection[Judged]) -> RedrivePlan:
    """Return the plan for dead letters that were judged.

    Args:
        pipeline: The declaration in force.
        choice: Which were chosen.
        judged: The chosen ones.
    """
    groups: dict[tuple[str, Verdict, str], list[Letter]] = {}
    for each in judged:
        groups.setdefault((each.letter.reason, each.verdict, each.said), []).append(each.letter)
    return RedrivePlan(
        pipeline.name,
        pipeline.topology.application_id,
        choice,
        tuple(
            Group(*same, len(letters), tuple(str(letter.place) for letter in letters[:_NAMED]))
            for same, letters in sorted(groups.items(), key=lambda group: -len(group[1]))
        ),
        tuple(_notes(pipeline)),
    )


def _notes(pipeline: Pipeline) -> Iterable[str]:
    yield "Their results are written after the results of later records. The committed positions do not move."
    windowed = [
        node.store
        for subtopology in pipeline.topology.subtopologies
        for node in subtopology.processors
        if isinstance(node.operation, Count | Aggregate) and node.operation.window is not None
    ]
    if windowed:
        yield (
            f"The windows of {', '.join(str(store) for store in windowed)} leave out a record that comes after their "
            "grace period, as they do with any late record. A reset counts it."
        )
