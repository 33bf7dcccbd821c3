"""The kinds of state and their plans."""

from __future__ import annotations

from streamplan.model.stages import STAGES
from streamplan.model.stages.foreign_key import ResultForeignKeyStage
from streamplan.model.stages.look_up import LookUpInResultStage, ResultLookUpStage
from streamplan.model.stages.table_join import ResultTableJoinStage
from streamplan.model.stages.task_aggregate import TaskAggregateStage
from streamplan.spark.planning.stages import PLANS


def test_each_kind_of_state_has_a_plan() -> None:
    parts = (TaskAggregateStage, ResultForeignKeyStage, ResultLookUpStage, LookUpInResultStage, ResultTableJoinStage)
    assert PLANS.keys() == {*STAGES, *parts}
