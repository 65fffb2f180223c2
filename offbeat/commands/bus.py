"""topics apply: the topics on Kafka."""

from __future__ import annotations

from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, Json, settings_with

topics = typer.Typer(name="topics", help="The topics on Kafka.", rich_markup_mode=None)

_WITHIN_S = 10.0
"""A person waits no longer for a broker's answer."""


@topics.callback()
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
