"""What is said of a restoration that fails."""

from __future__ import annotations

import pytest
from streamplan.errors import Refused
from streamplan.model.topology import Topology
from streamplan.serdes.json import Json
from streamplan.spark.state.restore import _restore_error

PLAN = "+- Project [update_fields(record#1, raise_error(USER_RAISED_EXCEPTION, map(errorMessage, a value)))]"
UNREADABLE = "[USER_RAISED_EXCEPTION] a changelog value cannot be read: the value is not JSON SQLSTATE: P0001"
WORKER = "Job aborted: most recent failure: Lost task 0.0: AttributeError: 'dict' object has no attribute 'offset'"


@pytest.mark.parametrize(
    ("text", "observed", "is_refused"),
    [(f"{UNREADABLE}\n{PLAN}", UNREADABLE, True), (f"{WORKER}\n{PLAN}", WORKER.partition("failure: ")[2], False)],
    ids=["a value", "another failure"],
)
def test_the_plan_of_a_query_is_not_taken_for_its_failure(text: str, observed: str, is_refused: bool) -> None:
    topology = Topology("app")
    topology.stream("in", value=Json("n bigint")).group_by_key().count(store="counts")
    error = _restore_error(topology.subtopologies[0], text)
    assert isinstance(error, Refused) == is_refused
    assert observed in str(error)
    assert "raise_error" not in str(error)
