"""Which micro-batch of a linked sub-topology is read, and up to which positions it has counted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from streamplan.errors import StreamplanError
from streamplan.model.committed_positions import CommittedPosition
from streamplan.model.generation import Generation, PositionMetadata
from streamplan.spark.state import state_store

METADATA = PositionMetadata(Generation.of_this_process(None), "1-7-abc", 4)


def committed(*metadata: PositionMetadata) -> Any:
    checkpoint = SimpleNamespace(id="1-7-abc", last_committed=lambda: 4)
    positions = {("by-kind", number): CommittedPosition(10 + number, each.text) for number, each in enumerate(metadata)}
    cluster = SimpleNamespace(committed_positions=lambda group: {**positions, ("orders", 0): positions["by-kind", 0]})
    return state_store._committed(checkpoint, "app", ["by-kind"], cluster)  # type: ignore[arg-type]


def test_the_positions_are_those_of_the_last_micro_batch() -> None:
    assert committed(METADATA, replace(METADATA, batch=2)) == (4, {("by-kind", 0): 10, ("by-kind", 1): 11})


def test_positions_that_name_no_checkpoint_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A re-drive has committed them, and only the next start names a checkpoint again."""

    def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(state_store, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0))
    with pytest.raises(StreamplanError, match=r"dead letters were processed again.*Start the aggregator"):
        committed(METADATA, replace(METADATA, checkpoint="", batch=None))
