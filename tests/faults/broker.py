"""A broker that restarts, and one that is away."""

from local.kafka import LocalKafka
from tests.faults.site import Site

AWAY_S = 60.0
"""As long as a publisher waits for an acknowledgement: roles end in the meantime, and are started in vain."""

_MISSED = (
    "Unable connect to node",
    "Failed fetch messages",
    "the ends of the inputs are not known",
    "FAIL [",
    "no broker answers",
)
"""As consumers, workers, publishers and whoever starts say that there is no broker."""


def restart_broker(site: Site) -> None:
    """Restart the broker in order, and after SIGKILL."""
    broker = _own(site)
    if broker is None:
        return
    for end in (broker.stop, broker.kill):
        with site.diagnosing(site.recording()):
            site.amid()
            with site.outage("the broker's restart", lambda: site.said(*_MISSED)):
                end()
                broker.start()


def lose_broker(site: Site) -> None:
    """Have the broker away for a minute amid a job."""
    broker = _own(site)
    if broker is None:
        return
    with site.diagnosing(site.recording()):
        site.amid()
        try:
            with site.outage("the broker's absence", lambda: site.said(*_MISSED)):
                broker.kill()
                site.pipeline.rest(AWAY_S)
        finally:
            broker.start()


def _own(site: Site) -> LocalKafka | None:
    if site.services.broker is None:
        site.tally.skipped.append("the broker is not this campaign's own")
    return site.services.broker
