"""PySpark's daemon of Python workers, which imports what our tasks need before it forks the workers.

So the workers share these modules. Otherwise each worker would import them by itself, in 0.8 CPU seconds and 86 MB.
PySpark's own daemon imports nothing before the fork, because Arrow starts threads when it is imported. Those threads
belong to jemalloc, which prepares for a fork (``pthread_atfork``).

``spark/submit.py`` names this module in ``spark.python.daemon.module``.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

from streamplan.spark.arrow_without_pandas import use_arrow_without_pandas
from streamplan.spark.sink.writers import freeze_gc

if __name__ == "__main__":
    use_arrow_without_pandas()
    freeze_gc()
    manager()
