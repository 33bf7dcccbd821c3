"""The order in which operations were declared, as far as the numbers in names tell it.

Each operation draws its numbers when it is declared, also for nodes that have a name of the application's own. So an
operation whose numbers are not shown stands where numbers are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from math import inf

from streamplan.errors import Refused
from streamplan.importing.operations import Operation

_EFFORT = 5_000_000
"""Bounds the search: with 100 operations some 500 choices are taken back, with 1,000 only a few."""


def in_order_of_declaration(operations: Sequence[Operation]) -> list[Operation]:
    """Order operations so that each draws the numbers that it has in the description.

    An operation comes behind those that it goes on from. Sub-topologies are numbered in the order in which their first
    sources are declared. An operation without a number fills a gap: first the one that has to be there the soonest.

    Args:
        operations: The operations of a description.
    """
    makers = {operation.node.name: operation for operation in operations}
    try:
        sorter = TopologicalSorter({name: [on for on in _before(op) if on in makers] for name, op in makers.items()})
        names = list(sorter.static_order())
    except CycleError as error:
        circle = ", ".join(error.args[1])
        raise Refused("the topology", expected="no table that depends on itself", observed=circle) from error
    sorted_operations = [makers[name] for name in names]
    latest = _latest_ends(sorted_operations)
    found = _arrange(sorted_operations, latest, in_time=True)
    return found or _arrange(sorted_operations, latest, in_time=False) or sorted_operations


def _arrange(operations: Sequence[Operation], latest: Mapping[str, float], *, in_time: bool) -> list[Operation] | None:
    """Choose one operation after the other, and go back where the gaps do not suffice for the others.

    Args:
        operations: Each behind those that it goes on from.
        latest: By node the number before which an operation has to be declared.
        in_time: Whether each has to be in time. If not, nothing is tried twice.

    Returns:
        None if there is no such order, or if it takes too long to find.
    """
    waiting, ordered, numbers = [*operations], list[Operation](), [0]
    choices: list[Iterator[Operation]] = []
    for _ in range(len(waiting) + 1 + _EFFORT // (len(waiting) + 1) ** 2):
        if not waiting:
            return ordered
        if len(choices) == len(ordered):
            is_lost = in_time and not _has_room(waiting, numbers[-1], latest)
            found = [] if is_lost else _choices(waiting, ordered, numbers[-1], latest, in_time)
            choices.append(iter(found))
        for chosen in choices[-1]:
            end = max(numbers[-1], chosen.start or 0) + len(chosen.numbers)
            if not in_time or (numbers[-1] <= _start(chosen) and end <= latest[chosen.node.name]):
                waiting.remove(chosen)
                ordered.append(chosen)
                numbers.append(end)
                break
        else:
            if not ordered:
                return None
            choices.pop()
            waiting.append(ordered.pop())
            numbers.pop()
    return None


def _has_room(waiting: Sequence[Operation], number: int, latest: Mapping[str, float]) -> bool:
    """Whether the operations that have to be declared before a number can have all their numbers before it."""
    needed = 0.0
    for operation in sorted(waiting, key=lambda op: min(latest[op.node.name], _start(op) + len(op.numbers))):
        needed += len(operation.numbers)
        if number + needed > min(latest[operation.node.name], _start(operation) + len(operation.numbers)):
            return False
    return True


def _choices(
    waiting: Sequence[Operation], ordered: Sequence[Operation], number: int, latest: Mapping[str, float], in_time: bool
) -> list[Operation]:
    """The operations that can be declared next, when ``number`` is the next number: the likeliest first."""
    missing = {operation.node.name for operation in waiting}
    ready = [operation for operation in waiting if missing.isdisjoint(_before(operation))]
    following = min((op for op in waiting if op.start is not None), key=_start, default=None)
    start = inf if following is None else _start(following)
    # A topic of several aggregates stands where the last one of them is declared (``addGraphNode``).
    unfinished = Counter(op.repartition for op in waiting if _has_shared_topic(op))
    begun = {None, *(_begins(op) for op in ordered if not unfinished[op.repartition])}
    first_unbegun = min(
        (part for op in waiting if (part := _begins(op)) is not None and part not in begun), default=None
    )

    def is_early(operation: Operation) -> bool:
        return _begins(operation) not in (first_unbegun, *begun) and unfinished[operation.repartition] < 2

    def rank(operation: Operation) -> tuple[float, ...]:
        last = latest[operation.node.name]
        if operation.start is None and number + len(operation.numbers) <= start:
            goes_on = bool(ordered) and operation.on[:1] == (ordered[-1].node.name,)
            return (2 if is_early(operation) and (last > start or following is None) else 0), last, not goes_on
        if operation is following:
            return (1,)
        return 3 if operation.start is None and last <= start else 4, _start(operation), last

    return sorted((op for op in ready if not (in_time and is_early(op))), key=rank)


def _before(operation: Operation) -> tuple[str, ...]:
    return *operation.on, *operation.behind


def _start(operation: Operation) -> float:
    return inf if operation.start is None else operation.start


def _begins(operation: Operation) -> int | None:
    """The sub-topology to which an operation adds a source."""
    adds = operation.word in ("stream", "table", "global_table") or operation.repartition is not None
    return operation.node.subtopology if adds else None


def _has_shared_topic(operation: Operation) -> bool:
    return (
        operation.grouping is not None and operation.repartition is not None and len(operation.repartition.readers) > 1
    )


def _latest_ends(operations: Sequence[Operation]) -> dict[str, float]:
    """By node the number before which an operation has to be declared, so that what depends on it has its numbers.

    Args:
        operations: Each behind those that it goes on from.
    """
    latest = {operation.node.name: inf for operation in operations}
    sources: dict[tuple[int, object], float] = {}
    for operation in operations:
        if (part := _begins(operation)) is not None:
            source = part, operation.repartition if _has_shared_topic(operation) else operation.node.name
            sources[source] = max(sources.get(source, 0), _start(operation))
    starts = {part: min(start for (of, _), start in sources.items() if of == part) for part, _ in sources}
    for part, own in starts.items():
        bound = min((start for other, start in starts.items() if other > part), default=inf)
        unnumbered = [op for op in operations if _begins(op) == part and op.start is None]
        first = unnumbered[:1] if own > bound else []
        for operation in (*first, *filter(_has_shared_topic, unnumbered)):
            latest[operation.node.name] = bound
    for operation in reversed(operations):
        own_latest = latest[operation.node.name]
        begin = min(_start(operation), own_latest - len(operation.numbers))
        for on in _before(operation):
            if on in latest:
                latest[on] = min(latest[on], begin)
    return latest
