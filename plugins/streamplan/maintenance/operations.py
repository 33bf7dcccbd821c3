"""The operations that Airflow's tasks run in their own process. The others need Spark, and are jobs."""

from __future__ import annotations

from collections.abc import Mapping

from streamplan.maintenance.operation import Operation
from streamplan.maintenance.repartition import Repartitioner
from streamplan.maintenance.reset import Resetter

OPERATIONS: Mapping[str, type[Operation]] = {"reset": Resetter, "repartition": Repartitioner}
