"""The steps of an upgrade, for spark-submit: :mod:`streamplan.jobs.upgrade`."""

from __future__ import annotations

import sys

from streamplan.jobs.upgrade import main

if __name__ == "__main__":
    sys.exit(main())
