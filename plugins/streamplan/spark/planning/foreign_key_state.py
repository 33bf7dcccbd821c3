"""The states of both sides of a join of tables by a foreign key.

Source: ``SubscriptionSendProcessorSupplier``, ``SubscriptionReceiveProcessorSupplier``,
``SubscriptionJoinProcessorSupplier``, ``ForeignTableJoinProcessorSupplier`` and ``ResponseJoinProcessorSupplier`` of
Kafka Streams 4.3. This table's side has the value of each of its keys, and sends subscriptions. The other table's side
has the value of each of its keys with the subscriptions to it, and sends responses.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StructField, StructType

from streamplan.serdes.subscriptions import (
    LENGTH_BYTES,
    Instruction,
    Response,
    Subscription,
    combined_key,
    value_hash,
)
from streamplan.spark.planning.keyed_state import KeyedState
from streamplan.spark.planning.task_state import named_tuples, task_order

THIS, OTHER, RESULT = 0, 1, 2
"""The sources of a row: the table of this side; what the other side has written; the changelog of the result."""


class Made(StrEnum):
    """What a row is that a side of the join has made of a record.

    ``SUBSCRIPTION``  a record of the registration topic
    ``STORED``        a change of the store of the subscriptions
    ``RESPONSE``      a record of the response topic
    ``RESULT``        an update of the joined table
    """

    SUBSCRIPTION = "subscription"
    STORED = "stored"
    RESPONSE = "response"
    RESULT = "result"


class Referring(NamedTuple):
    """A value of this table, as far as subscriptions depend on it.

    Attributes:
        foreign_key: In bytes; None where it has none.
    """

    foreign_key: bytes | None


def instructions(
    before: Referring | None, now: Referring | None, *, left: bool
) -> Iterator[tuple[bytes | None, Instruction]]:
    """Yield the subscriptions that a change of a value of this table gives: each a foreign key and an instruction.

    Args:
        before: The value that was there; None for none.
        now: The value that is there now; None for none.
        left: Whether the join is a left join.
    """
    old = None if before is None else before.foreign_key
    new = None if now is None else now.foreign_key
    if before is None and now is None:
        return
    if left:
        if old is not None and new != old:
            yield old, Instruction.DELETE_KEY_NO_PROPAGATE
        yield new, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
    elif new is None:
        if old is not None:
            yield old, Instruction.DELETE_KEY_AND_PROPAGATE
    elif old is not None and new != old:
        yield old, Instruction.DELETE_KEY_NO_PROPAGATE
        yield new, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
    else:
        yield new, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE


class _SideState(KeyedState):
    """What both states have in common: the order of the records, and the rows that are made of them.

    Args:
        restored: Whether the rows are those of changelogs, and no updates.
        passes: Whether the records of the side's table are passed, too.
    """

    def __init__(self, *, restored: bool, passes: bool = True) -> None:
        self._restored = restored
        self._passes = passes and not restored
        self._added: dict[str, Any] = {"made": None, "to": None, "sent": None, "place": None}

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _ordered(self, rows: Any) -> Any:
        rows = named_tuples(rows)
        if not self._restored:
            return sorted(rows, key=lambda row: task_order(row.record))
        # Another state may need each record of a changelog. The rows of a result have no record.
        return sorted(rows, key=lambda row: -1 if row.record is None else row.record["offset"])

    def _row(self, row: Any, **changed: Any) -> Row:
        return Row(**{**row._asdict(), **self._added, **changed})


class SubscriberState(_SideState):
    """Sends the subscriptions of one key of this table, and joins the responses.

    Args:
        of_value: The fields of this table.
        fields: The columns of the fields of this table and of the responses.
        left: Whether the join is a left join.
        stores_result: Whether the joined table has a store.
        restored: Whether the rows are those of changelogs.
        passes: Whether the records of this table are passed, too.
    """

    def __init__(
        self,
        of_value: StructType,
        fields: tuple[str, str],
        *,
        left: bool,
        stores_result: bool,
        restored: bool,
        passes: bool = True,
    ) -> None:
        super().__init__(restored=restored, passes=passes)
        self._of_value = of_value
        self._this, self._other = fields
        self._left = left
        self._stores_result = stores_result
        self._added["joined"] = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variable."""
        fields = [StructField("hash", BinaryType()), StructField("foreign_key", BinaryType())]
        fields += [StructField("has_result", BooleanType()), StructField("value", self._of_value)]
        self._state = handle.getValueState("row", StructType(fields))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a key in a micro-batch."""
        stored = self._state.get() if self._state.exists() else None
        found, foreign_key, has_result, fields = stored or (None, None, False, None)
        own = None if found is None else bytes(found)
        before = None if own is None else Referring(None if foreign_key is None else bytes(foreign_key))
        value = None if fields is None else dict(zip(self._of_value.names, fields, strict=True))
        changed = False
        for row in self._ordered(rows):
            if row.source == RESULT:  # of the changelog of the result
                has_result, changed = True, True
            elif row.source == THIS:
                if not row.rejected and row.deleted and own is None:
                    continue  # nothing was there
                if self._passes:
                    yield self._row(row)
                if row.rejected:
                    continue
                own = None if row.deleted else value_hash(bytes(row.record["value"]))
                now = None if row.deleted else Referring(None if row.refers is None else bytes(row.refers))
                value = None if row.deleted else {name: getattr(row, self._this)[name] for name in self._of_value.names}
                if not self._restored:
                    yield from self._subscriptions(row, own, before, now)
                before, changed = now, True
            else:
                response = Response.parse(bytes(row.record["value"]))
                if response.hash != own:
                    continue  # the value has changed since
                is_there = own is not None and (response.value is not None or self._left)
                if self._stores_result:
                    if not is_there and not has_result:
                        continue
                    changed, has_result = changed or has_result != is_there, is_there
                other = None if response.value is None else getattr(row, self._other)
                joined = value if is_there else None
                yield self._row(row, made=Made.RESULT.value, joined=joined, **{self._other: other})
        if changed:
            self._store(own, before, has_result, value)

    def _subscriptions(
        self, row: Any, own: bytes | None, before: Referring | None, now: Referring | None
    ) -> Iterator[Row]:
        primary_key, partition = bytes(row.key), int(row.partition)
        for place, (foreign_key, instruction) in enumerate(instructions(before, now, left=self._left)):
            sent = Subscription(own, instruction, primary_key, partition).written()
            yield self._row(
                row, made=Made.SUBSCRIPTION.value, to=foreign_key, sent=sent, place=place, **{self._this: None}
            )

    def _store(
        self, own: bytes | None, referring: Referring | None, has_result: bool, value: dict[str, Any] | None
    ) -> None:
        if own is None and not has_result:
            self._state.clear()
            return
        fields = None if value is None else tuple(value.values())
        foreign_key = None if referring is None else referring.foreign_key
        self._state.update((own, foreign_key, bool(has_result), fields))


class ResponderState(_SideState):
    """Keeps the subscriptions to one key of the other table, and responds to them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state variables."""
        row = StructType([StructField("at", LongType()), StructField("value", BinaryType())])
        self._value = handle.getValueState("row", row)
        subscriber = StructType([StructField("primary_key", BinaryType())])
        asked = StructType([StructField("hash", BinaryType()), StructField("partition", IntegerType())])
        self._subscriptions = handle.getMapState("subscriptions", subscriber, asked)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Process the records of a key in a micro-batch."""
        stored = self._value.get() if self._value.exists() else None
        value = None if stored is None else (int(stored[0]), bytes(stored[1]))
        changed = False
        for row in self._ordered(rows):
            if row.source == THIS:
                if not row.rejected and row.deleted and value is None:
                    continue  # nothing was there
                if self._passes:
                    yield self._row(row)
                if row.rejected:
                    continue
                value, changed = None if row.deleted else (row.at, bytes(row.record["value"])), True
                if not self._restored:
                    yield from self._respond_to_all(row, value)
            else:
                subscription = Subscription.parse(bytes(row.record["value"]))
                if row.key is not None:
                    yield from self._keep(row, subscription)
                if not self._restored:
                    yield from self._respond(row, subscription, value)
        if not changed:
            return
        if value is None:
            self._value.clear()
        else:
            self._value.update(value)

    def _keep(self, row: Any, subscription: Subscription) -> Iterator[Row]:
        """Change the store of the subscriptions."""
        if subscription.instruction.deletes:
            self._subscriptions.removeKey((subscription.primary_key,))
        else:
            self._subscriptions.updateValue((subscription.primary_key,), (subscription.hash, subscription.partition))
        if not self._restored:
            stored = None if subscription.instruction.deletes else row.record["value"]
            to = combined_key(bytes(row.key), subscription.primary_key)
            yield self._row(row, made=Made.STORED.value, to=to, sent=stored, place=0)

    def _respond(self, row: Any, asked: Subscription, value: tuple[int, bytes] | None) -> Iterator[Row]:
        found = None
        match asked.instruction:
            case Instruction.DELETE_KEY_NO_PROPAGATE:
                return
            case Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE if value is None:
                return
            case Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE | Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                found = None if value is None else value[1]
        at = row.at if value is None else max(row.at, value[0])
        yield self._response(row, asked.primary_key, Response(asked.hash, found), asked.partition, at, 0)

    def _respond_to_all(self, row: Any, value: tuple[int, bytes] | None) -> Iterator[Row]:
        found = None if value is None else value[1]
        subscriptions = [
            (bytes(primary_key), None if asked[0] is None else bytes(asked[0]), int(asked[1]))
            for (primary_key,), asked in self._subscriptions.iterator()
        ]
        for place, (primary_key, asked_hash, partition) in enumerate(sorted(subscriptions)):
            yield self._response(row, primary_key, Response(asked_hash, found), partition, row.at, place)

    def _response(self, row: Any, primary_key: bytes, response: Response, partition: int, at: int, place: int) -> Row:
        """A response. The partition that it goes to stands behind it, see ``PartitionBy.BEHIND_VALUE``."""
        sent = response.written() + partition.to_bytes(LENGTH_BYTES, "big")
        return self._row(row, made=Made.RESPONSE.value, to=primary_key, sent=sent, at=at, place=place)
