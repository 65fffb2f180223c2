"""replay: the past diagnosed again with other settings."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal
from offbeat.commands.parameters import (
    Bootstrap,
    DataDir,
    FormatName,
    IterationOp,
    Json,
    LayoutText,
    settings_with,
)

if TYPE_CHECKING:
    from offbeat.comparison import Difference
    from offbeat.replay import Replayed
    from streams.bus import Bus


def replay(
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Keep what is found as this result set.")],
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="A recorded run; without one, what topics hold.")
    ] = None,
    changed: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, as monitor.delta=1.2.")
    ] = None,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="Settings, as OFFBEAT_MONITOR__DELTA=1.2 a line.")
    ] = None,
    since: Annotated[datetime | None, typer.Option(help="Of the topics: from then on (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(help="Of the topics: before (UTC); now, unless given.")] = None,
    lead_in: Annotated[
        float, typer.Option(min=0, metavar="MINUTES", help="Learn what is usual from so long before.")
    ] = 30.0,
    job: Annotated[list[str] | None, typer.Option(metavar="JOB", help="Of the topics: only this job.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the result set of this name.")] = False,
    format_name: FormatName = None,
    layout: LayoutText = None,
    iteration_op: IterationOp = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Diagnose the past again with other settings, and compare.

    What is found goes into a result set of its own, beside the live rows; nobody is paged.
    """
    from offbeat import options, overrides, result_sets, wiring
    from offbeat import replay as replaying
    from offbeat.reading import Reading

    live = settings_with(bootstrap=bootstrap, data_dir=data_dir)
    settings, texts = overrides.overridden(live, changed or (), settings_file)
    about: dict[str, Any] = {"result_set": name, "settings": texts}
    if paths:
        if since or until or job:
            raise typer.BadParameter("--since, --until and --job are of topics; a recording is replayed whole")
        reading = Reading(format_name, None if layout is None else options.layout(layout), iteration_op)
        about |= {"source": [str(path) for path in paths]}
    else:
        if since is None:
            raise typer.BadParameter("give --since, or a recording")
        now_ns = time.time_ns()
        window = replaying.Window(
            _ns(since), now_ns if until is None else _ns(until), int(lead_in * 60e9), tuple(job or ())
        )
        about |= {"source": "topics", "since_ns": window.since_ns, "until_ns": window.until_ns}
    result_sets.require_free(live.store, name, replace=replace)
    past = None if paths else replaying.of_topics(_checked(wiring.bus(live.kafka)), window, now_ns=now_ns)
    with result_sets.made(live.store, name, about, replace=replace) as store:
        sinks = [wiring.store_sink(store, result_sets.place(live.store, name))]
        if past is None:
            done = replaying.of_recording(paths or (), reading, live, settings, sinks)
        else:
            done = replaying.again(past, settings, sinks)
    if as_json:
        terminal.print_json({**about, **_answer(done)})
    else:
        _print(done, name)


def _checked(bus: Bus) -> Bus:
    """The bus, once it has answered: a client that follows a topic would go on asking for half a minute."""
    from schemas import catalogue
    from streams import topics

    topics.check(bus, (), (catalogue.JOBS,))
    return bus


def _ns(at: datetime) -> int:
    return int(at.replace(tzinfo=UTC).timestamp()) * 10**9


def _answer(done: Replayed) -> dict[str, Any]:
    return {
        "iterations": done.iterations,
        "gone": list(done.gone),
        "refused": list(done.refused),
        **{f"{what}s": dict(counts) for what, counts in done.counts.items()},
        "differences": [_row(difference) for difference in done.differences if difference.verdict != "same"],
    }


def _row(difference: Difference) -> dict[str, Any]:
    return {
        "what": difference.what,
        "verdict": difference.verdict,
        "job": difference.job,
        "then": _told(difference, difference.then),
        "now": _told(difference, difference.now),
        "columns": list(difference.columns),
    }


def _told(difference: Difference, row: Any) -> dict[str, Any] | None:
    """What a person acts upon, of a finding or an incident."""
    if row is None:
        return None
    where = (
        ("iteration",) if difference.what == "finding" else ("first_iteration", "last_iteration", "pattern", "state")
    )
    devices = [device["device"] for device in row["devices"]]
    return {**{name: row[name] for name in ("id", "cause", "level", "ranks", "candidates", *where)}, "devices": devices}


def _print(done: Replayed, name: str) -> None:
    from rich import box
    from rich.table import Table

    from offbeat.comparison import SAME, VERDICTS
    from offbeat.report import headline

    out = terminal.console()
    for line in (*(f"gone: {what}" for what in done.gone), *(f"not used: {why}" for why in done.refused)):
        out.print(terminal.printable(line), style="yellow")
    table = Table("", *VERDICTS, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for what, counts in done.counts.items():
        table.add_row(f"{what}s", *(str(counts[verdict]) for verdict in VERDICTS))
    out.print(table)
    shown = Table("", "job", "iterations", "then", "now", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for difference in done.differences:
        if difference.verdict == SAME:
            continue
        then, now = (_told(difference, row) for row in (difference.then, difference.now))
        told = [("" if row is None else headline(row) if row["ranks"] else "nobody named") for row in (then, now)]
        shown.add_row(f"{difference.verdict} {difference.what}", difference.job, _iterations(now or then or {}), *told)
    if shown.row_count:
        out.print(shown)
    out.print(f"{terminal.counted(done.iterations, 'iteration')} replayed; kept as result set {name}")


def _iterations(row: dict[str, Any]) -> str:
    return str(row["iteration"]) if "iteration" in row else f"{row['first_iteration']}-{row['last_iteration']}"
