"""Asks a person to agree before something is changed that cannot be taken back."""

from __future__ import annotations

import sys

from streamplan.errors import Refused


def is_confirmed(action: str, application_id: str, *, purpose: str, unchanged: str) -> bool:
    """Ask for the application id, and return whether a person has typed it.

    Args:
        action: What is done to the application, as ``the reset``.
        application_id: What the person types.
        purpose: What it is typed for, as ``delete this``.
        unchanged: A sentence that says what was not done, as ``Nothing was deleted.``

    Raises:
        Refused: Nobody can be asked, because the input is no terminal.
    """
    if not sys.stdin.isatty():
        raise Refused(
            f"{action} of {application_id}",
            expected="a person at a terminal who agrees, or --yes",
            observed="neither",
            remedy=f"{unchanged} Run this in a terminal, or give --yes.",
        )
    sys.stdout.write(f"Type {application_id} to {purpose}: ")
    sys.stdout.flush()
    return sys.stdin.readline().strip() == application_id
