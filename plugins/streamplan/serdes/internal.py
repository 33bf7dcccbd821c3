"""The one place that chooses the serde of values that Streamplan writes itself.

Those are the values in repartition topics, and those that a topology writes to topics from outside. A value that no
operation has changed keeps the bytes, and so the serde, that it was read with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamplan.serdes.field_types import FieldType, quoted
from streamplan.serdes.json import Json, moments_beyond
from streamplan.serdes.serde import Serde


@dataclass(frozen=True)
class _InternalJson(Json):
    """Reads what :func:`value_expression` writes of a double that is no number of JSON: ``"NaN"``, ``"-Infinity"``."""

    has_non_finite: ClassVar[bool] = True


def repartition_serde(fields: Mapping[str, FieldType]) -> Serde:
    """The serde of a repartition topic that carries values with these fields (name to type)."""
    return _InternalJson(", ".join(f"{quoted(name)} {of_field}" for name, of_field in fields.items()))


def value_expression(fields: Mapping[str, FieldType], prefix: str = "") -> str:
    """The Spark SQL expression that writes columns as a value in bytes.

    Args:
        fields: The fields of the value and their types. A type may be one that cannot be read again.
        prefix: What the name of a field's column begins with.
    """
    return Json.spark_expression(fields, prefix)


def unreadable_expression(fields: Mapping[str, FieldType]) -> str | None:
    """The Spark SQL condition that a value of these columns could not be read again; None where each can."""
    return moments_beyond(fields)
