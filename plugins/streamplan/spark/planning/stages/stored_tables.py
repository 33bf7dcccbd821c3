"""Updates of a table that is a result, for a state that has the rows of the table, too."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.model.operations import function_of
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.spark.planning.compiled_plan import is_deterministic
from streamplan.spark.planning.old_values import stored_table
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages.stage_plan import StoredState


def with_values(updates: RecordFrame) -> RecordFrame:
    """Return updates of a table whose ``record.value`` is null where they delete their key, and empty elsewhere."""
    return updates.with_record(F.col("record").withField("value", F.when(updates.has_value, F.lit(b""))))


def require_deterministic(subtopology: Subtopology, table: Processor, updates: RecordFrame) -> None:
    """Refuse what need not give the same again: it is written into the changelog of a table, and computed for a join.

    Args:
        subtopology: That has the table.
        table: Writes the store.
        updates: The updates of the table.

    Raises:
        Refused: There is such a function, or such an expression, before the table.
    """
    for node in subtopology.upstream_of([table]):
        function = function_of(node.operation) if isinstance(node, Processor) else None
        if function is not None and not function.deterministic:
            raise Refused(
                f"the table that is joined is made of what {function.name} returns, which need not be the same",
                remedy="Put repartition(name='…') behind the function.",
            )
    if not is_deterministic(updates.data):
        raise Refused(
            "the table that is joined is made of what an expression makes, which need not be the same again",
            remedy="Put repartition(name='…') behind the expression.",
        )


def nothing_of(frame: RecordFrame) -> RecordFrame:
    """Return no record, with the operators that give the records: a checkpoint knows them by their order."""
    return replace(frame, data=frame.data.where("record.partition < 0"))


def stored_updates(
    stored: StoredState, planner: OperatorPlanner, table: Processor, updates: RecordFrame
) -> RecordFrame:
    """Return what the changelog of a table has as updates, with the operators that give the updates.

    Args:
        stored: What the stores hold.
        planner: Has planned the table.
        table: Writes the store.
        updates: The updates of the table.
    """
    known = nothing_of(updates)
    written = planner.written[planner.subtopology.output_numbers[table.name]]
    frame = with_values(stored_table(table, stored.rows(table), known, written))
    columns = [*(F.col(f"`{name}`") for name in known.fields), F.col("record")]
    rows = frame.data.select(*columns).unionByName(known.data.select(*columns), allowMissingColumns=True)
    return replace(frame, data=rows)
