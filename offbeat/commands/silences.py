"""silences add, list, end: what nobody wants to be paged for, for a while."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from diagnosis.ranking.prior import BAD_DEVICES
from offbeat import terminal
from offbeat.commands.parameters import Bootstrap, Json, settings_with
from schemas.errors import SettingsError

if TYPE_CHECKING:
    from sinks.webhook.silences import Silence, Silences
    from streams.bus import Bus

silences = typer.Typer(name="silences", help="What nobody wants to be paged for, for a while.", rich_markup_mode=None)

_WITHIN_S = 10.0
"""A person waits no longer for a broker's answer."""

_LONGEST_HOURS = 24.0 * 90


@silences.command("add")
def add(
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of which job; * and ? are wild.")] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Of which device, as gpu:host7/3 or '*:host7/*' for a host.")
    ] = None,
    hours: Annotated[float, typer.Option(metavar="HOURS", help="For how long.")] = 4.0,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for whoever reads the list.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Silence a device as well whose name is none that Offbeat gives.")
    ] = False,
    bootstrap: Bootstrap = None,
    as_json: Json = False,
) -> None:
    """Page nobody for a job's or a device's incidents until a time; with both, for the device in that job."""
    from offbeat import wiring
    from sinks.webhook.silences import Silence, ended

    if not 0 < hours <= _LONGEST_HOURS:
        raise SettingsError(f"--hours {hours:g}: give more than 0 and at most {_LONGEST_HOURS:g}")
    if not job and not device:
        raise SettingsError("nothing would be silenced: give a --job or a --device, or both")
    if device and not force and not _may_be_a_kind(device):
        raise SettingsError(
            f"--device {device} is the name of no device that Offbeat names itself, so that nothing may be silenced: "
            f"these begin with their kind, {', '.join(f'{kind}:' for kind in BAD_DEVICES)} as gpu:host7/3; "
            "'*:host7/*' is a whole host; give such a name, or --force where the job's description names it so"
        )
    settings = settings_with(bootstrap=bootstrap)
    now_ns = time.time_ns()
    silence = Silence(uuid4().hex[:8], now_ns + int(hours * 3.6e12), now_ns, job or None, device or None, reason)
    over = _known(wiring.bus(settings.kafka)).over(now_ns)
    publisher = wiring.publisher(settings.kafka, "silences")
    publisher.send(silence.to_message())
    for past in over:  # the topic is compacted: what nobody ends would be read for ever
        publisher.send(ended(past.id))
    publisher.flush()
    terminal.print_json(_shown(silence)) if as_json else print(_line(silence))


@silences.command("list")
def list_(bootstrap: Bootstrap = None, as_json: Json = False) -> None:
    """Say what is silenced, until when and why."""
    from offbeat import wiring

    lasting = _known(wiring.bus(settings_with(bootstrap=bootstrap).kafka)).lasting(time.time_ns())
    if as_json:
        terminal.print_json([_shown(silence) for silence in lasting])
        return
    for silence in lasting:
        print(_line(silence))
    if not lasting:
        print("nothing is silenced")


@silences.command("end")
def end(
    silence_id: Annotated[str, typer.Argument(metavar="ID", help="Which one, as `silences list` shows it.")],
    bootstrap: Bootstrap = None,
) -> None:
    """End a silence before its time; what it held back and goes on is paged."""
    from offbeat import wiring
    from sinks.webhook.silences import ended

    settings = settings_with(bootstrap=bootstrap)
    lasting = _known(wiring.bus(settings.kafka)).lasting(time.time_ns())
    if silence_id not in {silence.id for silence in lasting}:
        raise SettingsError(f"no silence {silence_id!r} lasts: see `offbeat silences list`")
    publisher = wiring.publisher(settings.kafka, "silences")
    publisher.send(ended(silence_id))
    publisher.flush()
    print(f"{silence_id} has ended")


def _may_be_a_kind(pattern: str) -> bool:
    """Whether names that begin with a known kind can match; a job's description may name its devices otherwise."""
    head, colon, _ = pattern.partition(":")
    if colon:
        return "*" in head or any(fnmatchcase(kind, head) for kind in BAD_DEVICES)
    return "*" in pattern


def _known(bus: Bus) -> Silences:
    from schemas.catalogue import SILENCES
    from sinks.webhook.silences import Silences
    from streams.follower import Follower
    from streams.topics import check

    check(bus, (SILENCES,), within_s=_WITHIN_S)
    known = Silences()
    with Follower(bus, SILENCES.name, within_s=_WITHIN_S) as follower:
        known.take(follower.catch_up())
    return known


def _shown(silence: Silence) -> dict[str, Any]:
    return {name: getattr(silence, name) for name in ("id", "job", "device", "until_ns", "reason", "made_ns")}


def _line(silence: Silence) -> str:
    until = datetime.fromtimestamp(silence.until_ns / 1e9, UTC)
    about = " of ".join(
        f"{kind} {name}" for kind, name in (("device", silence.device), ("job", silence.job)) if name is not None
    )
    why = f" ({silence.reason})" if silence.reason else ""
    return terminal.printable(f"{silence.id} until {until:%Y-%m-%d %H:%MZ}: {about}{why}")
