"""What the jobs share that observe something with Spark and leave the rows in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from streamplan.errors import BrokersUnavailable, CouldNotLook, Refused
from streamplan.programs import report
from streamplan.reports.observations import RecordedObservations
from streamplan.spark.session import open_session

_FULL_HEAP = "java.lang.OutOfMemoryError: Java heap space"

_MORE_HEAP = "STREAMPLAN_DRIVER_MEMORY in the environment of Airflow's processes gives the driver more, as 2g"


def write_observations(
    session_name: str, output: Path, observe: Callable[[SparkSession], RecordedObservations]
) -> None:
    """Open a Spark session, observe, and write the rows, or the reason why the job could not decide.

    An error that nobody expected, such as one of Spark that has no memory, is written, too, and ends the job.

    Args:
        session_name: The name of the Spark application.
        output: The JSON file to write.
        observe: Gets the session and returns the rows. It may raise :class:`CouldNotLook` or
            :class:`BrokersUnavailable`.
    """
    try:
        spark = open_session(session_name)
        result = observe(spark)
    except (BrokersUnavailable, CouldNotLook) as error:
        result = RecordedObservations((), could_not_look=str(error))
    except Refused:  # has a file of its own
        raise
    except Exception as error:
        RecordedObservations((), could_not_look=_in_a_line(error)).write(output)
        raise
    result.write(output)
    for row in result.rows:
        report(f"{row.subject}: expected {row.expected}, observed {row.observed}")
    spark.stop()


def _in_a_line(error: Exception) -> str:
    """Return what an error says, without the stack of the JVM that stands in it."""
    said = str(error).partition("\n\tat ")[0].partition("\nJVM stacktrace:")[0]
    line = f"an unexpected error: {type(error).__name__}: {' '.join(said.split())}"
    return f"{line}. {_MORE_HEAP}" if _FULL_HEAP in str(error) else line
