"""Bring a store to the schema of this build: the numbered migrations that it does not have yet, in order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

import pyarrow as pa

from schemas.errors import StoreError
from schemas.tables import TABLES
from sinks.clickhouse.store import Store, quoted

_NAME = re.compile(r"(?P<number>\d{4})_(?P<name>\w+)\.sql")
_STATEMENT_END = re.compile(r";\s*$", re.MULTILINE)
_MIGRATIONS = """
CREATE TABLE IF NOT EXISTS migrations
(
    number UInt32,
    name String,
    checksum String,
    applied_at DateTime('UTC') DEFAULT now('UTC')
)
ENGINE = ReplacingMergeTree
ORDER BY number
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step; ``checksum`` tells whether it is still the one that was applied."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """Of what the statements say, not of how a checkout ends its lines."""
        return hashlib.sha256("\n".join(self.sql.split()).encode()).hexdigest()[:16]

    @property
    def statements(self) -> list[str]:
        """The statements, in order."""
        return [statement.strip() for statement in _STATEMENT_END.split(self.sql) if statement.strip()]

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


def known_migrations() -> list[Migration]:
    """The migrations of this build, in order."""
    folder = resources.files("sinks.clickhouse") / "migrations"
    named = [(_NAME.fullmatch(file.name), file) for file in folder.iterdir()]
    return sorted(
        (Migration(int(match["number"]), match["name"], file.read_text("utf-8")) for match, file in named if match),
        key=lambda migration: migration.number,
    )


def migrate(store: Store, dry_run: bool = False, migrations: Sequence[Migration] | None = None) -> list[Migration]:
    """Apply the migrations that the store lacks and return them; with ``dry_run`` only return them.

    Column docs are brought up to date as well: they are not part of the steps. Migrating twice changes nothing.
    Raises ``StoreError`` where an applied migration was edited since, or is one that this build does not know.
    """
    known = known_migrations() if migrations is None else migrations
    missing = _missing(known, _applied(store))
    if dry_run:
        return missing
    store.execute(_MIGRATIONS)
    for migration in missing:
        for statement in migration.statements:
            store.execute(statement)
        row = {"number": migration.number, "name": migration.name, "checksum": migration.checksum}
        store.insert("migrations", pa.Table.from_pylist([row]), token=f"{migration}/{migration.checksum}")
    _document(store)
    return missing


def require_migrated(store: Store, remedy: str = "offbeat store migrate") -> None:
    """Raise ``StoreError`` where the store has not exactly the migrations of this build; ``remedy`` is a command."""
    if missing := _missing(known_migrations(), _applied(store)):
        raise StoreError(f"the store lacks migration {missing[0]}; run `{remedy}`")


def _applied(store: Store) -> dict[int, tuple[str, str]]:
    """Name and checksum of the migrations that the store has, by number."""
    if not store.query("EXISTS TABLE migrations").column(0)[0].as_py():
        return {}
    rows = store.query("SELECT number, name, checksum FROM migrations FINAL").to_pylist()
    return {row["number"]: (row["name"], row["checksum"]) for row in rows}


def _missing(known: Iterable[Migration], applied: dict[int, tuple[str, str]]) -> list[Migration]:
    ours = {migration.number: migration for migration in known}
    for number, (name, checksum) in sorted(applied.items()):
        if number not in ours:
            raise StoreError(
                f"the store has migration {number:04}_{name}, which this build does not know: use a newer one"
            )
        if ours[number].checksum != checksum:
            raise StoreError(
                f"migration {ours[number]} is not the one that the store has ({number:04}_{name}): restore its file and"
                " put what is new into a migration of its own"
            )
    return [migration for number, migration in sorted(ours.items()) if number not in applied]


def _document(store: Store) -> None:
    """Give the columns their docs as comments, where they differ."""
    found = store.query("SELECT table, name, comment FROM system.columns WHERE database = currentDatabase()")
    comments = {(row["table"], row["name"]): row["comment"] for row in found.to_pylist()}
    for table in TABLES.values():
        docs = {column.name: column.doc for column in table.columns}
        changes = [
            f"COMMENT COLUMN `{name}` {quoted(doc)}"
            for name, doc in docs.items()
            if comments.get((table.name, name), doc) != doc
        ]
        if changes:
            store.execute(f"ALTER TABLE {table.name} {', '.join(changes)}")
