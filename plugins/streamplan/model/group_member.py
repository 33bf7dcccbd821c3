"""A member of a consumer group, and how a member that is one of our aggregators is known."""

from __future__ import annotations

from dataclasses import dataclass

OURS = "streamplan:"
"""How the client id of an aggregator begins that has joined its group."""

DRAIN = "drain/"
"""How the instance of a member begins that asks the aggregators of its group to end in an orderly way."""


@dataclass(frozen=True)
class Member:
    """A member of a consumer group, as the brokers describe it.

    Attributes:
        client_id: What the client calls itself.
        host: The address that it connects from.
        member_id: The id that the brokers gave it.
    """

    client_id: str
    host: str
    member_id: str

    @property
    def instance(self) -> str | None:
        """The instance of the :class:`~streamplan.model.generation.Generation` of our aggregator; else None."""
        return self.client_id.removeprefix(OURS) if self.client_id.startswith(OURS) else None

    @property
    def asks_to_drain(self) -> bool:
        """Whether it is there to ask the aggregators to process what they have written for each other, and to end."""
        return (self.instance or "").startswith(DRAIN)

    def __str__(self) -> str:
        return f"{self.client_id} on {self.host}"
