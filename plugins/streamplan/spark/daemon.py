"""PySpark's daemon, with what our tasks need loaded before it forks their workers.

Each worker would load it by itself else: 0.8 CPU seconds and 86 MB apiece, which are shared so. PySpark itself loads
nothing before the fork, since pandas and Arrow begin threads when they are imported. Those are of jemalloc and
OpenBLAS, and both prepare for a fork (pthread_atfork).
"""

from __future__ import annotations

import pandas  # noqa: F401  # pyarrow loads it with the first array
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

from streamplan.spark.sink.writers import freeze_gc

if __name__ == "__main__":
    freeze_gc()
    manager()
