"""``python -m streamplan``."""

import sys

from streamplan.console import main

if __name__ == "__main__":
    sys.exit(main())
