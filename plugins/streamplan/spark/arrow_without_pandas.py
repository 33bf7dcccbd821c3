"""Lets pyarrow decide that there is no pandas: nothing here converts between the two.

pyarrow imports pandas with the first array that it makes, to tell pandas' objects from others. This takes a second of
CPU time and 35 MB in each process that imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _RefusesPandas(MetaPathFinder):
    """Says of pandas that it cannot be imported.

    ``sys.modules["pandas"] = None`` would say the same, and pyarrow crashes on it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)
        return None


def use_arrow_without_pandas() -> None:
    """Let pyarrow look for pandas now, in vain. It keeps the answer for as long as the process lives.

    Who imports pandas later gets it, but pyarrow does not convert to it. Nothing changes where pandas is imported
    already.
    """
    if "pandas" in sys.modules:
        return
    finder = _RefusesPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
