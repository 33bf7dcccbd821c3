"""How Spark plans each kind of state (:mod:`streamplan.model.stages`), one kind in each module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamplan.model.processor_topology import Subtopology
from streamplan.model.stages import passing_by, stage_of
from streamplan.model.stages.aggregate import AggregateStage
from streamplan.model.stages.chain import StageChain
from streamplan.model.stages.foreign_key import ForeignKeyStage, ResultForeignKeyStage
from streamplan.model.stages.look_up import LookUpInResultStage, LookUpStage, ResultLookUpStage
from streamplan.model.stages.old_values import OldValuesStage
from streamplan.model.stages.process import ProcessStage
from streamplan.model.stages.process_stores import ProcessStoresStage
from streamplan.model.stages.stage import Stage, StatelessStage
from streamplan.model.stages.stream_join import StreamJoinStage
from streamplan.model.stages.table_join import ResultTableJoinStage, TableJoinStage
from streamplan.model.stages.task_aggregate import TaskAggregateStage
from streamplan.model.stages.window import WindowStage
from streamplan.spark.planning.stages.aggregate import AggregatePlan
from streamplan.spark.planning.stages.chain import ChainPlan
from streamplan.spark.planning.stages.foreign_key import ForeignKeyPlan, ResultForeignKeyPlan
from streamplan.spark.planning.stages.look_up import LookUpInResultPlan, LookUpPlan, ResultLookUpPlan
from streamplan.spark.planning.stages.old_values import OldValuesPlan
from streamplan.spark.planning.stages.process import ProcessPlan
from streamplan.spark.planning.stages.process_stores import ProcessStoresPlan
from streamplan.spark.planning.stages.stage_plan import OperatorPlan, StagePlan
from streamplan.spark.planning.stages.stateless import StatelessPlan
from streamplan.spark.planning.stages.stream_join import StreamJoinPlan
from streamplan.spark.planning.stages.table_join import ResultTableJoinPlan, TableJoinPlan
from streamplan.spark.planning.stages.task_aggregate import TaskAggregatePlan
from streamplan.spark.planning.stages.window import WindowPlan

PLANS: Mapping[type[Stage], type[OperatorPlan[Any]]] = {
    ForeignKeyStage: ForeignKeyPlan,
    ResultForeignKeyStage: ResultForeignKeyPlan,
    TableJoinStage: TableJoinPlan,
    ResultTableJoinStage: ResultTableJoinPlan,
    StreamJoinStage: StreamJoinPlan,
    LookUpStage: LookUpPlan,
    ResultLookUpStage: ResultLookUpPlan,
    LookUpInResultStage: LookUpInResultPlan,
    WindowStage: WindowPlan,
    AggregateStage: AggregatePlan,
    TaskAggregateStage: TaskAggregatePlan,
    ProcessStage: ProcessPlan,
    ProcessStoresStage: ProcessStoresPlan,
    OldValuesStage: OldValuesPlan,
}
"""The plans of the kinds of state."""


def plan_of(subtopology: Subtopology) -> StagePlan[Any]:
    """Return the plan of the state of a sub-topology."""
    match stage := stage_of(subtopology):
        case StatelessStage():
            return StatelessPlan(stage)
        case StageChain(parts=parts):
            return ChainPlan(stage, tuple(PLANS[type(part)](part, is_part=True) for part in parts))
    return PLANS[type(stage)](stage, is_part=bool(passing_by(subtopology)))
