"""A broker that restarts, and one that is away."""

from local.kafka import LocalKafka
from tests.faults.site import Site

AWAY_S = 60.0
"""As long as a publisher waits for an acknowledgement: roles end in the meantime, and are started in vain."""


def restart_broker(site: Site) -> None:
    """Restart the broker in order, and after SIGKILL."""
    broker = _own(site)
    if broker is None:
        return
    for end in (broker.stop, broker.kill):
        with site.diagnosing(site.recording()):
            site.amid()
            end()
            broker.start()
            site.tally.outages += 1


def lose_broker(site: Site) -> None:
    """Have the broker away for a minute amid a job."""
    broker = _own(site)
    if broker is None:
        return
    with site.diagnosing(site.recording()):
        site.amid()
        broker.kill()
        site.pipeline.rest(AWAY_S)
        broker.start()
        site.tally.outages += 1


def _own(site: Site) -> LocalKafka | None:
    if site.services.broker is None:
        site.tally.skipped.append("the broker is not this campaign's own")
    return site.services.broker
