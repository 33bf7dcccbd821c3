"""The time of each partition at each of its records, by which the records of several topics are put in order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_BEFORE_ALL_TIME = -(1 << 63)


class PartitionTimes:
    """The time of each partition: the newest timestamp of its records so far (``RecordQueue.partitionTime``).

    A Kafka Streams task always takes the oldest of the next records of its topics (``PartitionGroup.nextRecord``). That
    is the order of partition times: a record that is late in its own topic comes right after the record before it.
    """

    def __init__(self) -> None:
        self._newest: dict[int, int] = {}

    def of(self, batch: pa.RecordBatch, reasons: pa.Array) -> pa.Array:
        """Return the partition time in ms at each record of one topic.

        Args:
            batch: Records, those of a partition in their order, with a timestamp in microseconds.
            reasons: Why records are rejected. A rejected record is passed over, and its timestamp does not count.
        """
        timestamps = pc.if_else(pc.is_null(reasons), batch["timestamp"].cast(pa.int64()), pa.scalar(None, pa.int64()))
        times = pc.divide(timestamps, 1000).fill_null(_BEFORE_ALL_TIME).to_numpy().copy()
        partitions = batch["partition"].to_numpy()
        for partition in np.unique(partitions):
            rows = partitions == partition
            newest = self._newest.get(int(partition))
            found = np.maximum.accumulate(times[rows])
            times[rows] = found if newest is None else np.maximum(found, newest)
            self._newest[int(partition)] = int(times[rows][-1])
        return pa.array(times)
