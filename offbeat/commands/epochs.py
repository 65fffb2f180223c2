"""epochs: what NICs sent, of agents that keep it for whoever asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, Json, settings_with

_SUFFIX = ".nic_epochs.jsonl"


def epochs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")],
    out: Annotated[Path, typer.Option(metavar=f"FILE{_SUFFIX}", help="Write them here, a poll a line.")],
    rank: Annotated[
        list[int] | None, typer.Option(min=0, metavar="RANK", help="Whose NICs; may be repeated; all by default.")
    ] = None,
    nic: Annotated[str | None, typer.Option(metavar="NAME", help="Only the NIC of this name.")] = None,
    from_ns: Annotated[
        int | None, typer.Option(min=0, metavar="NS", help="From this time on, in ns since the epoch.")
    ] = None,
    to_ns: Annotated[int | None, typer.Option(min=0, metavar="NS", help="Up to this time.")] = None,
    within: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How long agents may take.")] = 10.0,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Fetch raw NIC epochs that agents keep at the edge."""
    from offbeat.epochs import Asked, fetch
    from schemas.errors import InputError, SettingsError

    if not out.name.endswith(_SUFFIX):
        raise SettingsError(f"{out}: give a file whose name ends in {_SUFFIX}")
    settings = settings_with(bootstrap=bootstrap)
    with terminal.progress("asking the agents"):
        fetched = fetch(settings, Asked(job, rank or (), nic, from_ns, to_ns), within_s=within)
    if not fetched.outcomes:
        raise InputError(
            f"{job}: no agent has answered within {within:g} s: nothing is kept where segment_at is stream"
        )
    lines = (
        json.dumps({name: value for name, value in row.items() if value is not None}) + "\n" for row in fetched.rows
    )
    try:
        out.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{out}: {error.strerror or error}; give a file to write") from error
    silent = sorted(fetched.silent)
    told = {"job": job, "polls": len(fetched.rows), "outcomes": fetched.outcomes, "silent": silent, "file": str(out)}
    if as_json:
        terminal.print_json(told)
        return
    hosts = ", ".join(f"{host} {outcome}" for host, outcome in sorted(fetched.outcomes.items()))
    print(f"{terminal.counted(len(fetched.rows), 'poll')} in {out}: {hosts}")
    if silent:
        print(f"ranks without an answer: {', '.join(map(str, silent))}")
