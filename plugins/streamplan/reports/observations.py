"""Observations that a Spark job made for a check, as a file; and whether those of an earlier run still hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import Observation
from streamplan.errors import CouldNotLook
from streamplan.files import read_json, write_atomically
from streamplan.kafka_port import Cluster
from streamplan.reports.results import is_younger

MAX_RECOUNT_HOURS = 24
"""After this time Spark recounts again, though nothing is new: the declaration may have changed."""


@dataclass(frozen=True)
class RecordedObservations:
    """What a Spark job observed, or why it could not look.

    Attributes:
        rows: The observations.
        could_not_look: The error, where there are no observations.
        at: When the job began, ISO 8601.
        fingerprint: What :func:`offsets_fingerprint` returned then.
    """

    rows: tuple[Observation, ...]
    could_not_look: str | None = None
    at: str = ""
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the observations as JSON."""
        content = {
            "rows": [asdict(row) for row in self.rows],
            "could_not_look": self.could_not_look,
            "at": self.at,
            "contents": dict(self.fingerprint),
        }
        write_atomically(path, json.dumps(content, indent=1))

    @classmethod
    def read(cls, path: Path) -> RecordedObservations:
        """Read the observations.

        Raises:
            CouldNotLook: There is no such file, or it cannot be read.
        """
        remedy = "Look at the task that writes it: recount, or this check with the parameter full."
        found = read_json(path, cls._decode, remedy=remedy)
        if found is None:
            raise CouldNotLook(
                f"{path}",
                expected="the rows of the Spark job of this check",
                observed="no such file",
                remedy=remedy,
            )
        return found

    @classmethod
    def _decode(cls, content: Any) -> RecordedObservations:
        return cls(
            rows=tuple(Observation(**row) for row in content["rows"]),
            could_not_look=content["could_not_look"],
            at=content.get("at", ""),
            fingerprint=content.get("contents", {}),
        )

    def observe(self) -> tuple[Observation, ...]:
        """Return the observations.

        Raises:
            CouldNotLook: The job could not look.
        """
        if self.could_not_look is not None:
            raise CouldNotLook(self.could_not_look)
        return self.rows


def reason_left(path: Path, *, missing: str = "") -> str:
    """Return why a Spark job has left no rows in ``path``; empty where it has left some.

    Args:
        path: The file that the job writes.
        missing: What is returned where there is no file.
    """
    if not path.exists():
        return missing
    try:
        return RecordedObservations.read(path).could_not_look or ""
    except CouldNotLook as error:
        return str(error)


def offsets_fingerprint(application: Application, cluster: Cluster) -> dict[str, Any]:
    """Return what changes when records are written, deleted or processed.

    Returns:
        For each topic its id and, by partition, the first offset, the last stable offset and the application's
        position. The values are those that a JSON file gives back, so that two fingerprints can be compared.
    """
    topics = sorted(cluster.topics([spec.name for spec in application.topics]))
    ids = cluster.topic_ids(topics)
    positions = cluster.committed_offsets(application.application_id)
    return {
        topic: {
            "id": ids[topic],
            "partitions": {
                str(number): [offsets.log_start, offsets.last_stable, positions.get(topic, {}).get(number)]
                for number, offsets in sorted(cluster.offsets(topic).items())
            },
        }
        for topic in topics
    }


def reusable_recount(path: Path, application: Application, cluster: Cluster) -> RecordedObservations | None:
    """Return what Spark observed when it last computed the pipeline anew, if it would observe the same now."""
    try:
        last = RecordedObservations.read(path)
    except CouldNotLook:  # it is made anew
        return None
    if last.could_not_look is not None or not last.fingerprint:
        return None
    if not is_younger(last.at, timedelta(hours=MAX_RECOUNT_HOURS)):
        return None
    return last if last.fingerprint == offsets_fingerprint(application, cluster) else None
