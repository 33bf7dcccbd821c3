"""One pipeline that cannot be planned ends no validation of the others."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from streamplan.errors import Refused
from streamplan.model.diagnostics import Diagnostic
from streamplan.model.topology import Topology
from streamplan.pipelines import orders, users, words
from streamplan.spark.planning import validation


class NoSpark:
    """Stands in for a session. It is only started and stopped."""

    def stop(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("error", [Refused("its schema file is gone"), AnalysisException("no such column")])
def test_a_pipeline_that_cannot_be_planned_has_its_answer_and_the_others_theirs(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_words = Diagnostic(words.PIPELINE.topology.processors.nodes[0].location, "no function [sun]", "sum?")

    def plan(spark: Any, topology: Topology) -> tuple[dict[str, Any], list[Diagnostic]]:
        if topology is users.PIPELINE.topology:
            raise error
        return {}, [of_words] if topology is words.PIPELINE.topology else []

    monkeypatch.setattr(validation, "_plan", plan)
    monkeypatch.setattr(validation, "open_session", lambda name: NoSpark())
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda self: NoSpark())
    of_users, other = validation.find_diagnostics([orders.PIPELINE, users.PIPELINE, words.PIPELINE])
    assert other is of_words
    assert of_users.location.file.endswith("users.py")
    assert str(error) in of_users.message
