"""Verified cuts in a file of SQLite: what changes is written, whatever the number of keys."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from streamplan.checks.framework.verified import KeyTotals, VerifiedCut
from streamplan.errors import CouldNotLook

LOCK_SECONDS = 30.0
"""Two looks that end together take turns."""

_SCHEMA = """
create table if not exists cut (verified text not null);
create table if not exists counted (key blob primary key, records integer not null) without rowid;
create table if not exists held (key blob, partition integer, total integer not null, primary key (key, partition))
    without rowid;
"""
_VARIABLES = 500


class SqliteVerifiedStore:
    """``checks.verified.VerifiedStore`` in the file ``path``, made when something is kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def verified(self) -> VerifiedCut | None:
        with self._open() as database:
            return _read(database)

    def held(self, keys: Collection[bytes] | None) -> Mapping[bytes, KeyTotals]:
        with self._open() as database:
            if keys is None:
                return _held(database, "", ())
            found: dict[bytes, KeyTotals] = {}
            left = iter(keys)
            while some := tuple(islice(left, _VARIABLES)):
                found |= _held(database, f" where key in ({','.join('?' * len(some))})", some)
            return found

    def keys(self) -> int:
        with self._open() as database:
            return int(database.execute("select count(*) from counted").fetchone()[0])

    def keep(self, verified: VerifiedCut, changed: Mapping[bytes, KeyTotals], *, after: VerifiedCut | None) -> None:
        with self._open() as database, database:
            database.execute("begin immediate")
            if after is None:
                for table in ("counted", "held"):
                    database.execute(f"delete from {table}")
            elif _read(database) != after:
                return
            database.execute("delete from cut")
            database.execute("insert into cut values (?)", (_written(verified),))
            database.executemany(
                "insert or replace into counted values (?, ?)", ((key, one.counted) for key, one in changed.items())
            )
            database.executemany(
                "insert or replace into held values (?, ?, ?)",
                ((key, number, total) for key, one in changed.items() for number, total in one.values.items()),
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None)) as database:
                database.executescript(_SCHEMA)
                yield database
        except sqlite3.Error as error:
            raise CouldNotLook(
                f"the verified cut in {self.path}",
                observed=str(error),
                remedy="Remove the file: the next look counts from the beginning.",
            ) from error


def _read(database: sqlite3.Connection) -> VerifiedCut | None:
    row = database.execute("select verified from cut").fetchone()
    if row is None:
        return None
    found = json.loads(row[0])
    return VerifiedCut(
        topics=found["topics"],
        source=_positions(found["source"]),
        changelog=_positions(found["changelog"]),
        letters=_positions(found["letters"]),
        records=found["records"],
        waiting=frozenset(bytes.fromhex(key) for key in found["waiting"]),
        repartition=_positions(found.get("repartition", {})),  # not in a file of an earlier version
    )


def _written(verified: VerifiedCut) -> str:
    return json.dumps(
        {
            "topics": dict(verified.topics),
            "source": dict(verified.source),
            "changelog": dict(verified.changelog),
            "letters": dict(verified.letters),
            "records": verified.records,
            "waiting": sorted(key.hex() for key in verified.waiting),
            "repartition": dict(verified.repartition),
        }
    )


def _positions(found: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in found.items()}


def _held(database: sqlite3.Connection, condition: str, keys: Collection[bytes]) -> dict[bytes, KeyTotals]:
    values: dict[bytes, dict[int, int]] = {}
    for key, number, total in database.execute(f"select key, partition, total from held{condition}", tuple(keys)):
        values.setdefault(key, {})[number] = total
    counted = database.execute(f"select key, records from counted{condition}", tuple(keys))
    return {key: KeyTotals(records, values.get(key, {})) for key, records in counted}
