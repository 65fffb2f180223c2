"""Several faults at once, in the time of one job: what every run of the tests can afford."""

from tests.faults.groups import Further
from tests.faults.kills import kill
from tests.faults.site import Site
from tests.integration.on_call import FAILURE

_DELAY_S = 0.2


def several_at_once(site: Site) -> None:
    """Amid one job: a store and a receiver in trouble, SIGKILLs of three roles, and a further worker of a fourth."""
    names = sorted(site.pipeline.roles)
    site.random.shuffle(names)
    *killed, joined = names[:4]
    recorded = site.recording()
    with site.diagnosing(recorded), Further.started(site, joined, "further") as further:  # it starts as others end
        with (
            site.outage("the store's slowness", lambda: site.relay.held),
            site.outage("the receiver's errors", lambda: site.person.failed),
        ):
            site.relay.delay_s, site.person.instead = _DELAY_S, FAILURE
            for name in killed:
                site.amid(0.5, 2.0)
                kill(site, site.pipeline.roles[name])
            further.await_joined()
            further.stop()
        site.relay.delay_s, site.person.instead = 0.0, None
        further.await_left()
