"""The type of a function on Arrow batches, as ``mapInArrow`` takes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa

ArrowFunction: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
