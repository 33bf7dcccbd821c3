"""What makes Spark start and run faster: its archive of classes and its generated code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from streamplan.errors import StreamplanError
from streamplan.spark import class_archive, training
from streamplan.spark import submit as spark_submit
from streamplan.spark.session import AdaptiveCodegen, generate_code


@pytest.mark.soak
def test_a_driver_has_its_classes_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_environment: Mapping[str, str]
) -> None:
    made = spark_submit.class_archive()
    executable = Path(sys.executable).with_name("spark-submit")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    without = spark_submit.spark_submit_configs("local[1]")["spark.driver.extraJavaOptions"]
    here = spark_submit.class_archive()
    here.parent.mkdir(parents=True)
    here.symlink_to(made)
    options = spark_submit.spark_submit_configs("local[1]")["spark.driver.extraJavaOptions"]
    assert "SharedArchiveFile" not in without
    assert options.startswith(without)

    loaded = tmp_path / "loaded"  # the JVM's own account of where each class came from
    configs = ["--conf", f"spark.driver.extraJavaOptions={options} -Xlog:class+load:file={loaded}"]
    script = [str(training.__file__), str(tmp_path / "checkpoint")]
    subprocess.run(
        [str(executable), "--master", "local[1]", "--conf", "spark.ui.enabled=false", *configs, *script],
        env={**spark_environment},
        cwd=tmp_path,
        check=True,
        timeout=600,
    )
    of_spark = [line for line in loaded.read_text().splitlines() if " org.apache.spark." in line]
    archived = sum("shared objects file (top)" in line for line in of_spark)
    from_jars = sum(".jar" in line for line in of_spark)  # others are made while it runs: lambdas, generated code
    assert archived > 1000
    assert from_jars < archived / 20


def test_an_archive_that_cannot_be_made_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(class_archive, "TRAINING_SECONDS", 0.5)
    log = tmp_path / "logs" / "classes.log"
    with pytest.raises(StreamplanError, match=r"classes\.log"):
        class_archive.make_class_archive(os.environ, log)
    assert log.exists()
    assert list(spark_submit.class_archive().parent.iterdir()) == []


@pytest.mark.parametrize(("records", "generated"), [(1_000, False), (500_000, True)])
def test_spark_generates_code_for_micro_batches_of_many_records(
    spark: SparkSession, records: int, generated: bool
) -> None:
    own = spark.newSession()
    for before in (not generated, generated):
        generate_code(own, before)
        AdaptiveCodegen(before).adjust(own, records)
        plan = own.range(10).where("id % 2 = 0")._jdf.queryExecution().executedPlan().toString()
        assert ("*(1)" in plan) == generated  # how Spark marks the stages that it writes code for
