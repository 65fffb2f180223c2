"""A plan of faults carried out, one after the other, on one site."""

import time
from collections.abc import Callable, Iterable

import pytest

from tests.faults.plan import Step
from tests.faults.site import Site
from tests.faults.tally import Tally


def carry_out(site: Site, steps: Iterable[Step], say: Callable[[str], None] = lambda _: None) -> list[Tally]:
    """Let each fault befall the site; what a fault came to. One that does not come to its end is a difference."""
    tallies = []
    for step in steps:
        say(f"{step.name} ...")
        tallies.append(_carried_out(site, step))
        say(_told(tallies[-1]))
    return tallies


def _carried_out(site: Site, step: Step) -> Tally:
    site.tally, site.random = Tally(step.name), step.random
    site.pipeline.restarts.clear()
    began = time.monotonic()
    try:
        step.befall(site)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is told, and the others are tried
        site.tally.differences.append(f"did not come to its end: {type(error).__name__}: {error}")
    site.tally.seconds = time.monotonic() - began
    site.tally.restarts = site.pipeline.restarts.total()
    return site.tally


def _told(tally: Tally) -> str:
    outcome = "survived" if tally.survived else f"NOT survived: {'; '.join(tally.differences[:3])}"
    return f"{tally.fault}: {outcome} ({tally.jobs} jobs, {tally.seconds:.0f} s)"
