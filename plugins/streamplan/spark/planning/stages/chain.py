"""Several kinds of state in one query, with operations without state between them.

A stream can be given to one operator alone: of a second use Spark makes a second operator with a state of its own. So
what a state is given of another one's results is computed by an operator of its own that repeats the other one, with
the same records, and so with the same state. What the first operator gives is written; what the second one gives goes
into the next state. Both are in the same micro-batch and the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.model.operations import function_of
from streamplan.model.processor_topology import Processor
from streamplan.model.stages.chain import StageChain
from streamplan.model.stages.stage import Stage
from streamplan.spark.global_tables import ReadTable
from streamplan.spark.planning.compiled_plan import is_deterministic
from streamplan.spark.planning.operators import OperatorPlanner
from streamplan.spark.planning.records import RecordFrame
from streamplan.spark.planning.stages.stage_plan import (
    Cut,
    OperatorPlan,
    Recounted,
    Recounting,
    Sources,
    StagePlan,
    StoredState,
    batch_of,
    beside_sources,
    bind_passing,
    held_rows,
    passed_rows,
    passing_frames,
    together,
)
from streamplan.spark.sources import RAW_COLUMNS

_Operate = Callable[[OperatorPlan[Any], Any, OperatorPlanner], DataFrame]
"""Plans the operator of a part, of its inputs and the planner that has planned these."""


@dataclass(frozen=True)
class ChainPlan(StagePlan[StageChain]):
    """The plans of several stages.

    Attributes:
        plans: Those of the parts, in their order.
    """

    plans: tuple[OperatorPlan[Any], ...]

    @property
    def most_recounted(self) -> int | None:  # type: ignore[override]
        """See :attr:`StagePlan.most_recounted`."""
        return min((plan.most_recounted for plan in self.plans if plan.most_recounted is not None), default=None)

    def stream(self, sources: Sources, planner: OperatorPlanner, ticks: Callable[[], DataFrame] | None) -> Cut:
        """Let the planner go on with what all states give, and with the rows that were complete before them."""
        frames: Mapping[str, RecordFrame] = sources.frames()
        for plan in self.plans:
            frames = plan.judged(frames)
        planner.read = frames
        planner.bind_all(frames)
        once = None if ticks is None else cache(ticks)

        def operate(plan: OperatorPlan[Any], inputs: Any, _: OperatorPlanner) -> DataFrame:
            return plan.operate(inputs, once)

        parts: list[tuple[OperatorPlan[Any], Any, DataFrame]] = []
        for plan in self.plans:
            on = planner if self._is_first(plan) else self._planner_before(plan, frames, operate, planner.read_table)
            inputs = plan.inputs(on)
            if on is not planner and self.stage.before(plan.stage):
                _require_the_same_again(inputs)
            parts.append((plan, inputs, operate(plan, inputs, on)))
        early: Sequence[DataFrame] = ()
        rejecting = [plan for plan in self.plans if not self._is_first(plan)]
        if any(plan.stage.is_at_sources for plan in self.plans):
            passing = beside_sources(planner)
        else:
            planner.plan_beside([node for plan in self.plans for node in plan.stage.takers])
            for plan in self.plans:
                plan.reject_beside(planner)
            for plan in [plan for plan in rejecting if self._only_reads(plan)]:
                plan.reject(planner)  # its records are in no micro-batch
                rejecting.remove(plan)
            early = planner.take_output_rows().rows
            passing = passing_frames(planner)
        streaming = together({**_named([rows for *_, rows in parts]), **passed_rows(passing)}, early)
        batch = batch_of(streaming)
        if early:
            planner.write(held_rows(batch, "finished"))
        bind_passing(planner, passing, batch)
        for number, (plan, inputs, _) in enumerate(parts):
            if plan in rejecting:
                plan.reject(planner)  # what it rejects is written once, and here
            plan.bind(planner, held_rows(batch, f"held{number}"), inputs)
        return Cut(streaming, batch)

    def restored(self, stored: StoredState) -> DataFrame:
        """See :meth:`StagePlan.restored`. The operators have the order that they have in :meth:`stream`."""
        frames = stored.frames(stored.no_records())

        def operate(plan: OperatorPlan[Any], inputs: Any, planner: OperatorPlanner) -> DataFrame:
            if not self._is_first(plan) and not plan.restores_with_inputs:
                return plan.restore(_with_operators_of(inputs, stored, plan.stage), planner)
            return plan.restore(stored, planner)

        rows = []
        for plan in self.plans:
            planner = self._planner_before(plan, frames, operate)
            rows.append(operate(plan, plan.inputs(planner), planner))
        return together(_named(rows), ())

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what all records demand of one state after the other."""
        planner.read = frames
        planner.bind_all(frames)
        states = [plan.recount(planner.source_frames(), planner, recounting) for plan in self.plans]
        late = [state.late for state in states if state.late is not None]
        return Recounted(
            late=reduce(DataFrame.unionByName, late) if late else None,
            exact=all(state.exact for state in states),
            joined=next((state.joined for state in states if state.joined is not None), None),
            newest_ms=max(state.newest_ms for state in states),
        )

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """See :meth:`StagePlan.apply`."""
        part = self.stage.part_of(node)
        plan = next((plan for plan in self.plans if plan.stage is part), None)
        return super().apply(node, frames, planner) if plan is None else plan.apply(node, frames, planner)

    def _is_first(self, plan: OperatorPlan[Any]) -> bool:
        """Whether a state is given what the sources read, or what operations without state have made of that."""
        if plan.stage.is_at_sources:
            return True
        return not self.stage.before(plan.stage) and not any(other.stage.is_at_sources for other in self.plans)

    def _only_reads(self, plan: OperatorPlan[Any]) -> bool:
        """Whether a state is given results of others through their stores alone."""
        if not plan.stage.read_nodes:
            return False
        before = self.stage.before(plan.stage)
        names = {node.name for node in self.stage.subtopology.upstream_of(plan.stage.takers)}
        passed = {node.name for other in before for node in (*other.nodes, *other.results)}
        return names.isdisjoint(passed) and not any(other.leaves_out_records for other in before)

    def _planner_before(
        self,
        plan: OperatorPlan[Any],
        frames: Mapping[str, RecordFrame],
        operate: _Operate,
        read_table: ReadTable | None = None,
    ) -> OperatorPlanner:
        """Return a planner that has repeated the states before one of them.

        Raises:
            Refused: What is repeated need not give the same again.
        """

        def before(stages: Sequence[Stage], *, passes_each: bool = False) -> OperatorPlanner:
            planner = self.planner(repeats=True)
            planner.read = frames
            planner.read_table = read_table
            planner.bind_all(frames)
            for other in self.plans:
                if other.stage in stages:
                    repeated = replace(other, passes_each=passes_each)
                    planner.of_tables = of_tables(other)
                    inputs = repeated.inputs(planner)
                    repeated.bind(planner, operate(repeated, inputs, planner), inputs)
            return planner

        def of_tables(of: OperatorPlan[Any]) -> OperatorPlanner | None:
            return before(self.stage.before_table(of.stage), passes_each=True) if of.stage.looked_up else None

        planner = before(self.stage.before_takers(plan.stage))
        planner.of_tables = of_tables(plan)
        if self.stage.before(plan.stage):
            self._require_deterministic(plan.stage)
        return planner

    def _require_deterministic(self, stage: Stage) -> None:
        """Refuse a function that need not return the same again: what is computed twice must be the same."""
        for node in self.stage.subtopology.upstream_of((*stage.takers, *stage.looked_up)):
            function = function_of(node.operation) if isinstance(node, Processor) else None
            if function is not None and not function.deterministic:
                raise Refused(
                    f"a state behind another one is given what {function.name} returns, which need not be the same",
                    remedy="Put repartition(name='…') behind the function.",
                )


