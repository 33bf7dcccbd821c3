"""The checks. A new one is a file beside this one and a line in ``CHECKS``."""

from __future__ import annotations

from streamplan.checks import compaction, copartitioning, totals
from streamplan.checks.observation import Check
from streamplan.errors import Refused

CHECKS: tuple[Check, ...] = (copartitioning.CHECK, compaction.CHECK, totals.CHECK)


def check_named(name: str) -> Check:
    """The check of that name, or :class:`Refused` listing those there are."""
    for check in CHECKS:
        if check.name == name:
            return check
    raise Refused(f"check {name!r}", expected=" or ".join(check.name for check in CHECKS))
