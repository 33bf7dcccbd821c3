"""The last seven days of an application, drawn: records that arrived, lag, dead letters, and what the checks found.

Kafka says by the timestamps of its records how many there were at each moment, so nothing has to be collected before.
The lag is what the check `lag` measured at each of its runs, as the history of the checks keeps it. What is not known
is not drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from xml.sax.saxutils import escape

from streamplan.checks.framework.application import Application
from streamplan.checks.framework.check import CheckResult, Outcome
from streamplan.checks.lag import LAG_RECORDS, LAG_SECONDS
from streamplan.kafka_port import Cluster
from streamplan.model.dead_letters import is_mark
from streamplan.model.topics import TopicRole

HOURS = 6
"""The length of a bar, in hours."""

BARS = 28
LENGTH = timedelta(hours=HOURS * BARS)
"""Seven days."""

Values = Sequence[float | None]
"""A value for each bar, the oldest first; None where it is not known."""

_WIDTH, _LEFT, _RIGHT, _BAR_HEIGHT, _ROW = 900.0, 190.0, 20.0, 72.0, 22.0
_CHART = _BAR_HEIGHT + 48
_STEP = (_WIDTH - _LEFT - _RIGHT) / BARS
_TEXT, _DIM, _LINE = "#1b2430", "#5b6675", "#e3e7ec"
_BLUE, _AMBER, _RED = "#3b78c3", "#b26a00", "#b3261e"
_COLOURS = {Outcome.PASSED: "#2e8b57", Outcome.FAILED: _RED, Outcome.COULD_NOT_LOOK: "#c08a00"}
_SIGNS = {Outcome.PASSED: "", Outcome.FAILED: "×", Outcome.COULD_NOT_LOOK: "?"}
_WORST = (Outcome.FAILED, Outcome.COULD_NOT_LOOK, Outcome.PASSED)


@dataclass(frozen=True)
class Week:
    """Seven days of an application, in bars of six hours, the oldest first.

    Attributes:
        name: The name of the pipeline.
        begins: When the first bar begins.
        arrived: The offsets that the source topics gained. Transaction markers have offsets, too. None where retention
            has deleted records that may belong to the bar.
        lag_seconds: The greatest age of a record that a stream task had to process, as the check `lag` measured it;
            None where it did not.
        lag_records: The greatest number of records that a stream task had to process, as the check `lag` measured it.
        dead_lettered: The offsets that the dead-letter topic gained, without the marks of re-drives.
        checks: For each check its worst outcome in each bar; None where it did not run.
    """

    name: str
    begins: datetime
    arrived: Values
    lag_seconds: Values
    lag_records: Values
    dead_lettered: Values
    checks: Mapping[str, Sequence[Outcome | None]]


def look_back(application: Application, cluster: Cluster, history: Iterable[CheckResult], now: datetime) -> Week:
    """Return the seven days before a moment.

    Args:
        history: Results of its checks; those of other times are left out.
        now: The end of the last bar.

    Raises:
        CouldNotLook: A topic does not exist.
        BrokersUnavailable: Kafka does not answer.
    """
    begins = now - LENGTH
    moments = [begins + timedelta(hours=HOURS * n) for n in range(BARS + 1)]
    checks: dict[str, list[Outcome | None]] = {}
    greatest: dict[str, list[float | None]] = {LAG_RECORDS: [None] * BARS, LAG_SECONDS: [None] * BARS}
    for result in history:
        bar = int((datetime.fromisoformat(result.at) - begins) // timedelta(hours=HOURS))
        if 0 <= bar < BARS:
            row = checks.setdefault(result.check, [None] * BARS)
            row[bar] = min(filter(None, (row[bar], result.outcome)), key=_WORST.index)
            for name in greatest.keys() & result.figures.keys():
                figures = greatest[name]
                figures[bar] = max(result.figures[name], figures[bar] or 0.0)
    return Week(
        application.name,
        begins,
        _gained(cluster, application, TopicRole.SOURCE, moments),
        greatest[LAG_SECONDS],
        greatest[LAG_RECORDS],
        _without_marks(cluster, application, _gained(cluster, application, TopicRole.DEAD_LETTER, moments), begins),
        dict(sorted(checks.items())),
    )


def _gained(cluster: Cluster, application: Application, role: TopicRole, moments: Sequence[datetime]) -> Values:
    """Return the offsets that the topics of a role gained between each two moments; None where it is not known.

    Where the first record after a moment is the first one that is left of a partition, the records before it were
    deleted, and some of them may be younger than the moment.
    """
    gained: list[float | None] = [0] * (len(moments) - 1)
    for spec in application.with_role(role):
        starts = {number: at.log_start for number, at in cluster.offsets(spec.name).items() if at.log_start}
        offsets = [cluster.offsets_since(spec.name, int(moment.timestamp() * 1000)) for moment in moments]
        for bar, (before, after) in enumerate(pairwise(offsets)):
            total = gained[bar]
            deleted = any(before[number] <= start for number, start in starts.items())
            gained[bar] = None if total is None or deleted else total + sum(after.values()) - sum(before.values())
    return gained


def _without_marks(cluster: Cluster, application: Application, gained: Values, begins: datetime) -> Values:
    """Return the gain of the dead-letter topic by bar without the marks of re-drives."""
    since, left = int(begins.timestamp() * 1000), [*gained]
    for spec in application.with_role(TopicRole.DEAD_LETTER):
        first = cluster.offsets_since(spec.name, since)
        ranges = {n: (max(first[n], at.log_start), at.last_stable) for n, at in cluster.offsets(spec.name).items()}
        for batch in cluster.read(spec.name, ranges):
            for timestamp, headers in zip(batch.timestamps, batch.headers, strict=True):
                bar = (timestamp - since) // (HOURS * 3_600_000)
                if is_mark(headers) and 0 <= bar < len(left) and (number := left[bar]) is not None:
                    left[bar] = max(number - 1, 0)
    return left


def describe(week: Week) -> str:
    """Return the week in a sentence."""
    ran = [outcome for outcome in week.checks.get("totals", ()) if outcome is not None]
    passed = sum(outcome is Outcome.PASSED for outcome in ran)
    failed = [name for name, outcomes in week.checks.items() if Outcome.FAILED in outcomes]
    said = [_sum(week.arrived, "arrived"), _sum(week.dead_lettered, "were dead-lettered")]
    if lags := _known(week.lag_records):
        ages = _known(week.lag_seconds)
        age = f" and {_age(max(ages))}" if ages else ""
        said.append(f"the greatest lag of a task was {max(lags):,.0f} records{age}")
    if ran:
        said.append(f"the totals were verified in {passed} of {len(ran)} bars with a check of them")
    said.append(f"failed: {', '.join(failed)}" if failed else "no check failed" if week.checks else "no check ran")
    return ", ".join(said)


def draw(week: Week) -> str:
    """Return the picture as the text of an SVG document. It needs no style sheet."""
    ends = week.begins + LENGTH
    heading = f"{week.name}: {week.begins:%Y-%m-%d} to {ends:%Y-%m-%d}"
    described = describe(week)
    sentences = textwrap.wrap(described, 130)
    charts: list[tuple[str, str, Values, Callable[[float], str], str]] = [
        ("Arrived", "offsets in 6 h", week.arrived, _count, _BLUE),
        ("Lag in time", "greatest of a task", week.lag_seconds, _age, _AMBER),
        ("Lag in records", "greatest of a task", week.lag_records, _count, _AMBER),
        ("Dead-lettered", "offsets in 6 h", week.dead_lettered, _count, _RED),
    ]
    top = 56.0 + 18 * len(sentences)
    rows = top + _CHART * len(charts)
    bottom = rows + (_ROW * (len(week.checks) + 1) + 8 if week.checks else 0)
    height = bottom + 28
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {_WIDTH:.0f} {height:.0f}"'
        f' width="{_WIDTH:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(heading)}</title><desc>{escape(described)}</desc>",
        f'<rect width="{_WIDTH:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        _label(16, 28, heading, _TEXT, size=17),
        *[_label(16, 48 + 18 * number, sentence, _DIM) for number, sentence in enumerate(sentences)],
        *_days(week.begins, top, bottom),
    ]
    for number, (title, unit, values, shown, colour) in enumerate(charts):
        lines += _chart(title, unit, values, shown, colour, top + _CHART * number)
    if week.checks:
        lines += _checks(week.checks, rows)
    return "\n".join([*lines, "</svg>"])


def _chart(title: str, unit: str, values: Values, shown: Callable[[float], str], colour: str, top: float) -> list[str]:
    """Return a title, bars, and a scale from zero to the greatest value.

    The base line is dotted where nothing is known.
    """
    known = _known(values)
    most, head = max(known, default=0.0), top + 30
    base = head + _BAR_HEIGHT
    lines = [_label(16, head + 4, title, _TEXT, size=13), _label(16, head + 21, unit, _DIM)]
    if len(known) < len(values):
        lines.append(
            f'<path d="M{_LEFT:.0f} {base:.1f}H{_WIDTH - _RIGHT:.0f}" stroke="{_DIM}" stroke-dasharray="1 5"/>'
        )
        note = "dotted: not known" if known else "not known"
        lines.append(_label(_WIDTH - _RIGHT, head - 6, note, _DIM, end=True))
    if known:
        lines.append(_label(_LEFT - 8, base + 4, "0", _DIM, end=True))
    if most:
        lines.append(f'<path d="M{_LEFT:.0f} {head:.1f}H{_WIDTH - _RIGHT:.0f}" stroke="{_LINE}"/>')
        lines.append(_label(_LEFT - 8, head + 4, shown(most), _TEXT, end=True))
    for bar, value in enumerate(values):
        if value is not None:
            x, tall = _LEFT + bar * _STEP, max(value / most * _BAR_HEIGHT, 2.0) if value else 0.0
            lines.append(f'<path d="M{x:.1f} {base:.1f}h{_STEP:.1f}" stroke="{_DIM}"/>')
            lines.append(
                f'<rect x="{x + 1:.1f}" y="{base - tall:.1f}" width="{_STEP - 2:.1f}" height="{tall:.1f}"'
                f' fill="{colour}"><title>{shown(value)}</title></rect>'
            )
    return lines


def _checks(checks: Mapping[str, Sequence[Outcome | None]], top: float) -> list[str]:
    """Return a row for each check, below the meaning of the colours."""
    lines, x = [_label(16, top + 16, "Checks", _TEXT, size=13)], _LEFT
    for meaning in (Outcome.PASSED, Outcome.COULD_NOT_LOOK, Outcome.FAILED):
        lines += [*_mark(meaning, x, top + 5, 14.0, ""), _label(x + 20, top + 16, str(meaning), _DIM)]
        x += 130
    lines.append(_label(x, top + 16, "no mark: did not run", _DIM))
    for number, (name, outcomes) in enumerate(checks.items(), 1):
        y = top + _ROW * number + 4
        lines.append(_label(16, y + 11, name, _TEXT))
        for bar, outcome in enumerate(outcomes):
            if outcome is not None:
                lines += _mark(outcome, _LEFT + bar * _STEP + 1, y, _STEP - 2, f"{name}: {outcome}")
    return lines


def _mark(outcome: Outcome, x: float, y: float, width: float, title: str) -> list[str]:
    """Return a rectangle in the colour of an outcome, with a sign for those who cannot tell the colours apart."""
    told = f"<title>{escape(title)}</title>" if title else ""
    fill = _COLOURS[outcome]
    rectangle = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="14" rx="2" fill="{fill}">{told}</rect>'
    sign = (
        f'<text x="{x + width / 2:.1f}" y="{y + 11.5:.1f}" fill="#ffffff" text-anchor="middle">{_SIGNS[outcome]}</text>'
    )
    return [rectangle, sign] if _SIGNS[outcome] else [rectangle]


def _days(begins: datetime, top: float, bottom: float) -> list[str]:
    """Return a line at each midnight, and between the lines the days."""
    midnight = begins.replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [_label(16, y, "UTC", _DIM) for y in (top + 4, bottom + 18)]
    for number in range(HOURS * BARS // 24 + 2):
        day = midnight + timedelta(days=number)
        first, last = (_LEFT + (at - begins) / timedelta(hours=HOURS) * _STEP for at in (day, day + timedelta(days=1)))
        if _LEFT < first < _WIDTH - _RIGHT:
            lines.append(f'<path d="M{first:.1f} {top - 8:.1f}V{bottom + 22:.1f}" stroke="{_LINE}"/>')
        first, last = max(first, _LEFT), min(last, _WIDTH - _RIGHT)
        if last - first > 2 * _STEP - 1:  # there is room for the name of the day
            lines += [_label(first + 6, y, f"{day:%a %d %b}", _DIM) for y in (top + 4, bottom + 18)]
    return lines


def _label(x: float, y: float, text: str, colour: str, *, size: int = 12, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}"{anchor}>{escape(text)}</text>'


def _known(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def _sum(values: Values, what: str) -> str:
    known = _known(values)
    if not known:
        return f"how many offsets {what} is not known"
    at_least = "at least " if len(known) < len(values) else ""
    return f"{at_least}{sum(known):,.0f} offsets {what}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _age(seconds: float) -> str:
    """``0.4 s``, ``40 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
