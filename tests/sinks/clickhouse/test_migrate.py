"""The migrations add up to what schemas/tables.py declares, and can be run whenever."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import StoreError
from schemas.tables import TABLES
from schemas.views import VIEWS
from sinks.clickhouse.migrate import Migration, known_migrations, migrate, require_migrated
from sinks.clickhouse.store import Store
from tests.sinks.clickhouse.declared import create_table, create_view

FIRST = Migration(1, "first", "CREATE TABLE IF NOT EXISTS a (n Int32) ENGINE = MergeTree ORDER BY n;\n")
SECOND = Migration(
    2, "second", "ALTER TABLE a ADD COLUMN IF NOT EXISTS m Int32;\n-- and\nALTER TABLE a DROP COLUMN m;\n"
)


def schema_of(store: Store) -> dict[str, Any]:
    """Tables, views and columns as the store tells them, the migrations' own table aside."""
    tables = store.query("""
        SELECT
            name, engine_full, partition_key, sorting_key, parameterized_view_parameters AS parameters,
            replaceAll(as_select, currentDatabase() || '.', '') AS sql
        FROM system.tables WHERE database = currentDatabase() AND name != 'migrations'
    """)
    columns = store.query("""
        SELECT table, name, type, default_kind, default_expression
        FROM system.columns WHERE database = currentDatabase() AND table != 'migrations'
        ORDER BY table, position
    """)
    return {"tables": {row["name"]: row for row in tables.to_pylist()}, "columns": columns.to_pylist()}


def test_migrated_is_declared(store: Store) -> None:
    migrate(store)
    migrated = schema_of(store)
    for name in [*VIEWS, *TABLES, "migrations"]:
        store.execute(f"DROP TABLE {name}")
    for table in TABLES.values():
        store.execute(create_table(table))
    for view in VIEWS.values():
        store.execute(create_view(view))
    declared = schema_of(store)
    assert migrated == declared
    assert set(migrated["tables"]) == set(TABLES) | set(VIEWS)


def test_columns_carry_their_docs(migrated: Store) -> None:
    migrated.execute("ALTER TABLE findings COMMENT COLUMN cause 'out of date'")
    migrate(migrated)
    found = migrated.query("SELECT table, name, comment FROM system.columns WHERE database = currentDatabase()")
    comments = {(row["table"], row["name"]): row["comment"] for row in found.to_pylist()}
    for table in TABLES.values():
        for column in table.columns:
            assert comments[table.name, column.name] == column.doc


def test_migrating_twice_changes_nothing(store: Store) -> None:
    first = migrate(store)
    assert first == known_migrations()
    before = schema_of(store)
    assert migrate(store) == []
    assert schema_of(store) == before
    require_migrated(store)


def test_a_dry_run_only_tells(store: Store) -> None:
    assert migrate(store, dry_run=True) == known_migrations()
    assert store.query("SHOW TABLES").num_rows == 0
    with pytest.raises(StoreError, match="lacks migration 0001_tables; run `offbeat store migrate`"):
        require_migrated(store)


def test_only_what_is_missing_is_applied(store: Store) -> None:
    assert migrate(store, migrations=[FIRST]) == [FIRST]
    assert migrate(store, dry_run=True, migrations=[FIRST, SECOND]) == [SECOND]
    assert migrate(store, migrations=[FIRST, SECOND]) == [SECOND]


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_edited_migration_is_refused(store: Store, dry_run: bool) -> None:
    migrate(store, migrations=[FIRST])
    edited = replace(FIRST, sql=FIRST.sql.replace("Int32", "Int64"))
    with pytest.raises(StoreError, match="migration 0001_first is not the one that the store has"):
        migrate(store, dry_run, migrations=[edited, SECOND])
    spaced = replace(FIRST, sql=FIRST.sql.replace(" (", "\r\n("))
    assert migrate(store, migrations=[spaced]) == []  # how a checkout breaks lines is no edit


def test_a_store_that_is_ahead_is_refused(store: Store) -> None:
    migrate(store, migrations=[FIRST, SECOND])
    with pytest.raises(StoreError, match="the store has migration 0002_second, which this build does not know"):
        migrate(store, migrations=[FIRST])


def test_every_step_can_be_run_again(migrated: Store) -> None:
    """A run that dies between a step and its note runs that step again."""
    before = schema_of(migrated)
    migrated.execute("TRUNCATE TABLE migrations")
    assert migrate(migrated) == known_migrations()
    assert schema_of(migrated) == before


def test_a_step_that_fails_is_not_noted(store: Store) -> None:
    broken = Migration(
        2, "broken", "ALTER TABLE a ADD COLUMN IF NOT EXISTS b Int32;\nALTER TABLE nowhere DROP COLUMN b;\n"
    )
    with pytest.raises(StoreError, match="nowhere"):
        migrate(store, migrations=[FIRST, broken])
    mended = replace(broken, sql="ALTER TABLE a ADD COLUMN IF NOT EXISTS b Int32;\n")
    assert migrate(store, migrations=[FIRST, mended]) == [mended]


def test_the_numbers_have_no_gap() -> None:
    assert [migration.number for migration in known_migrations()] == list(range(1, len(known_migrations()) + 1))
    folder = Path(__file__).parents[3] / "sinks" / "clickhouse" / "migrations"
    assert len(list(folder.glob("*.sql"))) == len(known_migrations())
