"""A check over all records on Spark, for spark-submit: :mod:`streamplan.jobs.check`."""

from __future__ import annotations

import sys

from streamplan.jobs.check import main

if __name__ == "__main__":
    sys.exit(main())
