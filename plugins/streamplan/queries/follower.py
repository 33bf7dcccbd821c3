"""Keeps a :class:`streamplan.queries.state_view.StateView` up to date with its changelogs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from threading import Event, Thread

from streamplan.checks.framework.consistent_cut import MAX_ATTEMPTS, tell_nobody
from streamplan.errors import BrokersUnavailable, CouldNotLook, StreamplanError
from streamplan.kafka.brokers import Brokers
from streamplan.kafka.following import FollowedTopics
from streamplan.kafka_port import Cluster, RecordsGone
from streamplan.kafka_types import Offsets
from streamplan.queries.state_view import StateView

LOOK_SECONDS = 5.0
"""How often the brokers are asked whether the changelogs are still the same."""

SILENT_SECONDS = 30.0
"""When the brokers have not answered for so long, it is not known what was written meanwhile."""

_POLL_SECONDS = 0.1
_TOLD_BATCHES = 50  # of 20,000 records at most
_STOP_SECONDS = 30.0


class ChangelogChanged(StreamplanError):
    """A changelog was deleted, created again or given more partitions: what was read of it is of no use any more."""


class Followed:
    """The changelogs as they were when reading began, to find out whether they are still the same.

    Args:
        cluster: The brokers.
        view: The stores.

    Raises:
        BrokersUnavailable: Kafka does not answer.
    """

    def __init__(self, cluster: Cluster, view: StateView) -> None:
        self._cluster = cluster
        self._counts = {form.changelog: form.partitions for form in view.forms.values()}
        self._ids = cluster.topic_ids([*self._counts])

    def borders(self) -> Mapping[str, Mapping[int, Offsets]]:
        """Return the borders of the partitions of each changelog, if the changelogs are the same.

        Raises:
            ChangelogChanged: They are not.
            BrokersUnavailable: Kafka does not answer.
        """
        names = {*self._cluster.names()}
        for topic in self._counts:
            if topic not in names:
                raise _changed(topic, "the topic that was read", "no such topic")
        ids = self._cluster.topic_ids([*self._counts])
        found = {}
        for topic, count in self._counts.items():
            if ids[topic] != self._ids[topic]:
                raise _changed(topic, "the topic that was read", "another one of the same name")
            found[topic] = self._cluster.offsets(topic)
            if len(found[topic]) != count:
                raise _changed(topic, f"{count} partitions", str(len(found[topic])))
        return found


def _changed(topic: str, expected: str, observed: str) -> ChangelogChanged:
    return ChangelogChanged(
        f"changelog {topic}",
        expected=expected,
        observed=observed,
        remedy="The application was reset or moved to another number of partitions. Start it again: it reads the "
        "changelogs anew.",
    )


def read_to_the_ends(cluster: Cluster, view: StateView, report: Callable[[str], None] = tell_nobody) -> None:
    """Read the changelogs from their beginnings to the ends that they have now.

    Each read has the deadline of the cluster.

    Args:
        cluster: The brokers.
        view: Takes the records.
        report: Is told how far a long changelog was read.

    Raises:
        CouldNotLook: Records do not come.
        BrokersUnavailable: Kafka does not answer.
    """
    for topic, partitions in view.changelogs.items():
        for attempt in range(MAX_ATTEMPTS):
            borders = cluster.offsets(topic)
            # A second attempt reads again what was read: the last record of a key counts, whatever stood before it.
            ranges = {number: (borders[number].log_start, borders[number].last_stable) for number in partitions}
            try:
                for number, batch in enumerate(cluster.read(topic, ranges), 1):
                    view.apply(topic, batch)
                    if number % _TOLD_BATCHES == 0:
                        left = sum(end - view.positions(topic)[each] for each, (_, end) in ranges.items())
                        report(f"{topic}: {left:,} offsets are left")
                break
            except RecordsGone:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        for number in partitions:
            view.reach(topic, number, ranges[number][1], borders[number].high_watermark)


class Follower:
    """Follows the changelogs with two threads: one reads, and one asks whether the topics are the same.

    Args:
        cluster: The same brokers, to ask them.
        view: The stores.
        report: Is told how far long changelogs were read at the start.
    """

    def __init__(
        self, brokers: Brokers, cluster: Cluster, view: StateView, report: Callable[[str], None] = tell_nobody
    ) -> None:
        self._brokers, self._cluster, self._view = brokers, cluster, view
        self._stop = Event()
        self._opens_anew = Event()
        self.failure: StreamplanError | None = None
        """Why nothing is read any more; None while it is."""
        self._followed = Followed(cluster, view)
        read_to_the_ends(cluster, view, report)
        self._answered_at = time.monotonic()
        self._threads = [Thread(target=self._run, args=(work,), daemon=True) for work in (self._follow, self._look)]
        for thread in self._threads:
            thread.start()

    @property
    def silent_seconds(self) -> float:
        """How long the brokers have not answered."""
        return time.monotonic() - self._answered_at

    def close(self) -> None:
        """End both threads."""
        self._stop.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StreamplanError as error:
            self._fail(error)
        except Exception as error:  # a thread that ends silently would let the stores grow old
            self._fail(
                StreamplanError("the changelogs cannot be followed", observed=f"{type(error).__name__}: {error}")
            )
            raise

    def _fail(self, error: StreamplanError) -> None:
        if self.failure is None and not self._stop.is_set():
            self.failure = error
            self._stop.set()

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._opens_anew.clear()
            begin = {topic: self._view.positions(topic) for topic in self._view.changelogs}
            try:
                with closing(FollowedTopics(self._brokers, begin)) as topics:
                    self._read(topics)
            except RecordsGone:
                try:
                    self._read_anew()
                except (BrokersUnavailable, CouldNotLook):
                    self._stop.wait(LOOK_SECONDS)  # they are away, and silent_seconds tells it

    def _read(self, topics: FollowedTopics) -> None:
        while not self._stop.is_set() and not self._opens_anew.is_set():
            for read in topics.read(_POLL_SECONDS):
                if read.batch is not None:
                    self._view.apply(read.topic, read.batch)
                self._view.reach(read.topic, read.partition, read.position, 0)
            for (topic, partition), end in topics.ends().items():
                self._view.reach(topic, partition, 0, end)

    def _read_anew(self) -> None:
        """Read the partitions from their beginnings whose records were deleted before they were read.

        The retention of a window's changelog deletes records. One that deleted a key may be among them: the key would
        stay. Until all is read, queries see what was held before.
        """
        borders = self._followed.borders()
        gone = {}
        for name, store in self._view.stores.items():
            offsets = borders[store.form.changelog]
            gone[name] = [
                number
                for number, state in store.states.items()
                if not offsets[number].log_start <= state.position <= offsets[number].high_watermark
            ]
        fresh = StateView(self._view.name, self._view.forms, gone)
        read_to_the_ends(self._cluster, fresh)
        self._view.take(fresh)

    def _look(self) -> None:
        behind: Mapping[tuple[str, int], int] = {}
        while not self._stop.wait(LOOK_SECONDS):
            try:
                borders = self._followed.borders()
            except (BrokersUnavailable, CouldNotLook):
                continue  # they are away, and silent_seconds tells it
            self._answered_at = time.monotonic()
            before, behind = (
                behind,
                {
                    (topic, number): position
                    for topic in self._view.changelogs
                    for number, position in self._view.positions(topic).items()
                    if position < borders[topic][number].last_stable
                },
            )
            if before.items() & behind.items():
                # A consumer that was open while a broker was away can keep its former leader's epoch for good.
                self._opens_anew.set()
