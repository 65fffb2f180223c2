"""What is stored of a job, and what ought to be: that is what the runner without a broker makes of the same files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import uuid4

from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.recording import load
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.store import Store
from tests.integration.recordings import Recorded
from tests.services import ClickHouseAddress

_TABLES = {
    "iterations": (("iteration", "pivot"), "*"),
    "findings": (("id",), "* EXCEPT found_at"),
    "incidents": (("id",), "* EXCEPT (opened_at, updated_at, resolved_at)"),
    "comm_ops": ((), "count() AS rows, sum(cityHash64(toString(tuple(*)))) AS digest"),
}
"""Key and columns. Left out is when something was found: that is the bus' time, another one in every run."""

Rows = dict[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Stored:
    """What a store holds of a job: rows by their keys; of the many operators only the sum."""

    iterations: Rows
    findings: Rows
    incidents: Rows
    comm_ops: Rows

    @classmethod
    def of(cls, store: Store, job: str) -> Self:
        return cls(**{name: _rows(store, name, job) for name in _TABLES})

    def differences(self, expected: Self) -> Iterator[str]:
        """Where this is not as it should be."""
        for table in _TABLES:
            found, right = getattr(self, table), getattr(expected, table)
            yield from (f"{table}: too much: {found[key]}" for key in found.keys() - right.keys())
            yield from (f"{table}: missing: {right[key]}" for key in right.keys() - found.keys())
            for key in found.keys() & right.keys():
                for column, value in found[key].items():
                    if value != right[key][column]:
                        yield f"{table} {key}: {column} is {value}, not {right[key][column]}"


def _rows(store: Store, table: str, job: str) -> Rows:
    key, columns = _TABLES[table]
    rows = store.query(f"SELECT {columns} FROM {table} FINAL WHERE job = {{job:String}}", {"job": job}).to_pylist()
    return {tuple(row[name] for name in key): row for row in rows}


@contextmanager
def new_database(clickhouse: ClickHouseAddress) -> Iterator[ServerAddress]:
    """A database of one's own on a server that others use as well."""
    shared = ServerAddress(clickhouse.host, clickhouse.port, user=clickhouse.user, password=clickhouse.password)
    database = f"integration_{uuid4().hex}"
    admin = DriverStore(shared)
    try:
        admin.execute(f"CREATE DATABASE {database}")
        yield replace(shared, database=database)
        admin.execute(f"DROP DATABASE {database}")
    finally:
        admin.close()


def in_process(recorded: Recorded, store: Store) -> Stored:
    """Move a recording through the pipeline in this process, into a store."""
    settings, read = Settings(), load([recorded.folder])
    wiring.run_in_process(read.job, read.table, settings, [wiring.store_sink(store, settings.store)])
    return Stored.of(store, recorded.job)
