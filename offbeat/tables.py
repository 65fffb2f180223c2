"""Rows of the store as people and programs read them, and the device ranking."""

from __future__ import annotations

import csv
import json
import math
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from diagnosis.ranking.devices import RankingSettings
from offbeat import terminal
from schemas.tables import TABLES
from sinks.clickhouse.query import ask
from sinks.clickhouse.store import Store

Form = Literal["table", "json", "csv"]

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(2200, 1, 1, tzinfo=UTC)
"""The window that leaves nothing out."""

_RANKING = """
SELECT place, device, kind, job, round(score, 6) AS score, findings, round(irregularity_rate, 6) AS irregularity_rate,
    ambiguity_set
FROM device_ranking(
    window_from = {since:DateTime64(9, 'UTC')}, window_to = {until:DateTime64(9, 'UTC')},
    alpha = {alpha:Float64}, epsilon = {epsilon:Float64}, prior = {prior:Bool}, decay = {decay:Bool},
    coverage = {coverage:Bool}, k = {top:UInt32}
)
WHERE {job:String} = '' OR job = {job:String}
ORDER BY job, place, device_ranking.score DESC, device
"""

_SPAN = """
SELECT count() AS rows, toUnixTimestamp64Nano(min(at)) AS first, toUnixTimestamp64Nano(max(at)) AS last
FROM (
    SELECT start_at AS at FROM iterations WHERE job = {job:String}
    UNION ALL SELECT call_at AS at FROM traffic_metrics WHERE job = {job:String}
)
"""


def device_ranking(
    store: Store,
    ranking: RankingSettings,
    job: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> pa.Table:
    """Devices of one job or of all by the evidence against them, first the most suspicious; raises ``StoreError``."""
    window = {"since": since or FIRST, "until": until or LAST}
    return ask(store, _RANKING, {**asdict(ranking), **window, "job": job or ""}).rows


def knows(store: Store, job: str) -> bool:
    """Whether anything at all is stored of a job; raises ``StoreError``."""
    asked = " OR ".join(f"EXISTS (SELECT 1 FROM {name} WHERE job = {{job:String}})" for name in TABLES)
    return bool(ask(store, f"SELECT {asked} AS known", {"job": job}).rows.column("known")[0].as_py())


def stored_span_ns(store: Store, job: str) -> tuple[int, int] | None:
    """The first and the last time that is stored of a job, ns since the epoch; raises ``StoreError``."""
    [span] = ask(store, _SPAN, {"job": job}).rows.to_pylist()
    return (span["first"], span["last"]) if span["rows"] else None


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON values; points in time are text with all their digits, what is not finite is null."""
    for at, field in enumerate(table.schema):
        if pa.types.is_temporal(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def print_rows(table: pa.Table, form: Form) -> None:
    """Print rows on stdout: aligned for people, or as JSON or CSV, whose nested cells are JSON, for programs."""
    rows = rows_of(table)
    match form:
        case "json":
            terminal.print_json(rows)
        case "csv":
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(table.column_names)
            writer.writerows([_cell(value) for value in row.values()] for row in rows)
        case "table":
            print_aligned(rows)


def print_aligned(rows: list[dict[str, Any]]) -> None:
    """Print rows as a table, or one below the other where the terminal is too narrow for it."""
    from rich import box
    from rich.table import Table

    out = terminal.console()
    if not rows:
        out.print("no rows")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in rows[0]:
        numbers = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    if out.measure(table, options=out.options.update(max_width=terminal.UNBROKEN)).maximum <= out.width:
        out.print(table)
        return
    for number, row in enumerate(rows, start=1):
        out.print(f"row {number}", style="bold")
        for name, value in row.items():
            out.print(f"   {name}: {_text(value)}")


def _cell(value: Any) -> str:
    """A value for programs: what is nested as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else _text(value)


def _text(value: Any) -> str:
    """A value for people."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
