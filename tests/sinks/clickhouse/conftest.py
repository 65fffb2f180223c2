"""Both engines behind the store contract, empty for each test."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sinks.clickhouse.chdb import ChdbStore
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.store import Store
from tests.services import ClickHouseAddress


@pytest.fixture
def chdb(tmp_path: Path) -> Iterator[ChdbStore]:
    """A chDB folder. Tests run one after the other in a process, so each may have the engine to itself."""
    store = ChdbStore(tmp_path / "chdb")
    yield store
    store.close()


@pytest.fixture
def server(clickhouse: ClickHouseAddress) -> Iterator[ServerAddress]:
    """A database of this test's own on the shared server."""
    shared = ServerAddress(clickhouse.host, clickhouse.port, user=clickhouse.user, password=clickhouse.password)
    database = f"test_{uuid.uuid4().hex}"
    admin = DriverStore(shared)
    admin.execute(f"CREATE DATABASE {database}")
    yield replace(shared, database=database)
    admin.execute(f"DROP DATABASE {database}")
    admin.close()


@pytest.fixture(params=["chdb", pytest.param("server", marks=pytest.mark.clickhouse)])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Either engine."""
    if request.param == "chdb":
        yield request.getfixturevalue("chdb")
    else:
        store = DriverStore(request.getfixturevalue("server"))
        yield store
        store.close()


@pytest.fixture
def migrated(store: Store) -> Store:
    """Either engine, with all tables and views."""
    migrate(store)
    return store
