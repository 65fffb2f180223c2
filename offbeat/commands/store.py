"""store migrate, sql, rank: what is in the store."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import DataDir, Json, settings_with
from schemas.errors import StoreError

_JOBS = "SELECT job FROM iterations UNION DISTINCT SELECT job FROM traffic_metrics"

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
    from sinks.clickhouse.chdb import holds_store
    from sinks.clickhouse.migrate import known_migrations
    from sinks.clickhouse.migrate import migrate as run

    settings = settings_with(data_dir=data_dir).store
    if dry_run and settings.engine == "chdb" and not (settings.path.is_file() or holds_store(settings.path)):
        terminal.note(f"the chDB folder {settings.path.absolute()} would be made")
        migrations = known_migrations()
    else:
        with wiring.opened(settings, existing=dry_run) as opened:
            migrations = run(opened, dry_run)
    if as_json:
        terminal.print_json([str(migration) for migration in migrations])
        return
    for migration in migrations:
        print(f"{'would apply' if dry_run else 'applied'} {migration}")
    if not migrations:
        print("the store is as it should be")


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; parameters are {name:Type}.")],
    param: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter.")] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Answer with at most so many rows.")] = 10_000,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header; nested values as JSON.")] = False,
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
        terminal.note(f"only the first {terminal.counted(max_rows, 'row')}; --max-rows asks for more")
    tables.print_rows(answer.rows, "json" if as_json else "csv" if as_csv else "table")


def rank(
    job: Annotated[str | None, typer.Option(help="Only devices of this job.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Only findings from then on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Only findings before (UTC).")] = None,
    top: Annotated[int, typer.Option("--top", "-k", min=0, help="Tell so many places of each job; 0: all.")] = 2,
    alpha: Annotated[float, typer.Option(help="How many irregularities the prior weighs as much as.")] = 1.0,
    prior: Annotated[bool, typer.Option("--prior/--no-prior", help="Count how often each kind is at fault.")] = True,
    decay: Annotated[
        bool, typer.Option("--decay/--no-decay", help="Count less against devices that many NICs share.")
    ] = True,
    coverage: Annotated[
        bool,
        typer.Option(
            "--coverage/--no-coverage",
            help="Keep what names switches alone; decay them by branches below for each one named, not by all NICs.",
        ),
    ] = True,
    epsilon: Annotated[float, typer.Option(help="Of the decay; the paper prints 1e-6.")] = math.e,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Rank devices by the evidence against them.

    What nothing tells apart shares a place.
    """
    from diagnosis.ranking.devices import RankingSettings
    from offbeat import tables, wiring

    try:
        ranking = RankingSettings(alpha, epsilon, prior, decay, coverage, top)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    since, until = _utc(since), _utc(until)
    if since is not None and until is not None and until <= since:
        raise typer.BadParameter("there is nothing between --since and --until")
    settings = settings_with(data_dir=data_dir).store
    with wiring.opened(settings, existing=True) as opened:
        rows = tables.device_ranking(opened, ranking, job, since, until)
        if job is not None and not rows.num_rows and not tables.knows(opened, job):
            asking = f"offbeat sql '{_JOBS}'{wiring.in_folder(settings)}"
            raise StoreError(f"nothing is stored of job {job!r}; see `{asking}`")
    if not rows.num_rows and since is not None and since > datetime.now(UTC):
        raise typer.BadParameter(f"--since is {since:%Y-%m-%d %H:%M} UTC, which is yet to come")
    tables.print_rows(rows, "json" if as_json else "table")


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=UTC)


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint="--param")
    return name, value
