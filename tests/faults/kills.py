"""SIGKILL of every role, the log agents included, at random moments."""

from collections import Counter
from itertools import cycle

from local.service import LocalService
from tests.faults.site import Site

PRODUCER = "produce"
_A_JOB = 10
"""So many kills at most befall one job: it must come to its end some time."""


def kill_roles(site: Site, kills: int = 50) -> None:
    """Kill roles in turns of a random order, each as often as the others, until there were so many kills.

    Moments are drawn so that some hit a role as it starts, some while a commit is under way.
    """
    victims = [*site.pipeline.roles, PRODUCER]
    site.random.shuffle(victims)
    turns, killed = cycle(victims), Counter[str]()
    while killed.total() < kills:
        most = min(kills, killed.total() + _A_JOB)
        with site.diagnosing(site.recording()):
            site.pipeline.rest(1.0)
            while killed.total() < most:
                name = next(turns)
                site.pipeline.rest(site.random.uniform(0.0, 2.5))
                kill(site, _process(site, name))
                killed[name] += 1


def kill(site: Site, victim: LocalService) -> None:
    """Kill a role, once it runs."""
    site.pipeline.awaited(lambda: victim.running, f"start of {victim.folder.name}")
    victim.kill()
    site.tally.kills += 1


def _process(site: Site, name: str) -> LocalService:
    return site.pipeline.producers[0] if name == PRODUCER else site.pipeline.roles[name]
