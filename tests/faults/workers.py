"""Workers that come and go: a storm of rebalances, and a second worker of every role for a while."""

from collections.abc import Iterable
from contextlib import ExitStack

from tests.faults.groups import Further
from tests.faults.site import Site
from tests.integration.recordings import Recorded

_WAVES = 4
_AT_ONCE = 2
_ITERATION_S = 2.0
"""Further workers start, join, work and are gone while a job trains."""


def storm(site: Site) -> None:
    """Have further workers of random roles join their groups and leave again, in order or by SIGKILL, amid jobs."""
    for wave in range(_WAVES):
        names = site.random.sample(sorted(site.pipeline.roles), _AT_ONCE)
        recorded = (site.recording(), site.recording())
        with site.training_slowly(_ITERATION_S), site.diagnosing(*recorded), ExitStack() as stack:
            joining = _further(site, names, f"further-{wave}", stack)
            _await_joined_amid(site, joining, recorded)
            for one in joining:
                site.amid(0.5, 3.0)
                site.random.choice([one.stop, one.kill])()
            for one in joining:
                one.await_left()


def scale(site: Site) -> None:
    """Run two workers of every role, and then one again, amid two jobs."""
    recorded = (site.recording(), site.recording())
    with site.training_slowly(_ITERATION_S), site.diagnosing(*recorded), ExitStack() as stack:
        seconds = _further(site, site.pipeline.roles, "second", stack)
        _await_joined_amid(site, seconds, recorded)
        site.amid(8.0, 12.0)
        ran = [second.worker.running for second in seconds]
        site.expect(all(ran), "a second worker of a group ended")
        for second in seconds:
            second.stop()
        for second in seconds:
            second.await_left()


def _further(site: Site, names: Iterable[str], instance: str, stack: ExitStack) -> list[Further]:
    return [stack.enter_context(Further.started(site, name, instance)) for name in names]


def _await_joined_amid(site: Site, joining: Iterable[Further], recorded: Iterable[Recorded]) -> None:
    """Wait for workers to join; that nothing is left for them to do by then is a difference."""
    for one in joining:
        one.await_joined()
    site.expect(not site.pipeline.are_told(*recorded), "the jobs were over before further workers had joined")
