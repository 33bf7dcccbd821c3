"""The one rule for what a value makes a serde raise; every serde applies it to its methods.

- What a single value raises is the reason why this value is rejected.
- What a whole column raises is no answer about any value: the column is read value by value.
- Only what is wrong with the deployment (:data:`streamplan.serdes.serde.OF_THE_DEPLOYMENT`) is raised, and stops the
  query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamplan.serdes.serde import OF_THE_DEPLOYMENT, Undecodable, Value, unexpected

if TYPE_CHECKING:
    import pyarrow as pa

    from streamplan.serdes.columns import DecodedColumn

# The decorated method has the type of the method, with the names of its arguments. With that of a Callable, which has
# none, no serde would fit the protocol, and pyright would refuse each where a serde is taken.
Decode = TypeVar("Decode", bound=Callable[..., dict[str, Any]])
Encode = TypeVar("Encode", bound=Callable[..., bytes])
DecodeColumn = TypeVar("DecodeColumn", bound="Callable[..., DecodedColumn]")


def rejects_values(decode: Decode) -> Decode:
    """Decorate ``decode``: what it raises for a value is an :class:`Undecodable` with the reason."""

    @wraps(decode)
    def judged(serde: Any, data: bytes | None) -> dict[str, Any]:
        try:
            return decode(serde, data)
        except (Undecodable, *OF_THE_DEPLOYMENT):
            raise
        except Exception as error:
            raise Undecodable(f"the value cannot be read: {unexpected(error)}") from error

    return cast(Decode, judged)


def refuses_values(encode: Encode) -> Encode:
    """Decorate ``encode``: what it raises for a value is a ValueError with the reason."""

    @wraps(encode)
    def judged(serde: Any, value: Value) -> bytes:
        try:
            return encode(serde, value)
        except (ValueError, *OF_THE_DEPLOYMENT):
            raise
        except Exception as error:
            raise ValueError(unexpected(error)) from error

    return cast(Encode, judged)


def or_each_value(decode_column: DecodeColumn) -> DecodeColumn:
    """Decorate ``decode_column``: where it raises, each value is read on its own, by ``decode``."""

    @wraps(decode_column)
    def read(serde: Any, values: pa.Array | Sequence[bytes | None]) -> DecodedColumn:
        try:
            return decode_column(serde, values)
        except OF_THE_DEPLOYMENT:
            raise
        except Exception:  # noqa: BLE001  # whichever value it was: each is judged on its own
            from streamplan.serdes.arrow import binary_array, decode_each

            return decode_each(serde, binary_array(values))

    return cast(DecodeColumn, read)
