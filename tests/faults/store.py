"""A store that is away, slow, or answers errors."""

from tests.faults.site import Site

_AWAY_S = 20.0
_LONG_AWAY_S = 75.0
"""Longer than the sink tries again: it ends, with its offsets held, and is started in vain."""
_SLOW_S = 0.5
_REFUSING_S = 15.0
_TRIED_AGAIN = "store is tried again"
"""As the sink says it."""


def lose_store(site: Site) -> None:
    """Kill the server amid a job: once for less than the sink's patience, once for longer."""
    server = site.services.server
    if server is None:
        site.tally.skipped.append("the ClickHouse server is not this campaign's own")
        return
    for away_s, felt in (
        (_AWAY_S, lambda: site.said(_TRIED_AGAIN)),
        (_LONG_AWAY_S, lambda: site.pipeline.restarts["store"]),
    ):
        with site.diagnosing(site.recording()):
            site.amid()
            try:
                with site.outage("the store's absence", felt):
                    server.kill()
                    site.pipeline.rest(away_s)
            finally:
                server.start()


def slow_store(site: Site) -> None:
    """Hold back every answer of the server for a while."""
    with site.diagnosing(site.recording()):
        try:
            with site.outage("the store's slowness", lambda: site.relay.held):
                site.relay.delay_s = _SLOW_S
                site.pipeline.rest(site.random.uniform(10, 20))
        finally:
            site.relay.delay_s = 0.0


def store_answers_errors(site: Site) -> None:
    """Have it refuse inserts: for a reason that may pass by itself, and for one that ends the sink."""
    for felt, refuse, relent in (
        (
            lambda: site.said(_TRIED_AGAIN),
            "ALTER TABLE iterations MODIFY SETTING parts_to_throw_insert = 1, parts_to_delay_insert = 1",
            "ALTER TABLE iterations RESET SETTING parts_to_throw_insert, parts_to_delay_insert",
        ),
        (
            lambda: site.pipeline.restarts["store"],
            "RENAME TABLE findings TO findings_elsewhere",
            "RENAME TABLE findings_elsewhere TO findings",
        ),
    ):
        with site.diagnosing(site.recording()):
            try:
                with site.outage("the store's refusal", felt):
                    site.store.execute(refuse)
                    site.amid(_REFUSING_S, 2 * _REFUSING_S)
            finally:
                site.store.execute(relent)
