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
    from offbeat.comparison import Difference, Row
    from offbeat.replay import Replayed
    from streams.bus import Bus


def replay(
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Keep what is found as this result set.")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="A recorded run, or what agents keep of it; without, what topics hold."
        ),
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
    logs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Beside topics: what agents keep on their hosts, or copies of it."),
    ] = None,
    memory: Annotated[
        float, typer.Option(min=0.01, metavar="GIB", help="Hold so much of the topics' logs at most.")
    ] = 2.0,
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
    from offbeat import options, overrides, past, result_sets, wiring
    from offbeat import replay as replaying
    from offbeat.reading import Reading, read_all
    from offbeat.signals import cleaned_up_on_sigterm
    from producers.kept_logs import Room

    live = settings_with(bootstrap=bootstrap, data_dir=data_dir)
    settings, texts = overrides.overridden(live, changed or (), settings_file)
    about: dict[str, Any] = {"result_set": name, "settings": texts}
    if paths:
        if since or until or job or logs:
            raise typer.BadParameter("--since, --until, --job and --logs are of topics; a recording is replayed whole")
        reading = Reading(format_name, None if layout is None else options.layout(layout), iteration_op)
        about |= {"source": [str(path) for path in paths]}
    else:
        if since is None:
            raise typer.BadParameter("give --since, or a recording")
        now_ns = time.time_ns()
        until_ns = now_ns if until is None else _ns(until)
        if until_ns <= _ns(since):
            raise typer.BadParameter("there is nothing between --since and --until")
        window = past.Window(_ns(since), until_ns, int(lead_in * 60e9), tuple(job or ()))
        folders = {} if logs is None else past.folders_of_jobs(logs)
        about |= {"source": "topics", "since_ns": window.since_ns, "until_ns": window.until_ns}
        about |= {} if logs is None else {"logs": str(logs)}
        of_traffic = sorted(name for name in texts if name.partition(".")[0] in overrides.OF_TRAFFIC)
        if of_traffic:
            terminal.note(f"NIC traffic is replayed of recordings alone: {', '.join(of_traffic)} changes nothing here")
    result_sets.require_free(live.store, name, replace=replace)
    if paths:
        recorded, held = read_all(paths, reading, noting=False), None
    else:
        bus = _checked(wiring.bus(live.kafka))
        held = past.of_topics(bus, window, now_ns=now_ns, room=Room(int(memory * (1 << 30))), folders=folders)
    with cleaned_up_on_sigterm(), result_sets.made(live.store, name, about, replace=replace) as store:
        sinks = [wiring.store_sink(store, result_sets.place(live.store, name))]
        if held is None:
            done = replaying.of_recording(recorded, live, settings, sinks)
        else:
            done = replaying.again(held, settings, sinks)
    if as_json:
        terminal.print_json({**about, **_answer(done)})
    else:
        _print(done, name)


def _checked(bus: Bus) -> Bus:
    """The bus, once it has answered: a client that follows a topic would go on asking for half a minute."""
    from schemas import catalogue
    from streams import topics

    topics.check(bus, (catalogue.JOBS,))
    return bus


def _ns(at: datetime) -> int:
    return int(at.replace(tzinfo=UTC).timestamp()) * 10**9


def _answer(done: Replayed) -> dict[str, Any]:
    return {
        "iterations": done.iterations,
        "gone": list(done.gone),
        "unjudged": list(done.unjudged),
        "refused": list(done.refused),
        "doubtful": done.doubtful,
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

    out = terminal.console()
    for word, lines in (("gone", done.gone), ("not judged", done.unjudged), ("not used", done.refused)):
        for line in lines:
            out.print(terminal.printable(f"{word}: {line}"), style="yellow")
    table = Table("", *VERDICTS, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for what, counts in done.counts.items():
        table.add_row(f"{what}s", *(str(counts[verdict]) for verdict in VERDICTS))
    out.print(table)
    shown = Table("", "job", "iterations", "then", "now", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for difference in done.differences:
        if difference.verdict != SAME:
            told = (_shown(difference, row) for row in (difference.then, difference.now))
            where = _iterations(difference.row)
            shown.add_row(f"{difference.verdict} {difference.what}", difference.job, where, *told)
    if shown.row_count:
        out.print(shown)
    out.print(f"{terminal.counted(done.iterations, 'iteration')} replayed; kept as result set {name}")
    if done.doubtful:
        out.print("What differs may come from what is gone, not from the settings.", style="yellow")


def _shown(difference: Difference, row: Row | None) -> str:
    """Who is named; of what has changed the columns that differ alone."""
    from offbeat.comparison import CHANGED
    from offbeat.report import headline

    if row is None:
        return ""
    if difference.verdict == CHANGED:
        return "\n".join(f"{name.replace('_', ' ')}: {_value(name, row[name])}" for name in difference.columns)
    return headline(_told(difference, row) or {}) if row["ranks"] else "nobody named"


def _value(column: str, value: Any) -> str:
    from sinks.webhook.content import names, ranges

    if column == "devices":
        return names([device["device"] for device in value]) or "none"
    if column == "ranks":
        return ranges(value) or "none"
    if column == "candidates":
        return " or ".join(ranges(ranks) for ranks in value) or "none"
    return "none" if value is None else str(value)


def _iterations(row: Row) -> str:
    return str(row["iteration"]) if "iteration" in row else f"{row['first_iteration']}-{row['last_iteration']}"
