"""topics apply, dead-letters list: what is on Kafka."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, Json, settings_with

topics = typer.Typer(name="topics", help="The topics on Kafka.", rich_markup_mode=None)
dead_letters = typer.Typer(name="dead-letters", help="Messages that could not be processed.", rich_markup_mode=None)

_WITHIN_S = 10.0
"""A person waits no longer for a broker's answer."""


@topics.callback()
@dead_letters.callback()
def _group() -> None:
    """Keeps a group with one command a group."""


@topics.command("apply")
def apply(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Create the topics of the catalogue and adapt their settings; the second time nothing changes."""
    from offbeat import wiring
    from schemas.catalogue import TOPICS
    from streams.topics import apply as run

    kafka = settings_with(bootstrap=bootstrap).kafka
    changes = run(
        wiring.bus(kafka),
        TOPICS.values(),
        replication_factor=kafka.replication_factor,
        dry_run=dry_run,
        within_s=_WITHIN_S,
    )
    if as_json:
        fields = ("topic", "setting", "before", "after", "applied")
        terminal.print_json([{name: getattr(change, name) for name in fields} for change in changes])
        return
    for change in changes:
        print(f"would apply {change}" if dry_run else change)
    if not changes:
        print(f"{len(TOPICS)} topics are as they should be")


@dead_letters.command("list")
def list_(bootstrap: Bootstrap = None, as_json: Json = False) -> None:
    """Say which messages could not be processed, and why."""
    from offbeat import wiring
    from schemas.catalogue import DEAD_LETTERS
    from schemas.message import decode
    from streams.follower import Follower
    from streams.topics import check

    shown = ("at_ns", "job", "processor", "topic", "partition", "offset", "error", "reason")
    bus = wiring.bus(settings_with(bootstrap=bootstrap).kafka)
    check(bus, (DEAD_LETTERS,), within_s=_WITHIN_S)
    with Follower(bus, DEAD_LETTERS.name, within_s=_WITHIN_S) as follower:
        rows = [
            {name: row[name] for name in shown}
            for message in follower.catch_up()
            for row in (letter | {"job": message.job} for letter in decode(message, DEAD_LETTERS).to_pylist())
        ]
    if as_json:
        terminal.print_json(rows)
        return
    for row in rows:
        where = f"{row['topic']} partition {row['partition']} offset {row['offset']}"
        at = datetime.fromtimestamp(row["at_ns"] / 1e9, UTC)
        print(f"{at:%Y-%m-%d %H:%M:%SZ} job {row['job']}, {row['processor']}: {where}: {row['error']}: {row['reason']}")
    if not rows:
        print("no dead letters")
