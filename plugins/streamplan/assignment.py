"""Stream tasks shared among instances, and the size of what a group leader sends to tell them."""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.topology import Topology


def refuse_large_assignment(topology: Topology, partition_counts: Mapping[str, int]) -> None:
    """Raise :class:`Refused` when the encoded assignment exceeds the brokers' message limit."""
