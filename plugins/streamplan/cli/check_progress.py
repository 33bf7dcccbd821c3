"""What the command ``check`` shows on stderr while checks look: each check, what it waits for, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from streamplan.checks.framework.check import Check, CheckResult


class CheckProgress:
    """A line for each check, with its time. Where stderr is no terminal, each change is a line of its own.

    Threads may use it beside each other.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        # transient: the table of results takes the place of these lines
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._rows: dict[str, TaskID] = {}
        self._titles: dict[str, str] = {}

    def __enter__(self) -> CheckProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def looking_for(self, subject: str) -> None:
        """Show that the application is looked for; the first check takes the place of that line."""
        self._show("", f"Looking for {subject}")

    def begin(self, check: Check) -> Callable[[str], None]:
        """Show that a check looks, and return the function that is told what it waits for."""
        if "" in self._rows:
            self._progress.remove_task(self._rows.pop(""))
        self._titles[check.name] = check.title
        looking = f"Looking: {check.title}"
        self._show(check.name, looking)

        def report(wait: str) -> None:
            if wait:
                self._show(check.name, f"{check.title} {wait}")
            elif self._console.is_terminal:
                self._show(check.name, looking)

        return report

    def finish(self, result: CheckResult) -> None:
        """Show what a check came to. The table of all results says why, when the last one is done."""
        self._show(result.check, f"{self._titles[result.check]}: {result.outcome}")
        if result.check in self._rows:
            self._progress.stop_task(self._rows[result.check])

    def _show(self, row: str, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text)
        elif row in self._rows:
            self._progress.update(self._rows[row], description=text, refresh=True)
        else:
            self._rows[row] = self._progress.add_task(text, total=None)
