"""Configs that only spark-submit can set, since the JVM has them from its start."""

from __future__ import annotations

_JVM_OPTIONS = " ".join(
    (
        # On few cores it takes less CPU than G1, and nobody waits for its pauses: a micro-batch is longer.
        "-XX:+UseParallelGC",
        # Arrow checks bounds and nulls with each access else; Spark's writers know both.
        "-Darrow.enable_unsafe_memory_access=true",
        "-Darrow.enable_null_check_for_get=false",
    )
)

SPARK_SUBMIT_CONFIGS = {
    "spark.driver.extraJavaOptions": _JVM_OPTIONS,
    "spark.executor.extraJavaOptions": _JVM_OPTIONS,
}
