"""store migrate, sql, rank: what is in the store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import DataDir, Json, settings_with

store = typer.Typer(name="store", help="The tables in ClickHouse or chDB.", rich_markup_mode=None)


@store.callback()
def _group() -> None:
    """Keeps a group with one command a group."""


@store.command("migrate")
def migrate(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be applied, and apply nothing.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Bring the store to the schema of this build; the second time nothing changes."""
    from offbeat import wiring
    from sinks.clickhouse.migrate import migrate as run

    with wiring.opened(settings_with(data_dir=data_dir).store, existing=dry_run) as opened:
        migrations = [str(migration) for migration in run(opened, dry_run)]
    if as_json:
        terminal.print_json(migrations)
        return
    for migration in migrations:
        print(f"{'would apply' if dry_run else 'applied'} {migration}")
    if not migrations:
        print("the store is as it should be")


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; parameters are {name:Type}.")],
    param: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter.")] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Answer with at most so many rows.")] = 10_000,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Ask the store; nothing can be changed this way."""
    from offbeat import tables, wiring
    from sinks.clickhouse.query import ask

    if as_csv and as_json:
        raise typer.BadParameter("give either --csv or --json")
    with wiring.opened(settings_with(data_dir=data_dir).store, existing=True) as opened:
        answer = ask(opened, query, dict(_parameter(text) for text in param or []), max_rows=max_rows)
    if answer.more:
        terminal.note(f"only the first {max_rows} rows; --max-rows asks for more")
    tables.print_rows(answer.rows, "json" if as_json else "csv" if as_csv else "table")


def rank(
    job: Annotated[str | None, typer.Option(help="Only devices of this job.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only findings from then on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only findings before (UTC).")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Rank devices by the evidence against them."""
    from offbeat import tables, wiring

    with wiring.opened(settings_with(data_dir=data_dir).store, existing=True) as opened:
        rows = tables.device_ranking(opened, job, _utc(since), _utc(until))
    tables.print_rows(rows, "json" if as_json else "table")


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=UTC)


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint="--param")
    return name, value
