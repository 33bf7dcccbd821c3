"""Columns of values that a serde has read, as Arrow arrays. Importing this module does not import pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamplan.serdes.reason import harmless

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DecodedColumn:
    """A column of values that was read.

    ``fields``: struct array as long as the column, null where a value cannot be read; ``rejected``: row to reason.
    """

    fields: pa.StructArray
    rejected: Mapping[int, str]

    def reasons(self) -> pa.Array:
        """The reason of each row as a string array, null where the value was read."""
        import pyarrow as pa

        if not self.rejected:
            return pa.nulls(len(self.fields), pa.string())
        return reason_array(self.rejected, len(self.fields))


def reason_array(rejected: Mapping[int, str], rows: int) -> pa.Array:
    """The reasons of rejected rows as a string array, null for each other row. Each is made harmless."""
    import pyarrow as pa

    return pa.array([harmless(rejected[row]) if row in rejected else None for row in range(rows)], pa.string())


@dataclass(frozen=True)
class KeyColumn:
    """The keys of a column of values.

    ``keys``: binary array as long as the column, null where a record has no key; ``rejected``: row to reason;
    ``fields``: what was read of the values, as in :class:`DecodedColumn`.
    """

    keys: pa.Array
    rejected: Mapping[int, str]
    fields: pa.StructArray

    def counts(self) -> dict[bytes, int]:
        """The number of records of each key. Rejected records are in none of them."""
        counted = self.keys.value_counts()
        numbers = zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True)
        return {key: number for key, number in numbers if key is not None}
