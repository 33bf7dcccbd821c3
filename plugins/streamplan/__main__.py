"""``python -m streamplan``."""

import sys

from streamplan.cli import main

if __name__ == "__main__":
    sys.exit(main())
