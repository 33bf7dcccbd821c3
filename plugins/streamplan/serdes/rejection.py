"""The one rule for what a value makes a serde raise; every serde applies it to its methods.

- What a single value raises is the reason why this value is rejected.
- What a whole column raises is no answer about any value: the column is read value by value.
- Only what is wrong with the deployment (:data:`streamplan.serdes.serde.OF_THE_DEPLOYMENT`) is raised, and stops the
  query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from streamplan.serdes.serde import OF_THE_DEPLOYMENT, Undecodable, Value, unexpected

if TYPE_CHECKING:
    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn

    Values: TypeAlias = pa.Array | Sequence[bytes | None]

S = TypeVar("S", bound=Any)


def rejects_values(decode: Callable[[S, bytes | None], dict[str, Any]]) -> Callable[[S, bytes | None], dict[str, Any]]:
    """Decorate ``decode``: what it raises for a value is an :class:`Undecodable` with the reason."""

    @wraps(decode)
    def judged(serde: S, data: bytes | None) -> dict[str, Any]:
        try:
            return decode(serde, data)
        except (Undecodable, *OF_THE_DEPLOYMENT):
            raise
        except Exception as error:
            raise Undecodable(f"the value cannot be read: {unexpected(error)}") from error

    return judged


def refuses_values(encode: Callable[[S, Value], bytes]) -> Callable[[S, Value], bytes]:
    """Decorate ``encode``: what it raises for a value is a ValueError with the reason."""

    @wraps(encode)
    def judged(serde: S, value: Value) -> bytes:
        try:
            return encode(serde, value)
        except (ValueError, *OF_THE_DEPLOYMENT):
            raise
        except Exception as error:
            raise ValueError(unexpected(error)) from error

    return judged


def or_each_value(
    decode_column: Callable[[S, Values], DecodedColumn],
) -> Callable[[S, Values], DecodedColumn]:
    """Decorate ``decode_column``: where it raises, each value is read on its own, by ``decode``."""

    @wraps(decode_column)
    def read(serde: S, values: Values) -> DecodedColumn:
        try:
            return decode_column(serde, values)
        except OF_THE_DEPLOYMENT:
            raise
        except Exception:  # noqa: BLE001  # whichever value it was: each is judged on its own
            from streamplan.serdes.arrow import binary_array, decode_each

            return decode_each(serde, binary_array(values))

    return read
