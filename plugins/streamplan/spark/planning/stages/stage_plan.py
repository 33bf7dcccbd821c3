"""How Spark plans the state of one kind: what each module of this folder says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, Generic, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamplan.errors import Refused
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.processor_topology import Processor, Subtopology
from streamplan.model.stages import passing_by
from streamplan.model.stages.stage import Stage
from streamplan.serdes.serde import Serde
from streamplan.spark.planning.compiled_plan import batch_template
from streamplan.spark.planning.operators import OperatorPlanner, read_source
from streamplan.spark.planning.records import RecordFrame

Kind = TypeVar("Kind", bound=Stage)


@dataclass(frozen=True)
class Cut:
    """Where the streaming plan ends and the plan of the micro-batch begins.

    ``divided``  whether the micro-batch is read as several DataFrames from the first operation on
    """

    streaming: DataFrame
    batch: DataFrame
    divided: bool = True


@dataclass(frozen=True)
class Sources:
    """What the sources of a sub-topology read.

    ``schemas``  the serdes of the repartition topics
    ``raw``      by the name of a source its records, in the columns :data:`streamplan.spark.sources.RAW`
    ``topics``   by the name of a source the name of its topic in Kafka
    """

    subtopology: Subtopology
    schemas: Mapping[str, Serde]
    raw: Mapping[str, DataFrame]
    topics: Mapping[str, str]

    def frames(self) -> dict[str, RecordFrame]:
        """Return the records of each source, by its name."""
        return read_sources(self.subtopology, self.schemas, self.raw)


@dataclass(frozen=True)
class StoredState:
    """What the stores of a sub-topology hold.

    ``schemas``  the serdes of the repartition topics
    ``rows``     gives the rows of a processor's store, in the columns :data:`streamplan.spark.sources.RAW`
    ``times``    by partition the time in ms that the wall clock has given to a stream task
    """

    subtopology: Subtopology
    schemas: Mapping[str, Serde]
    rows: Callable[[Processor], DataFrame]
    times: Mapping[int, int]

    def no_records(self) -> dict[str, DataFrame]:
        """Return a DataFrame without records for each source, by its name."""
        writer = next(node for node in self.subtopology.processors if node.writes_store)
        return dict.fromkeys((source.name for source in self.subtopology.sources), self.rows(writer).where("false"))

    def table_rows(self) -> dict[str, DataFrame]:
        """Return what the stores of the tables hold, by the name of the source. Other sources have no records."""
        writers = {node.store: node for node in self.subtopology.processors if node.writes_store}
        of_tables = {name: self.rows(writers[store]) for name, store in self.subtopology.table_stores.items()}
        return {**self.no_records(), **of_tables}

    def frames(self, raw: Mapping[str, DataFrame]) -> dict[str, RecordFrame]:
        """Read such rows as the records of the sources."""
        return read_sources(self.subtopology, self.schemas, raw)


@dataclass(frozen=True)
class Recounting:
    """What a recount reads beside the sources.

    ``changelog``  gives the records of the changelog of a processor
    ``times``      by partition the time in ms that the wall clock has given to a stream task
    ``others``     by the name of a source of responses the records of the other table of its join by a foreign key
    ``processes``  whether a Python class with state can process all records once more
    """

    changelog: Callable[[Processor], DataFrame]
    times: Mapping[int, int]
    others: Mapping[str, RecordFrame]
    processes: bool


@dataclass(frozen=True)
class Recounted:
    """What is known of a state that was recounted, beside the records that the planner goes on with.

    ``late``       the keys whose sessions are not among them; None without sessions. It is persistent
    ``exact``      whether no store holds a double, whose sum depends on the order of its summands
    ``joined``     what joins of tables gave, of which several rows are made; None without such joins. It is persistent
    ``newest_ms``  the time of the newest record that a Python class was given; 0 without one
    """

    late: DataFrame | None = None
    exact: bool = True
    joined: DataFrame | None = None
    newest_ms: int = 0


@dataclass(frozen=True)
class StagePlan(ABC, Generic[Kind]):
    """The plans of a stage."""

    stage: Kind

    most_recounted: ClassVar[int | None] = None
    """The most records of a stream task that can be recounted; None without a limit."""

    def planner(
        self, diagnostics: list[Diagnostic] | None = None, *, acts: bool = True, repeats: bool = False
    ) -> OperatorPlanner:
        """Return a planner of the sub-topology.

        Args:
            diagnostics: See :class:`OperatorPlanner`.
            acts: See :class:`OperatorPlanner`.
            repeats: See :class:`OperatorPlanner`.
        """
        return OperatorPlanner(self.stage.subtopology, self.apply, diagnostics, acts=acts, repeats=repeats)

    @abstractmethod
    def stream(self, sources: Sources, planner: OperatorPlanner, ticks: Callable[[], DataFrame] | None) -> Cut:
        """Plan the streaming query up to the state; let the planner go on with what a micro-batch has behind it.

        Args:
            sources: Streams of records.
            planner: Of the sub-topology.
            ticks: See :func:`~streamplan.spark.planning.plan.plan_subtopology`.
        """

    @abstractmethod
    def restored(self, stored: StoredState) -> DataFrame:
        """Plan the state over what its stores hold; return a streaming plan that leaves this state.

        Args:
            stored: What the stores hold.
        """

    def recount(self, frames: Mapping[str, RecordFrame], planner: OperatorPlanner, recounting: Recounting) -> Recounted:
        """Let the planner go on with what all records that were processed demand of the state.

        Args:
            frames: These records, by the name of the source.
            planner: Of the sub-topology.
            recounting: What else is known.
        """
        planner.bind_all(frames)
        return Recounted()

    def apply(self, node: Processor, frames: Sequence[RecordFrame], planner: OperatorPlanner) -> RecordFrame:
        """Return the records of a node that belongs to the state and is not bound.

        A validation binds the sources alone, and they have no record: then it is asked for the types.

        Args:
            frames: The records of the nodes before it.
            planner: Plans the node.

        Raises:
            Refused: The node does not belong to a state of this kind.
        """
        raise Refused(f"no query is known for {type(node.operation).__name__}")


@dataclass(frozen=True)
class OperatorPlan(StagePlan[Kind]):
    """The plans of a stage that has one stateful operator of Spark.

    Attributes:
        is_part: Whether the sub-topology has other state, too, or a stream that is merged with the results.
        passes_each: Whether each record gives an update, as another state needs that looks up in the results. Without
            it the updates of a key are one for each micro-batch, where the state is an aggregate.
    """

    is_part: bool = False
    passes_each: bool = False

    restores_with_inputs: ClassVar[bool] = False
    """Whether :meth:`restore` plans the operators before the state: it reads the records that the state is given."""

    @property
    def divides(self) -> bool:
        """Whether the plan of the micro-batch reads what the operator gave more than once."""
        return True

    def stream(self, sources: Sources, planner: OperatorPlanner, ticks: Callable[[], DataFrame] | None) -> Cut:
        """See :meth:`StagePlan.stream`."""
        frames = sources.frames()
        planner.bind_all(frames)
        if self.is_part:
            planner.read = frames
        inputs = self.inputs(planner)
        stateful = self.operate(inputs, ticks)
        if self.stage.is_at_sources:
            cut, batch = cut_beside_sources(stateful, planner)
        else:
            planner.plan_beside(self.stage.takers)
            cut, batch = cut_behind_state(stateful, planner)
        self.bind(planner, batch, inputs)
        return replace(cut, divided=cut.divided or self.divides)

    def reject_beside(self, planner: OperatorPlanner) -> None:
        """Let a planner write what the state rejects of records that no other state has given.

        Where it is given records of others, too, :meth:`inputs` comes only when the streaming plan is complete.

        Args:
            planner: Of the sub-topology. What comes before all states is planned, and nothing else.
        """
        return

    def judged(self, frames: Mapping[str, RecordFrame]) -> Mapping[str, RecordFrame]:
        """Reject the records of the sources that this state cannot take, before another state takes them.

        Args:
            frames: The records of each source, by its name.
        """
        return frames

    @abstractmethod
    def inputs(self, planner: OperatorPlanner) -> Any:
        """Plan what comes before the state; return the records that it is given, as :meth:`operate` takes them.

        Args:
            planner: Of the sub-topology. Its sources are bound.
        """

    def reject(self, planner: OperatorPlanner) -> None:
        """Write what is rejected of the records that the state is given.

        Args:
            planner: Of the sub-topology.
        """
        self.inputs(planner)

    @abstractmethod
    def operate(self, inputs: Any, ticks: Callable[[], DataFrame] | None) -> DataFrame:
        """Plan the stateful operator.

        Args:
            inputs: What :meth:`inputs` gave.
            ticks: See :func:`~streamplan.spark.planning.plan.plan_subtopology`.
        """

    @abstractmethod
    def bind(self, planner: OperatorPlanner, rows: DataFrame, inputs: Any) -> None:
        """Let a planner go on with what the operator gave.

        Args:
            planner: Of the sub-topology.
            rows: What :meth:`operate` gave: a stream, or what a micro-batch has of it.
            inputs: What :meth:`inputs` gave; only what is known of the records is used.
        """

    def restored(self, stored: StoredState) -> DataFrame:
        """See :meth:`StagePlan.restored`."""
        planner = self.planner()
        planner.bind_all(stored.frames(stored.no_records()))
        return self.restore(stored, planner)

    @abstractmethod
    def restore(self, stored: StoredState, planner: OperatorPlanner) -> DataFrame:
        """Plan the stateful operator over what its stores hold; return a streaming plan that leaves this state.

        Args:
            stored: What the stores hold.
            planner: Of the sub-topology, on sources without records: for their types.
        """


def cut_behind_state(stateful: DataFrame, planner: OperatorPlanner) -> tuple[Cut, DataFrame]:
    """Let the planner write the rows that were complete before the state, such as dead letters.

    Records that pass by the state go on in the micro-batch.

    Returns:
        The cut; and of the micro-batch what the stateful operator gave.
    """
    early = planner.take_output_rows().rows
    passing = passing_frames(planner)
    if not early and not passing:
        batch = batch_of(stateful)
        return Cut(stateful, batch, divided=False), batch
    streaming = together({"held": stateful, **passed_rows(passing)}, early)
    batch = batch_of(streaming)
    if early:
        planner.write(held_rows(batch, "finished"))
    bind_passing(planner, passing, batch)
    return Cut(streaming, batch), held_rows(batch, "held")


def cut_beside_sources(stateful: DataFrame, planner: OperatorPlanner) -> tuple[Cut, DataFrame]:
    """Let the planner go on with the records of the sources that the state at the others does not read.

    Returns:
        The cut; and of the micro-batch what the stateful operator gave.
    """
    passing = beside_sources(planner)
    if not passing:
        batch = batch_of(stateful)
        return Cut(stateful, batch), batch
    streaming = together({"held": stateful, **passed_rows(passing)}, ())
    batch = batch_of(streaming)
    bind_passing(planner, passing, batch)
    return Cut(streaming, batch), held_rows(batch, "held")


def beside_sources(planner: OperatorPlanner) -> dict[str, RecordFrame]:
    """Return the records of the sources that no state at the others reads, with the rejected ones, by their names."""
    return {name: planner.frame_of(name) for name in passing_by(planner.subtopology)}


def passing_frames(planner: OperatorPlanner) -> dict[str, RecordFrame]:
    """Return the records that pass by the state, by the names of their nodes. They are planned."""
    frames = {name: planner.consume(name) for name in passing_by(planner.subtopology)}
    return {name: frame.accepted() for name, frame in frames.items() if frame is not None}


def passed_rows(passing: Mapping[str, RecordFrame]) -> dict[str, DataFrame]:
    """Return such records as rows of the streaming plan, by the names of their columns."""
    return {f"passed{number}": frame.data for number, frame in enumerate(passing.values())}


def bind_passing(planner: OperatorPlanner, passing: Mapping[str, RecordFrame], batch: DataFrame) -> None:
    """Let the planner go on with what a micro-batch has of such records."""
    for (name, frame), column in zip(passing.items(), passed_rows(passing), strict=True):
        planner.bind(name, replace(frame, data=held_rows(batch, column)))


def together(rows: Mapping[str, DataFrame], finished: Sequence[DataFrame]) -> DataFrame:
    """Return what several operators gave, and output rows that need no state, in one plan: a query has one.

    Args:
        rows: By the name of its column what an operator gave.
        finished: The output rows.
    """
    named = {**rows, "finished": reduce(DataFrame.unionByName, finished)} if finished else rows
    columns = [each.select(F.struct(*each.columns).alias(name)) for name, each in named.items()]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), columns)


def held_rows(batch: DataFrame, name: str) -> DataFrame:
    """Return what a micro-batch has in a column of :func:`together`."""
    return batch.where(F.col(name).isNotNull()).select(f"{name}.*")


def read_sources(
    subtopology: Subtopology, schemas: Mapping[str, Serde], raw: Mapping[str, DataFrame]
) -> dict[str, RecordFrame]:
    """Read the records of each source, by its name.

    Args:
        subtopology: With the sources.
        schemas: The serdes of the repartition topics.
        raw: By the name of a source its records, in the columns :data:`streamplan.spark.sources.RAW`.
    """
    return {source.name: read_source(subtopology, source, schemas, raw[source.name]) for source in subtopology.sources}


def batch_of(streaming: DataFrame) -> DataFrame:
    """Return a DataFrame that stands for each micro-batch of a streaming plan."""
    return batch_template(streaming.sparkSession.createDataFrame([], streaming.schema))
