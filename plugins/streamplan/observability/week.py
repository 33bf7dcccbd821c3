"""The last seven days of an application, drawn: records that arrived, dead letters, and what the checks found.

Kafka says by the timestamps of its records how many there were at each moment, so nothing has to be collected before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from xml.sax.saxutils import escape

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.checks.framework.cluster import Cluster
from streamplan.model.topics import TopicRole

HOURS = 6
"""The length of a bar, in hours."""

BARS = 28
"""Seven days."""

_WIDTH, _LEFT, _BAR_HEIGHT, _ROW = 900.0, 150.0, 90.0, 22.0
_TEXT, _DIM = "#1b2430", "#5b6675"
_COLOURS = {Outcome.PASSED: "#2e8b57", Outcome.FAILED: "#b3261e", Outcome.COULD_NOT_LOOK: "#c08a00"}
_WORST = (Outcome.FAILED, Outcome.COULD_NOT_LOOK, Outcome.PASSED)


@dataclass(frozen=True)
class Week:
    """Seven days of an application, in bars of six hours, the oldest first.

    Attributes:
        name: The name of the pipeline.
        begins: When the first bar begins.
        arrived: The offsets that the source topics gained. Transaction markers have offsets, too.
        dead_lettered: The offsets that the dead-letter topic gained.
        checks: For each check its worst outcome in each bar; None where it did not run.
    """

    name: str
    begins: datetime
    arrived: Sequence[int]
    dead_lettered: Sequence[int]
    checks: Mapping[str, Sequence[Outcome | None]]


def look_back(application: Application, cluster: Cluster, history: Iterable[CheckResult], now: datetime) -> Week:
    """Return the seven days before a moment.

    Args:
        application: The application.
        cluster: The brokers.
        history: Results of its checks; those of other times are left out.
        now: The end of the last bar.

    Raises:
        CouldNotLook: A topic does not exist.
        BrokersUnavailable: Kafka does not answer.
    """
    begins = now - timedelta(hours=HOURS * BARS)
    moments = [begins + timedelta(hours=HOURS * n) for n in range(BARS + 1)]
    checks: dict[str, list[Outcome | None]] = {}
    for result in history:
        bar = int((datetime.fromisoformat(result.at) - begins) / timedelta(hours=HOURS))
        if 0 <= bar < BARS:
            row = checks.setdefault(result.check, [None] * BARS)
            row[bar] = min(filter(None, (row[bar], result.outcome)), key=_WORST.index)
    return Week(
        application.name,
        begins,
        _gained(cluster, application, TopicRole.SOURCE, moments),
        _gained(cluster, application, TopicRole.DEAD_LETTER, moments),
        dict(sorted(checks.items())),
    )


def _gained(cluster: Cluster, application: Application, role: TopicRole, moments: Sequence[datetime]) -> list[int]:
    gained = [0] * (len(moments) - 1)
    for spec in application.with_role(role):
        ends = [sum(cluster.offsets_since(spec.name, int(at.timestamp() * 1000)).values()) for at in moments]
        for bar, (before, after) in enumerate(pairwise(ends)):
            gained[bar] += max(after - before, 0)
    return gained


def describe(week: Week) -> str:
    """Return the week in a sentence."""
    ran = [outcome for outcome in week.checks.get("totals", ()) if outcome is not None]
    passed = sum(outcome is Outcome.PASSED for outcome in ran)
    failed = [name for name, outcomes in week.checks.items() if Outcome.FAILED in outcomes]
    said = [f"{sum(week.arrived):,} offsets arrived", f"{sum(week.dead_lettered):,} were dead-lettered"]
    if ran:
        said.append(f"the totals were verified in {passed} of {len(ran)} bars with a check of them")
    said.append(f"failed: {', '.join(failed)}" if failed else "no check failed" if week.checks else "no check ran")
    return ", ".join(said)


def draw(week: Week) -> str:
    """Return the picture as the text of an SVG document. It needs no style sheet."""
    step = (_WIDTH - _LEFT - 20) / BARS
    height = 60 + 2 * (_BAR_HEIGHT + 40) + _ROW * (len(week.checks) + 1)
    ends = week.begins + timedelta(hours=HOURS * BARS)
    heading = f"{week.name}: {week.begins:%Y-%m-%d} to {ends:%Y-%m-%d}"
    described = describe(week)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH:.0f} {height:.0f}"'
        f' width="{_WIDTH:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(heading)}</title><desc>{escape(described)}</desc>",
        f'<rect width="{_WIDTH:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        _label(16, 24, heading, _TEXT, size=16),
        _label(16, 44, described, _DIM),
    ]
    top = 60.0
    for name, values, colour in (
        ("Arrived", week.arrived, "#3b78c3"),
        ("Dead-lettered", week.dead_lettered, "#b3261e"),
    ):
        lines += _bars(name, values, colour, top, step)
        lines += _days(week.begins, top + _BAR_HEIGHT + 14, step)
        top += _BAR_HEIGHT + 40
    for name, outcomes in week.checks.items():
        lines.append(_label(16, top + 14, name, _TEXT))
        for bar, outcome in enumerate(outcomes):
            if outcome is not None:
                at = f'x="{_LEFT + bar * step + 1:.1f}" y="{top + 3:.1f}"'
                title = escape(f"{name}: {outcome}")
                lines.append(
                    f'<rect {at} width="{step - 2:.1f}" height="14" rx="2" fill="{_COLOURS[outcome]}">'
                    f"<title>{title}</title></rect>"
                )
        top += _ROW
    return "\n".join([*lines, "</svg>"])


def _bars(name: str, values: Sequence[int], colour: str, top: float, step: float) -> list[str]:
    most = max(*values, 1)
    lines = [_label(16, top + 14, name, _TEXT), _label(16, top + 30, f"at most {max(values):,} in 6 h", _DIM)]
    for bar, value in enumerate(values):
        height = value / most * _BAR_HEIGHT
        lines.append(
            f'<rect x="{_LEFT + bar * step + 1:.1f}" y="{top + _BAR_HEIGHT - height:.1f}" width="{step - 2:.1f}"'
            f' height="{height:.1f}" fill="{colour}"><title>{value:,}</title></rect>'
        )
    base = top + _BAR_HEIGHT
    return [*lines, f'<path d="M{_LEFT} {base:.1f}H{_WIDTH - 20:.1f}" stroke="{_DIM}"/>']


def _days(begins: datetime, y: float, step: float) -> list[str]:
    bars_of_a_day = 24 // HOURS
    return [
        _label(_LEFT + bar * step, y, f"{begins + timedelta(hours=HOURS * bar):%a %d, %H:%M}", _DIM)
        for bar in range(0, BARS, bars_of_a_day)
    ]


def _label(x: float, y: float, text: str, colour: str, *, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}">{escape(text)}</text>'
