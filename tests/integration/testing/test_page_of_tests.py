"""The example of docs/testing.md with dead letters, taken from the page."""

from __future__ import annotations

import re
import textwrap
from functools import partial

from pyspark.sql import SparkSession
from streamplan import Json, Pipeline, Topology
from streamplan.testing import TopologyTestDriver, as_text

from tests.support.wheel import CLONE

PAGE = CLONE / "docs" / "testing.md"


def test_a_dead_letter_has_the_attributes_and_the_text_of_the_page(spark: SparkSession) -> None:
    topology = Topology("visits-per-page")
    topology.stream("visits", value=Json("id string, page string, robot boolean")).to("pages")
    pipeline = Pipeline("visits", topology, "", {"visits": 2, "pages": 2})
    [code] = re.findall(r"^### Outputs and dead letters\n\n((?:    .*\n)+)", PAGE.read_text(), re.M)
    names = {"PIPELINE": pipeline, "as_text": as_text, "TopologyTestDriver": partial(TopologyTestDriver, spark=spark)}
    exec(textwrap.dedent(code), names)