def _require_the_same_again(inputs: Any) -> None:
    """Refuse an expression such as ``rand()``: what is computed twice must be the same."""
    given = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, list | tuple) else [inputs]
    frames = (each.data if isinstance(each, RecordFrame) else each for each in given)
    if not all(is_deterministic(each) for each in frames if isinstance(each, DataFrame)):
        raise Refused(
            "a state behind another one is given what an expression makes, which need not be the same again",
            remedy="Put repartition(name='…') behind the expression.",
        )


def _named(rows: Sequence[DataFrame]) -> dict[str, DataFrame]:
    """What the operators of the parts gave, by the names of their columns."""
    return {f"held{number}": each for number, each in enumerate(rows)}


def _with_operators_of(inputs: Any, stored: StoredState, stage: Stage) -> StoredState:
    """Return what the stores hold so that the plan has the operators before the state, too.

    A checkpoint knows the operators of a query by their numbers. So the restoring query has the same ones in the same
    order. Those before the state give it no rows here: each of them is restored for itself.
    """
    frames = list(inputs.values()) if isinstance(inputs, Mapping) else inputs if isinstance(inputs, list) else [inputs]
    first = next(iter(stage.stores))

    def rows(node: Processor) -> DataFrame:
        of_store = stored.rows(node)
        if node.store != first:
            return of_store
        types = dict(of_store.dtypes)
        for frame in frames:
            nothing = frame.data.where(F.col("record.partition") < 0)
            columns = [F.lit(None).cast(types[name]).alias(name) for name in RAW_COLUMNS]
            of_store = of_store.unionByName(nothing.select(*columns))
        return of_store

    return replace(stored, rows=rows)
