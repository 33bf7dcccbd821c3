"""Writes the generated pages: ``python -m website FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from website.reference import write_pages

# The help of a command is fitted to the terminal, and names the program as it was called.
os.environ["COLUMNS"] = "100"
sys.argv[0] = "streamplan"

folder = Path(sys.argv[1])
sys.stdout.write(f"{len(write_pages(folder))} pages were written to {folder}\n")
