"""A receiver of pages that is away, slow, or refuses."""

import json

from schemas.catalogue import INCIDENTS
from tests.faults.site import Site
from tests.integration.on_call import FAILURE
from tests.offbeat.command_line import run_offbeat
from tests.sinks.webhook.local_receiver import HANG, Answer

_SLOW_S = 3.0
_UNAUTHORIZED, _UNREADABLE = Answer(401), Answer(400)


def lose_receiver(site: Site) -> None:
    """Have it away until everything but the pages of a job is done."""
    recorded = site.recording()
    with site.diagnosing(recorded):
        try:
            with site.outage("the receiver's absence", lambda: site.said("receiver away")):
                site.person.away()
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
        try:
            with site.outage("the receiver's slowness", lambda: site.person.delayed):
                site.person.slow_s = _SLOW_S
        finally:
            site.person.slow_s = 0.0
    with site.diagnosing(site.recording()):
        try:
            with site.outage("that the receiver hangs", lambda: site.person.failed):
                site.person.instead = HANG
        finally:
            site.person.instead = None
            site.person.away()
            site.person.back()


def receiver_answers_errors(site: Site) -> None:
    """Have it fail (500), and turn everybody away (401), which ends the role: each page comes once it takes pages."""
    for answer in (FAILURE, _UNAUTHORIZED):
        with site.diagnosing(site.recording()):
            try:
                with site.outage("the receiver's errors", lambda: site.person.failed, times=2):
                    site.person.instead = answer
            finally:
                site.person.instead = None


def receiver_refuses_pages(site: Site) -> None:
    """Have it refuse pages for good (400): they become dead letters, and come once these are replayed."""
    recorded = site.recording()
    site.pipeline.repair()
    try:
        with (
            site.pipeline.producing(recorded),
            site.outage("the receiver's refusal", lambda: site.said("page refused")),
        ):
            site.person.instead = _UNREADABLE
    finally:
        site.person.instead = None
    site.expect(not site.person.taken(recorded.job), "a receiver that refuses pages has taken some")
    chosen = ("--topic", INCIDENTS.name, "--job", recorded.job)
    done = run_offbeat("dead-letters", "replay", *chosen, "--json", settings=site.pipeline.settings)
    replayed = json.loads(done.stdout)["sent"] if done.returncode == 0 else {}
    site.expect(replayed.get(INCIDENTS.name, 0) > 0, f"no refused page was replayed: {done.stdout} {done.stderr}")
    site.pipeline.awaited(site.pipeline.is_worked_off, "page of what was replayed")
    site.judge(recorded, site.pipeline.stored(recorded))
