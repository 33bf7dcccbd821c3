"""The reader of a pipeline's state store, for spark-submit: :mod:`streamplan.jobs.state_store`."""

from __future__ import annotations

import sys

from streamplan.jobs.state_store import main

if __name__ == "__main__":
    sys.exit(main())
