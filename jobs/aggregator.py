"""The streaming aggregator of a pipeline, for spark-submit: :mod:`streamplan.jobs.aggregator`."""

from __future__ import annotations

import sys

from streamplan.jobs.aggregator import main

if __name__ == "__main__":
    sys.exit(main())
