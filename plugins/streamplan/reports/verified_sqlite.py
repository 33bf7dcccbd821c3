"""The store of the last verified cut as an SQLite file: it writes what changes, whatever the number of keys."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from streamplan.checks.framework.verified import KeyTotals, VerifiedCut
from streamplan.errors import CouldNotLook
from streamplan.files import NOT_AS_WRITTEN

LOCK_SECONDS = 30.0
"""SQLite's busy timeout in seconds."""

_SCHEMA = """
create table if not exists cut (verified text not null);
create table if not exists counted (key blob primary key, records integer not null) without rowid;
create table if not exists held (key blob, partition integer, total integer not null, primary key (key, partition))
    without rowid;
"""
"""``counted`` and ``held`` are the two fields of :class:`KeyTotals`."""

_MAX_VARIABLES = 500
"""The most values in one query; SQLite has a limit."""


class SqliteVerifiedStore:
    """Implements ``checks.framework.verified.VerifiedStore`` in the file ``path``, which it creates if necessary.

    Every method raises :class:`CouldNotLook` where SQLite cannot read or write the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut(self) -> VerifiedCut | None:
        """Return the last verified cut, or None."""
        with self._open() as database:
            return _read_cut(database)

    def key_totals(self, keys: Collection[bytes] | None) -> Mapping[bytes, KeyTotals]:
        """Return what was verified of these keys, of all keys for None. Keys without records are absent."""
        with self._open() as database:
            if keys is None:
                return _read_key_totals(database, "", ())
            totals: dict[bytes, KeyTotals] = {}
            remaining = iter(keys)
            while some := tuple(islice(remaining, _MAX_VARIABLES)):
                totals |= _read_key_totals(database, f" where key in ({','.join('?' * len(some))})", some)
            return totals

    def key_count(self) -> int:
        """Return the number of keys."""
        with self._open() as database:
            return int(database.execute("select count(*) from counted").fetchone()[0])

    def advance(self, cut: VerifiedCut, changed: Mapping[bytes, KeyTotals], *, previous: VerifiedCut | None) -> None:
        """Replace the last verified cut, in one transaction; see ``VerifiedStore``."""
        with self._open() as database, database:
            database.execute("begin immediate")
            if previous is None:
                for table in ("counted", "held"):
                    database.execute(f"delete from {table}")
            elif _read_cut(database) != previous:
                return
            database.execute("delete from cut")
            database.execute("insert into cut values (?)", (_encode(cut),))
            database.executemany(
                "insert or replace into counted values (?, ?)",
                ((key, totals.counted) for key, totals in changed.items()),
            )
            database.executemany(
                "insert or replace into held values (?, ?, ?)",
                (
                    (key, partition, total)
                    for key, totals in changed.items()
                    for partition, total in totals.changelog.items()
                ),
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None)) as database:
                database.executescript(_SCHEMA)
                yield database
        except (OSError, sqlite3.Error, *NOT_AS_WRITTEN) as error:
            raise CouldNotLook(
                f"the verified cut in {self.path}",
                observed=str(error),
                remedy="Remove the file: the next look counts from the beginning.",
            ) from error


def _read_cut(database: sqlite3.Connection) -> VerifiedCut | None:
    row = database.execute("select verified from cut").fetchone()
    if row is None:
        return None
    content = json.loads(row[0])
    return VerifiedCut(
        topic_ids=content["topics"],
        source=_positions(content["source"]),
        changelog=_positions(content["changelog"]),
        dead_letters=_positions(content["letters"]),
        records=content["records"],
        in_flight=frozenset(bytes.fromhex(key) for key in content["waiting"]),
        repartition=_positions(content.get("repartition", {})),  # not in a file of an earlier version
        repartition_ends=None if (ends := content.get("repartition ends")) is None else _positions(ends),
        not_compared=content.get("not compared", 0),
        without_key=content.get("without key", 0),
    )


def _encode(cut: VerifiedCut) -> str:
    return json.dumps(
        {
            "topics": dict(cut.topic_ids),
            "source": dict(cut.source),
            "changelog": dict(cut.changelog),
            "letters": dict(cut.dead_letters),
            "records": cut.records,
            "waiting": sorted(key.hex() for key in cut.in_flight),
            "repartition": dict(cut.repartition),
            "repartition ends": None if cut.repartition_ends is None else dict(cut.repartition_ends),
            "not compared": cut.not_compared,
            "without key": cut.without_key,
        }
    )


def _positions(content: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in content.items()}


def _read_key_totals(database: sqlite3.Connection, condition: str, keys: Collection[bytes]) -> dict[bytes, KeyTotals]:
    changelog: dict[bytes, dict[int, int]] = {}
    for key, partition, total in database.execute(f"select key, partition, total from held{condition}", tuple(keys)):
        changelog.setdefault(key, {})[partition] = total
    counted = database.execute(f"select key, records from counted{condition}", tuple(keys))
    return {key: KeyTotals(records, changelog.get(key, {})) for key, records in counted}
