"""The records that aggregates take, of both kinds (:mod:`.aggregate`, :mod:`.window`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.model.operations import (
    Aggregate,
    AggregateWindowsFunction,
    Cogroup,
    CogroupFunctionSide,
    CogroupSide,
    Count,
    Reduce,
)
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.aggregate import has_custom_windows, has_sliding_windows
from streamplan.model.windows import SessionWindows
from streamplan.spark.planning.aggregation import cogrouped, numbered_values
from streamplan.spark.planning.operators import OperatorPlanner, storing_faults
from streamplan.spark.planning.output_rows import dead_letter_rows
from streamplan.spark.planning.records import RecordFrame, rejecting_binary_keys
from streamplan.spark.sink.spec import NULL_KEY


def aggregation_inputs(
    planner: OperatorPlanner, nodes: Sequence[Processor], *, by_task: bool = False
) -> dict[str, RecordFrame]:
    """Plan what comes before aggregates.

    Args:
        planner: Of the sub-topology.
        nodes: The aggregates.
        by_task: Whether Python is given the keys of the records.

    Returns:
        The records that each aggregate takes, by its name.
    """
    planner.plan_before(nodes)
    return {node.name: grouped_records(planner, node, planner.inputs_of(node), by_task=by_task) for node in nodes}


def cogroup_side(planner: OperatorPlanner, node: Processor, frame: RecordFrame) -> RecordFrame:
    """Return what the records of one of several grouped streams give to the aggregate.

    Args:
        planner: Of the sub-topology.
        node: Takes the records of the stream.
        frame: The records.

    Raises:
        Refused: The node is no part of an aggregate.
    """
    if not isinstance(node.operation, CogroupSide):
        raise Refused(f"no query is known for {type(node.operation).__name__}")
    if isinstance(node.operation, CogroupFunctionSide):
        return numbered_values(grouped_records(planner, node, [frame], by_task=True), node.operation.number)
    of_sessions = isinstance(node.operation.window, SessionWindows)
    by_task = of_sessions or has_sliding_windows(node) or has_custom_windows(node)
    return grouped_records(planner, node, [frame], by_task=by_task).select(node.operation.arguments)


def grouped_records(
    planner: OperatorPlanner, node: Processor, frames: Sequence[RecordFrame], *, by_task: bool
) -> RecordFrame:
    """Return the records that can be aggregated. The others end here, once for all aggregates of a grouping.

    A windowed aggregate also takes null values, as ``KStreamWindowAggregate`` does, and ``KStreamAggregate`` and
    ``KStreamSlidingWindowAggregate`` do not.

    Args:
        planner: Of the sub-topology.
        node: The aggregate, or what takes the records of one of the streams that are aggregated together.
        frames: The records of the nodes before it.
        by_task: As for :func:`aggregation_inputs`.
    """
    if isinstance(node.operation, Cogroup):
        return cogrouped(frames)  # the processors before it have left out the others
    (frame,) = frames
    by_functions = isinstance(node.operation, AggregateWindowsFunction | CogroupFunctionSide)
    if isinstance(node.operation, Reduce) or by_functions:
        frame = frame.with_fields
    if isinstance(node.operation, Aggregate | CogroupSide) and not by_functions:
        columns = node.operation.columns  # so that Spark's error quotes the expression as it was declared
        frame.data.agg(*(F.expr(f"{column.function}({column.arguments})") for column in columns))
    if by_task:
        frame = rejecting_binary_keys(frame)
    (predecessor,) = planner.subtopology.predecessors[node.name]
    faults: list[tuple[Column, str]] = []
    if not frame.key_not_null:
        faults.append((F.col("record.key").isNull(), NULL_KEY))
    if not frame.as_in_internal_topic and (frame.value_is_raw or _values_are_stored(planner, predecessor)):
        faults += storing_faults(frame)
    for condition, reason in faults:
        if predecessor in planner.grouped:
            frame = replace(frame, data=frame.data.where(~condition))
        else:
            frame = frame.rejecting(condition, reason)
    planner.grouped.add(predecessor)
    if not frame.no_rejects:
        planner.write(dead_letter_rows(frame.rejected()))
    return frame.accepted() if takes_null_values(node) else frame.accepted().with_value()


def takes_null_values(node: Processor) -> bool:
    """Return whether an aggregate takes records with a null value, see :func:`grouped_records`."""
    is_windowed = isinstance(node.operation, Count | Aggregate | CogroupSide) and node.operation.window is not None
    return is_windowed and not has_sliding_windows(node)


def _values_are_stored(planner: OperatorPlanner, grouped: str) -> bool:
    """Whether an aggregate of a node's records stores their values as they are."""
    reduced = planner.subtopology.processors_with(Reduce)
    return any(grouped in planner.subtopology.predecessors[node.name] for node in reduced)
