"""One Spark in this process for all tests, and the plans that tests use again."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamplan.errors import Refused
from streamplan.local.jars import SPARK, directory_of
from streamplan.model.pipeline import Pipeline
from streamplan.serdes.serde import Serde
from streamplan.spark.aggregator import in_flow_order
from streamplan.spark.planning.validation import resolve_schemas
from streamplan.spark.session import SPARK_CONFIGS, keep_checkpoints_cheaply
from streamplan.spark.state_variables import answer_in_driver
from streamplan.spark.submit import SHORT_RUN_OPTIONS, spark_submit_configs, submit_environment
from streamplan.testing.declared_schemas import DeclaredSchemas
from streamplan.testing.memory_query import MemoryQuery, memory_query

_MASTER = "local[1]"
"""A micro-batch of few records is quickest in one thread."""

_KEPT_PLANS = 16
"""Of so many pipelines the plans are kept, for the next test of the same pipeline."""

_CONFIGS = {
    **SPARK_CONFIGS,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # it would double the number of files
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.ui.explainMode": "simple",  # Spark describes each plan for its page, which nobody sees
    "spark.sql.lightweightPlanChangeValidation": "false",  # it looks at the plan behind each rule of the optimizer
    "spark.sql.leafNodeDefaultParallelism": "1",
}


@dataclass
class LocalSpark:
    """A session for the queries of tests, and the planned queries that no test uses at the moment.

    ``application``  the id that Spark gave its application: it is another one when Spark was stopped and started
    """

    session: SparkSession
    application: str
    _planned: dict[int, tuple[Pipeline, list[MemoryQuery]]] = field(default_factory=dict)

    def take_queries(self, pipeline: Pipeline) -> list[MemoryQuery]:
        """Return the queries of a pipeline, which nobody else has, in the order in which records flow.

        Raises:
            Refused: Spark finds faults in the expressions; the error tells all of them.
        """
        found = self._planned.pop(id(pipeline), None)
        return self._plan(pipeline) if found is None else found[1]

    def give_back(self, pipeline: Pipeline, queries: list[MemoryQuery]) -> None:
        """Keep queries that are stopped for the next test of the same pipeline."""
        self._planned[id(pipeline)] = pipeline, queries
        while len(self._planned) > _KEPT_PLANS:
            del self._planned[next(iter(self._planned))]

    def _plan(self, pipeline: Pipeline) -> list[MemoryQuery]:
        queries: list[MemoryQuery] = []
        schemas: dict[str, Serde] = {}
        tested = as_tested(pipeline)
        try:
            for subtopology in in_flow_order(tested.topology):
                queries.append(memory_query(self.session, tested, subtopology, schemas))
                schemas |= queries[-1].plan.schemas
        except (PySparkException, Refused):
            resolve_schemas(self.session, tested)  # raises all faults, with their lines in the declaration
            raise
        return queries


_last: list[LocalSpark] = []
"""The one that was asked for last. A process has one Spark at a time."""


def local_spark(given: SparkSession | None = None) -> LocalSpark:
    """Return the process's Spark. It is started when it is first asked for, unless there is a session already.

    Args:
        given: A session that the test has.
    """
    session = given or (SparkSession.builder.getOrCreate() if SparkContext._active_spark_context else _start())
    application = session.sparkContext.applicationId
    if not _last or _last[0].application != application:
        own = session.newSession()
        for config, value in _CONFIGS.items():
            own.conf.set(config, value)
        keep_checkpoints_cheaply(own, "file:/")
        answer_in_driver(own)
        _last[:] = [LocalSpark(own, application)]
    return _last[0]


def as_tested(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline with all partition counts, and with the schemas that it declares in place of a registry.

    A topic of others has as many partitions as the widest topic that is declared.
    """
    pipeline = pipeline.with_schemas(DeclaredSchemas.of(pipeline))
    if pipeline.is_resolved:
        return pipeline
    partitions = max(pipeline.topic_partitions.values(), default=1)
    return pipeline.resolved(dict.fromkeys(pipeline.topics_of_others, partitions))


def _start() -> SparkSession:
    configs: dict[str, bool | float | int | str | None] = {**spark_submit_configs(_MASTER)}
    options = (configs["spark.driver.extraJavaOptions"], *SHORT_RUN_OPTIONS)
    configs |= {
        "spark.driver.extraJavaOptions": " ".join(map(str, options)),
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # With TCP, each call of a Python worker waits 40 ms for an acknowledgement.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    # With this jar, where the machine has it, checkpoints are written without starting processes.
    if jars := sorted(directory_of(SPARK, os.environ).glob("hadoop-bare-naked-local-fs-*.jar")):
        configs["spark.jars"] = str(jars[0])
    with _environment_of_spark():
        return SparkSession.builder.master(_MASTER).appName("TopologyTestDriver").config(map=configs).getOrCreate()


def _module_directories() -> list[str]:
    """Return where modules of the test lie, which Spark's Python workers may need: all that was not installed."""
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    installed = ("site-packages", "dist-packages")
    return [
        entry
        for entry in map(os.path.abspath, sys.path)
        if os.path.isdir(entry) and not entry.startswith(standard) and os.path.basename(entry) not in installed
    ]


@contextmanager
def _environment_of_spark() -> Iterator[None]:
    """Set the variables with which Spark's JVM starts and finds this Python and its modules. They are gone again."""
    before = dict(os.environ)
    os.environ.update(submit_environment({**before, "PYTHONPATH": os.pathsep.join(_module_directories())}, local=True))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
