"""A receiver of pages that is away, slow, or refuses."""

import json

from schemas.catalogue import INCIDENTS
from tests.faults.site import Site
from tests.integration.on_call import FAILURE
from tests.integration.recordings import Recorded
from tests.offbeat.command_line import run_offbeat
from tests.sinks.webhook.local_receiver import HANG, Answer

_SLOW_S = 3.0
_UNAUTHORIZED, _UNREADABLE = Answer(401), Answer(400)


def lose_receiver(site: Site) -> None:
    """Have it away until everything but the pages of a job is done."""
    recorded = site.recording()
    with site.diagnosing(recorded):
        site.person.away()
        site.tally.outages += 1
        try:
            site.pipeline.await_told(recorded)
            for name in ("monitor", "search", "incidents", "store"):
                site.pipeline.await_worked_off(name)
            site.expect(site.pipeline.lag("page") > 0, "pages to a receiver that is away were committed")
        finally:
            site.person.back()


def slow_receiver(site: Site) -> None:
    """Have it answer late; and not at all, until it is restarted."""
    recorded = site.recording()
    with site.diagnosing(recorded):
        site.person.slow_s = _SLOW_S
        site.tally.outages += 1
        try:
            _await_page(site, recorded)
        finally:
            site.person.slow_s = 0.0
    with site.diagnosing(site.recording()):
        site.person.instead = HANG
        site.tally.outages += 1
        try:
            _await_failures(site, 1)
        finally:
            site.person.instead = None
            site.person.away()
            site.person.back()


def receiver_answers_errors(site: Site) -> None:
    """Have it fail (500), and turn everybody away (401), which ends the role: each page comes once it takes pages."""
    for answer in (FAILURE, _UNAUTHORIZED):
        with site.diagnosing(site.recording()):
            site.person.instead = answer
            site.tally.outages += 1
            try:
                _await_failures(site, 2)
            finally:
                site.person.instead = None


def receiver_refuses_pages(site: Site) -> None:
    """Have it refuse pages for good (400): they become dead letters, and come once these are replayed."""
    recorded = site.recording()
    site.pipeline.repair()
    site.person.instead = _UNREADABLE
    site.tally.outages += 1
    try:
        with site.pipeline.producing(recorded):
            _await_failures(site, 1)
    finally:
        site.person.instead = None
    site.expect(not site.person.taken(recorded.job), "a receiver that refuses pages has taken some")
    chosen = ("--topic", INCIDENTS.name, "--job", recorded.job)
    done = run_offbeat("dead-letters", "replay", *chosen, "--json", settings=site.pipeline.settings)
    replayed = json.loads(done.stdout)["sent"] if done.returncode == 0 else {}
    site.expect(replayed.get(INCIDENTS.name, 0) > 0, f"no refused page was replayed: {done.stdout} {done.stderr}")
    site.pipeline.awaited(site.pipeline.is_worked_off, "page of what was replayed")
    site.judge(recorded, site.pipeline.stored(recorded))


def _await_page(site: Site, recorded: Recorded) -> None:
    site.pipeline.awaited(lambda: site.person.taken(recorded.job), "page")


def _await_failures(site: Site, count: int) -> None:
    before = site.person.failed
    site.pipeline.awaited(lambda: site.person.failed >= before + count, "page that is not taken")
