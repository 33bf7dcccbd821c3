"""The one place that chooses the serde of values that Streamplan writes itself.

Those are the values in repartition topics, and those that a topology writes to topics from outside. A value that no
operation has changed keeps the bytes, and so the serde, that it was read with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamplan.serdes.json import Json
from streamplan.serdes.serde import Serde


def repartition_serde(fields: Mapping[str, str]) -> Serde:
    """The serde of a repartition topic that carries values with these fields (name to type)."""
    return Json(", ".join(f"{name} {field_type}" for name, field_type in fields.items()))


def value_expression(columns: Sequence[str]) -> str:
    """The Spark SQL expression that writes the columns of these names as a value in bytes."""
    return Json.spark_expression(columns)
