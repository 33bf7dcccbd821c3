"""Updates of a table that is a result, for a state that has the rows of the table, too."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from streamplan.model.processor_topology import Processor
from streamplan.spark.planning.old_values import stored_table
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages.stage_plan import StoredState


def with_values(updates: RecordFrame) -> RecordFrame:
    """Return updates of a table whose ``record.value`` is null where they delete their key, and empty elsewhere."""
    return updates.with_record(F.col("record").withField("value", F.when(updates.has_value, F.lit(b""))))


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
