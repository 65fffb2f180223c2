"""topics apply, retire: the topics on Kafka."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, Json, settings_with

topics = typer.Typer(name="topics", help="The topics on Kafka.", rich_markup_mode=None)

_WITHIN_S = 10.0
"""A person waits no longer for a broker's answer."""


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


@topics.command("retire")
def retire(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which, and drop none.")] = False,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Drop the jobs that ended so long ago that nothing else of them is kept: from control.jobs and addresses."""
    from offbeat import wiring
    from schemas.catalogue import ADDRESSES, JOBS
    from streams import retirement
    from streams.follower import Follower
    from streams.topics import check

    kafka = settings_with(bootstrap=bootstrap).kafka
    bus = wiring.bus(kafka)
    check(bus, (JOBS, ADDRESSES), within_s=_WITHIN_S)
    with Follower(bus, JOBS.name, within_s=_WITHIN_S) as follower:
        jobs = retirement.retired(follower.catch_up(), time.time_ns(), terminal.note)
    if jobs and not dry_run:
        publisher = wiring.publisher(kafka, "retirement")
        with Follower(bus, ADDRESSES.name, within_s=_WITHIN_S) as follower:
            for addresses in retirement.addresses_of(follower.catch_up(), jobs):
                publisher.send(addresses)
        publisher.flush()  # first: of a job that is dropped nobody looks for what is left
        for job in jobs:
            publisher.send(retirement.tombstone(job))
        publisher.flush()
    if as_json:
        terminal.print_json(jobs)
        return
    for job in jobs:
        print(f"would drop {job}" if dry_run else f"dropped {job}")
    if not jobs:
        print("no job is to be dropped")
