"""dead-letters list, replay: messages that could not be processed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, Json, settings_with
from offbeat.errors import ExitCode

if TYPE_CHECKING:
    from offbeat.setting_groups import KafkaSettings
    from streams.redelivery import Letter, Redelivered, Wanted

dead_letters = typer.Typer(name="dead-letters", help="Messages that could not be processed.", rich_markup_mode=None)

_WITHIN_S = 10.0
"""A person waits no longer for a broker's answer."""
_READ_WITHIN_S = 600.0
"""Nor for a month of dead letters."""
_MOST_SHOWN = 20

OfTopic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only messages of this topic.")]
OfError = Annotated[str | None, typer.Option("--error", metavar="CLASS", help="Only for this error, as WrongSchema.")]
OfJob = Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only messages of this job.")]
Since = Annotated[datetime | None, typer.Option(help="Only messages from then on (UTC).")]
Until = Annotated[datetime | None, typer.Option(help="Only messages before (UTC).")]


@dead_letters.command("list")
def list_(
    topic: OfTopic = None,
    error: OfError = None,
    job: OfJob = None,
    since: Since = None,
    until: Until = None,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Say which messages could not be processed, and why."""
    wanted = _wanted(topic, error, job, since, until)
    with _letters(settings_with(bootstrap=bootstrap).kafka, wanted) as letters:
        rows = [_row(letter) for letter in letters]
    if as_json:
        terminal.print_json(rows)
        return
    for row in rows:
        at = datetime.fromtimestamp(row["at_ns"] / 1e9, UTC)
        line = f"{at:%Y-%m-%d %H:%M:%SZ} job {row['job']}, {row['processor']}: {_where(row)}"
        print(terminal.printable(line))
    if not rows:
        print("no dead letters")


@dead_letters.command("replay")
def replay(
    topic: OfTopic = None,
    error: OfError = None,
    job: OfJob = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Send those as well that this build would bury again; 50 stop a worker.")
    ] = False,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Send buried messages to their topics again, once what refused them is mended.

    What would be buried again is told and not sent; the exit code is 1 then. Replayed twice, nothing is found, stored
    or paged twice: ids are the same.
    """
    from offbeat import wiring
    from schemas.catalogue import JOBS
    from streams.control_view import FollowedJobs
    from streams.follower import Follower
    from streams.redelivery import redeliver

    kafka = settings_with(bootstrap=bootstrap).kafka
    wanted = _wanted(topic, error, job, since, until)
    with (
        _letters(kafka, wanted) as letters,
        Follower(wiring.bus(kafka), JOBS.name, within_s=_READ_WITHIN_S) as follower,
        terminal.progress("replaying dead letters"),
    ):
        jobs = FollowedJobs(follower)
        jobs.catch_up()
        outbox = None if dry_run else wiring.publisher(kafka, "replay")
        done = redeliver(letters, jobs, outbox, force=force)
    if as_json:
        terminal.print_json(_answer(done, dry_run=dry_run))
    else:
        _print(done, dry_run=dry_run)
    if not all(failing.sent for failing in done.failing):
        raise typer.Exit(ExitCode.FOUND)


@contextmanager
def _letters(kafka: KafkaSettings, wanted: Wanted) -> Iterator[Iterator[Letter]]:
    """The wanted letters that there are now; raises ``BusError`` where no broker answers or the topic is missing."""
    from offbeat import wiring
    from schemas.catalogue import DEAD_LETTERS
    from streams.follower import Follower
    from streams.redelivery import letters_of
    from streams.topics import check

    bus = wiring.bus(kafka)
    check(bus, (DEAD_LETTERS,), within_s=_WITHIN_S)
    with Follower(bus, DEAD_LETTERS.name, within_s=_READ_WITHIN_S) as follower:
        yield (letter for letter in letters_of(follower.catch_up(), terminal.note) if letter in wanted)


def _wanted(
    topic: str | None, error: str | None, job: str | None, since: datetime | None, until: datetime | None
) -> Wanted:
    from streams.redelivery import Wanted

    return Wanted(topic, error, job, _ns(since), _ns(until))


def _ns(at: datetime | None) -> int | None:
    return None if at is None else int(at.replace(tzinfo=UTC).timestamp()) * 10**9


def _row(letter: Letter) -> dict[str, Any]:
    message = letter.message
    return {
        "at_ns": letter.at_ns,
        "job": letter.job,
        "processor": letter.processor,
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "error": letter.error,
        "reason": letter.reason,
        "replayed_from": letter.origin if letter.replayed_before else None,
    }


def _where(row: dict[str, Any]) -> str:
    again = f" (replayed from {row['replayed_from']})" if row["replayed_from"] else ""
    place = f"{row['topic']} partition {row['partition']} offset {row['offset']}"
    return f"{place}{again}: {row['error']}: {row['reason']}"


def _answer(done: Redelivered, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "sent": dict(sorted(done.sent.items())),
        "repeated": done.repeated,
        "failing": [
            {**_row(failing.letter), "still": failing.reason, "sent": failing.sent} for failing in done.failing
        ],
    }


def _print(done: Redelivered, *, dry_run: bool) -> None:
    by_topic = ", ".join(f"{topic} {count}" for topic, count in sorted(done.sent.items()))
    said = "would send" if dry_run else "sent"
    total = terminal.counted(done.sent.total(), "message")
    print(terminal.printable(f"{said} {total}" + (f": {by_topic}" if by_topic else "")))
    if done.repeated:
        print(f"{terminal.counted(done.repeated, 'further letter')} told of the same messages")
    for failing in done.failing[:_MOST_SHOWN]:
        fate = "sent all the same" if failing.sent else "not sent"
        message = failing.letter.message
        line = f"{fate}: {message.topic} partition {message.partition} offset {message.offset}: {failing.reason}"
        print(terminal.printable(line))
    if len(done.failing) > _MOST_SHOWN:
        print(f"... and {len(done.failing) - _MOST_SHOWN} more, which --json lists")
