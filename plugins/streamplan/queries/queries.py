"""The stores of one pipeline, open for queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from streamplan.checks.framework.consistent_cut import tell_nobody
from streamplan.errors import CouldNotLook, Refused
from streamplan.judged_words import described
from streamplan.kafka.brokers import ANSWER_SECONDS, Brokers
from streamplan.kafka.cluster import KafkaCluster
from streamplan.kafka_port import Cluster
from streamplan.kafka_types import OffsetByPartition
from streamplan.model.pipeline import Pipeline
from streamplan.queries.follower import SILENT_SECONDS, Follower
from streamplan.queries.state_view import StateView, StoreView
from streamplan.queries.store_form import (
    ReadValues,
    StoreKind,
    changelogs_of,
    forms_of,
    partitions_held,
    require_store,
)
from streamplan.queries.stores import ReadOnlyKeyValueStore, ReadOnlySessionStore, ReadOnlyWindowStore
from streamplan.registry import pipeline_named


class Queries:
    """The stores of a pipeline, in memory. :func:`open_queries` makes it, and a ``with`` statement closes it.

    Example::

        with open_queries("orders", "localhost:9092") as queries:
            print(queries.key_value_store("orders-products-quantities").get("0"))

    Args:
        view: The stores, read to the ends of their changelogs.
        values: Reads their values.
        follower: Keeps them up to date.
    """

    def __init__(self, view: StateView, values: ReadValues, follower: Follower) -> None:
        self.view, self.values = view, values
        self._follower = follower

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the reading of changelogs."""
        self._follower.close()

    def key_value_store(self, name: str) -> ReadOnlyKeyValueStore:
        """Return a key-value store (``QueryableStoreTypes.keyValueStore``).

        Raises:
            Refused: There is no such store, or it has windows or sessions.
        """
        return ReadOnlyKeyValueStore(self._store(name, StoreKind.KEY_VALUE), self.values, False, self.require_followed)

    def timestamped_key_value_store(self, name: str) -> ReadOnlyKeyValueStore:
        """Return a key-value store whose values are of :class:`ValueAndTimestamp`.

        Raises:
            Refused: There is no such store, or it has windows or sessions.
        """
        return ReadOnlyKeyValueStore(self._store(name, StoreKind.KEY_VALUE), self.values, True, self.require_followed)

    def window_store(self, name: str) -> ReadOnlyWindowStore:
        """Return a window store (``QueryableStoreTypes.windowStore``).

        Raises:
            Refused: There is no such store, or it has no windows.
        """
        return ReadOnlyWindowStore(self._store(name, StoreKind.WINDOW), self.values, False, self.require_followed)

    def timestamped_window_store(self, name: str) -> ReadOnlyWindowStore:
        """Return a window store whose values are of :class:`ValueAndTimestamp`.

        Raises:
            Refused: There is no such store, or it has no windows.
        """
        return ReadOnlyWindowStore(self._store(name, StoreKind.WINDOW), self.values, True, self.require_followed)

    def session_store(self, name: str) -> ReadOnlySessionStore:
        """Return a session store (``QueryableStoreTypes.sessionStore``).

        Raises:
            Refused: There is no such store, or it has no sessions.
        """
        return ReadOnlySessionStore(self._store(name, StoreKind.SESSION), self.values, False, self.require_followed)

    def position(self, name: str) -> Mapping[str, OffsetByPartition]:
        """Return up to where the changelog of a store was read: by topic and partition the offset that comes next.

        Raises:
            Refused: There is no such store.
        """
        form = self.view.store(name).form
        return {form.changelog: self.view.positions(form.changelog)}

    def lag(self, name: str) -> int | None:
        """Return how many offsets of a changelog were not read yet. None where the brokers have not answered for 30 s.

        The offsets of a transaction that is open count, too.

        Raises:
            Refused: There is no such store.
        """
        store = self.view.store(name)
        return None if self.is_silent else sum(state.lag for state in store.states.values())

    @property
    def is_silent(self) -> bool:
        """Whether the brokers have not answered for so long that nobody knows what was written meanwhile."""
        return self.silent_seconds > SILENT_SECONDS

    @property
    def silent_seconds(self) -> float:
        """How long the brokers have not answered."""
        return self._follower.silent_seconds

    def require_followed(self) -> None:
        """Raise the reason why the changelogs are not read any more; nothing while they are.

        Raises:
            StreamplanError: A changelog was deleted, for example.
        """
        if self._follower.failure is not None:
            raise self._follower.failure

    def _store(self, name: str, kind: StoreKind) -> StoreView:
        store = self.view.store(name)
        if store.form.kind is not kind:
            method = store.form.kind.replace("-", "_")
            raise Refused(
                f"store {name}",
                expected=f"a {kind} store",
                observed=f"a {store.form.kind} store",
                remedy=f"Open it with {method}_store({name!r}).",
            )
        return store


