"""What came of the last re-drive of a pipeline, in words: ``reports/<pipeline>/redrive-outcome.json``.

The tasks of the DAG ``<pipeline>_redrive`` write it, and the Streams page shows it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from streamplan.files import ReportPaths, read_json, write_atomically


class Stage(StrEnum):
    """How far a re-drive has come."""

    PLANNED = "planned"
    NOTHING = "nothing"
    REFUSED = "refused"
    DONE = "done"


@dataclass(frozen=True)
class RedriveOutcome:
    """What came of a re-drive. The field names are keys in the file.

    Attributes:
        stage: How far it has come. A plan that is not approved stays ``planned``.
        run: The id of the DAG run.
        at: When that was known, ISO 8601.
        text: The plan, what was done, or why it was refused.
    """

    stage: Stage
    run: str
    at: str
    text: str


def write_outcome(reports: Path, pipeline: str, outcome: RedriveOutcome) -> None:
    """Make this the last outcome of a pipeline."""
    write_atomically(ReportPaths(reports, pipeline).redrive_outcome, json.dumps(asdict(outcome), indent=1))


def read_outcome(reports: Path, pipeline: str) -> RedriveOutcome | None:
    """Return the last outcome of a pipeline; None where nothing was re-driven.

    Raises:
        CouldNotLook: The file cannot be read.
    """
    return read_json(
        ReportPaths(reports, pipeline).redrive_outcome,
        lambda content: RedriveOutcome(**{**content, "stage": Stage(content["stage"])}),
        remedy="The next re-drive writes it again. Look whether the disk is full.",
    )
