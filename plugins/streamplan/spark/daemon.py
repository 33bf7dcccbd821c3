"""PySpark's daemon of Python workers, which imports what our tasks need before it forks the workers.

So the workers share these modules. Otherwise each worker would import them by itself, in 0.8 CPU seconds and 86 MB.
PySpark's own daemon imports nothing before the fork, because pandas and Arrow start threads when they are imported.
Those threads belong to jemalloc and OpenBLAS, and both prepare for a fork (``pthread_atfork``).

``spark/submit.py`` names this module in ``spark.python.daemon.module``.
"""

from __future__ import annotations

import pandas  # noqa: F401  # pyarrow loads it with the first array
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

from streamplan.spark.sink.writers import freeze_gc

if __name__ == "__main__":
    freeze_gc()
    manager()
