"""``offbeat doctor``: looks at everything that a role needs, changes nothing, pages nobody, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator

from offbeat.doctor import bus, machine, paging, store
from offbeat.doctor.checked import Checked, skipped
from offbeat.doctor.settled import Settled


def examine(settled: Settled) -> Iterator[Checked]:
    """What there is to say, one after the other; a service that is away fails its own checks and no others."""
    yield from settled.amiss
    settings = settled.settings
    if settings is None:
        yield skipped("everything else", "what to look at is in the settings")
        return
    yield from machine.examine(settings)
    for group, what, checks in (
        ("kafka", "brokers", bus.examine(settings)),
        ("store", "store", store.examine(settings.store)),
        ("webhook", "receiver of pages", paging.examine(settings.webhook)),
    ):
        yield from [skipped(what, "its secret is missing")] if group in settled.without else checks
