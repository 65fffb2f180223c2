"""``offbeat doctor``: looks at everything that a role needs, changes nothing, pages nobody, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator

from offbeat.doctor import bus, machine, paging, store
from offbeat.doctor.checked import Checked
from offbeat.settings import Settings


def examine(settings: Settings) -> Iterator[Checked]:
    """What there is to say, one after the other; a service that is away fails its own checks and no others."""
    yield from machine.examine(settings)
    yield from bus.examine(settings)
    yield from store.examine(settings.store)
    yield from paging.examine(settings.webhook)
