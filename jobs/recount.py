"""The recount of a pipeline's result, for spark-submit: :mod:`streamplan.jobs.recount`."""

from __future__ import annotations

import sys

from streamplan.jobs.recount import main

if __name__ == "__main__":
    sys.exit(main())
