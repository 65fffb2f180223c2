"""Workers that come and go: a storm of rebalances, and a second worker of every role for a while."""

import signal

from tests.faults.site import Site

_WAVES = 8


def storm(site: Site) -> None:
    """Have further workers of random roles join their groups and leave again, in order or by SIGKILL, amid two jobs."""
    with site.diagnosing(site.recording(), site.recording()):
        for wave in range(_WAVES):
            name = site.random.choice(sorted(site.pipeline.roles))
            further = site.pipeline.another(name, f"further-{wave % 2}")
            further.start()
            try:
                site.pipeline.rest(site.random.uniform(2.0, 5.0))
            finally:
                site.random.choice([further.stop, further.kill])()
            site.tally.rebalances += 2


def scale(site: Site) -> None:
    """Run two workers of every role, and then one again, amid two jobs."""
    with site.diagnosing(site.recording(), site.recording()):
        seconds = [site.pipeline.another(name, "second") for name in site.pipeline.roles]
        try:
            for second in seconds:
                second.start()
            site.amid(8.0, 12.0)
            ran = [second.running for second in seconds]
            codes = [second.stop() for second in seconds]
        finally:
            for second in seconds:
                second.kill()
        site.expect(all(ran), "a second worker of a group ended")
        site.expect(set(codes) <= {0, -signal.SIGTERM}, f"second workers ended with {codes}")
        site.tally.rebalances += 2 * len(seconds)
