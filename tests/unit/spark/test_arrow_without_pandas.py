"""Python workers do without pandas, and whoever asks for it still gets it."""

from __future__ import annotations

import os
import subprocess
import sys

from streamplan.spark.submit import import_path


def _run(script: str) -> str:
    environment = {**os.environ, "PYTHONPATH": import_path(os.environ)}
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment)
    return ran.stdout.strip()


def test_arrow_does_not_load_pandas_with_its_arrays() -> None:
    script = """
import sys
import numpy, pyarrow
from streamplan.spark.arrow_without_pandas import use_arrow_without_pandas
use_arrow_without_pandas()
pyarrow.array(numpy.array([1, 2])).to_pylist()
pyarrow.table({"a": [1, None], "b": ["x", None]}).to_pylist()
print("pandas" in sys.modules, any("streamplan" in type(finder).__module__ for finder in sys.meta_path))
"""
    assert _run(script) == "False False"


def test_pandas_can_be_imported_afterwards() -> None:
    script = """
from streamplan.spark.arrow_without_pandas import use_arrow_without_pandas
use_arrow_without_pandas()
import pandas
print(pandas.DataFrame({"a": [1, 2]}).a.sum())
"""
    assert _run(script) == "3"


def test_the_modules_of_states_do_not_load_pandas() -> None:
    """Spark starts a Python process to ask a state for its form. It imports the state's module alone."""
    script = """
import pkgutil, sys
from importlib import import_module
import pyspark.sql.streaming.transform_with_state_driver_worker
from streamplan.spark import planning
names = [module.name for module in pkgutil.iter_modules(planning.__path__)]
for name in names:
    import_module(f"streamplan.spark.planning.{name}")
print("process_state" in names, "pandas" in sys.modules)
"""
    assert _run(script) == "True False"
