"""The records that an operator has named to be dead-lettered without being processed: they end every worker.

``STREAMPLAN_DEAD_LETTER`` names them. Every program that processes or counts records reads it: the aggregator, the
checks, and the recount by Spark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from streamplan.errors import Refused
from streamplan.model.dead_letters import Origin

VARIABLE = "STREAMPLAN_DEAD_LETTER"

REASON_LEFT_OUT = f"it is not processed, as {VARIABLE} says"


def records_left_out(environment: Mapping[str, str] | None = None) -> frozenset[Origin]:
    """Return the records that ``STREAMPLAN_DEAD_LETTER`` names: ``<topic>-<partition>@<offset>``, with commas between.

    Args:
        environment: The environment variables; None for those of this process.

    Raises:
        Refused: It has another form.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE, "")
    return frozenset(_origin(word.strip()) for word in text.split(",") if word.strip())


def _origin(word: str) -> Origin:
    place, _, offset = word.rpartition("@")
    topic, _, partition = place.rpartition("-")
    if topic and all(number.isascii() and number.isdecimal() for number in (partition, offset)):
        return Origin(topic, int(partition), int(offset))
    raise Refused(
        VARIABLE,
        expected="records as <topic>-<partition>@<offset>, with commas between them, such as orders-1@17",
        observed=repr(word),
        remedy="The error of the aggregator names the record in this form.",
    )