def open_queries(
    pipeline: Pipeline | str,
    brokers: Brokers | str = "",
    *,
    partitions: Iterable[int] | None = None,
    stores: Iterable[str] | None = None,
    deadline_seconds: float = ANSWER_SECONDS,
    report: Callable[[str], None] = tell_nobody,
) -> Queries:
    """Read the stores of a pipeline into memory, and follow their changelogs until the result is closed.

    Args:
        pipeline: The pipeline, or the name of a registered one.
        brokers: The brokers, or their addresses. Client properties are then taken from the environment.
        partitions: The partitions that are read; None for all.
        stores: The stores that are read; None for all.
        deadline_seconds: Records that are there have to come within this time.
        report: Is told how far long changelogs were read.

    Raises:
        Refused: There is no such pipeline, store or partition, or it has no store that can be asked.
        CouldNotLook: A changelog does not exist, or its records do not come.
        BrokersUnavailable: Kafka does not answer.
    """
    _refuse_wrong("pipeline", pipeline, Pipeline | str, "a Pipeline, or the name of one")
    _refuse_wrong("brokers", brokers, Brokers | str, "host:port,host:port")
    for argument, values in (("partitions", partitions), ("stores", stores)):
        if values is not None and (isinstance(values, str) or not isinstance(values, Iterable)):
            _refuse_wrong(argument, values, tuple, f"a list: {argument}=[{values!r}]")
    declared = pipeline_named(pipeline) if isinstance(pipeline, str) else pipeline
    cluster_brokers = Brokers.from_environment(brokers) if isinstance(brokers, str) else brokers
    cluster = KafkaCluster(cluster_brokers, deadline_seconds=deadline_seconds)
    view = view_of(declared, cluster, partitions, stores)
    return Queries(view, ReadValues(cluster.schemas), Follower(cluster_brokers, cluster, view, report))


def _refuse_wrong(argument: str, value: object, kind: Any, expected: str) -> None:
    if not isinstance(value, kind):
        raise Refused(f"open_queries: {argument}", expected=expected, observed=described(value))


def view_of(
    pipeline: Pipeline, cluster: Cluster, partitions: Iterable[int] | None = None, stores: Iterable[str] | None = None
) -> StateView:
    """Return the stores of a pipeline, without content.

    Args:
        cluster: Has the changelogs.
        partitions: The partitions that are read; None for all.
        stores: The stores that are read; None for all.

    Raises:
        Refused: There is no such store or partition, or the pipeline has no store that can be asked.
        CouldNotLook: A changelog does not exist.
    """
    changelogs = changelogs_of(pipeline)
    if not changelogs:
        raise Refused(
            f"the stores of {pipeline.name}",
            expected="a store that can be asked",
            observed="none",
            remedy="Aggregates, tables and processors have stores.",
        )
    wanted = {*changelogs} if stores is None else {*stores}
    for name in sorted(wanted):
        require_store(changelogs, name, pipeline.name)
    topics = {topic for store, topic in changelogs.items() if store in wanted}
    if missing := sorted(topics - {*cluster.names()}):
        raise CouldNotLook(
            f"changelog {', '.join(missing)}",
            expected="an existing topic",
            observed="no such topic, or none that this client may see",
            remedy=f"Has {pipeline.name} been deployed on these brokers? What this client must be allowed is listed by "
            f"`streamplan acls {pipeline.name} --role queries`.",
        )
    forms = forms_of(pipeline, {topic: len(cluster.offsets(topic)) for topic in topics})
    held = partitions_held(forms, None if partitions is None else frozenset(partitions))
    return StateView(pipeline.name, forms, held)
