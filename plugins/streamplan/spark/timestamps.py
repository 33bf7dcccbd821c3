"""The timestamps of whole Arrow batches; the rules are in :mod:`streamplan.model.timestamps`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streamplan.model.timestamps import LATEST_MS, timestamp_fault


def timestamp_faults(timestamps_ms: pa.Array) -> pa.Array | None:
    """Return for each timestamp why a record with it cannot be processed, null where it can; None where all can.

    Args:
        timestamps_ms: Integers, in ms since the epoch.
    """
    sound = pc.and_(pc.greater_equal(timestamps_ms, 0), pc.less_equal(timestamps_ms, LATEST_MS))
    if pc.all(sound).as_py():
        return None
    return pa.array([timestamp_fault(timestamp) for timestamp in timestamps_ms.to_pylist()], pa.string())
