"""The re-drive of dead letters, for spark-submit: :mod:`streamplan.jobs.redrive`."""

from __future__ import annotations

import sys

from streamplan.jobs.redrive import main

if __name__ == "__main__":
    sys.exit(main())
