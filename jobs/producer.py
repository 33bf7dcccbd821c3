"""The producer of a pipeline's test data: :mod:`streamplan.jobs.producer`."""

from __future__ import annotations

import sys

from streamplan.jobs.producer import main

if __name__ == "__main__":
    sys.exit(main())
