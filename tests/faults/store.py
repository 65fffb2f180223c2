"""A store that is away, slow, or answers errors."""

from tests.faults.site import Site

_AWAY_S = 20.0
_LONG_AWAY_S = 75.0
"""Longer than the sink tries again: it ends, with its offsets held, and is started in vain."""
_SLOW_S = 0.5
_REFUSING_S = 15.0


def lose_store(site: Site) -> None:
    """Kill the server amid a job: once for less than the sink's patience, once for longer."""
    server = site.services.server
    if server is None:
        site.tally.skipped.append("the ClickHouse server is not this campaign's own")
        return
    for away_s in (_AWAY_S, _LONG_AWAY_S):
        with site.diagnosing(site.recording()):
            site.amid()
            server.kill()
            site.pipeline.rest(away_s)
            server.start()
            site.tally.outages += 1


def slow_store(site: Site) -> None:
    """Hold back every answer of the server for a while."""
    with site.diagnosing(site.recording()):
        site.relay.delay_s = _SLOW_S
        site.tally.outages += 1
        try:
            site.pipeline.rest(site.random.uniform(10, 20))
        finally:
            site.relay.delay_s = 0.0


def store_answers_errors(site: Site) -> None:
    """Have it refuse inserts: for a reason that may pass by itself, and for one that ends the sink."""
    for refuse, relent in (
        (
            "ALTER TABLE findings MODIFY SETTING parts_to_throw_insert = 1, parts_to_delay_insert = 1",
            "ALTER TABLE findings RESET SETTING parts_to_throw_insert, parts_to_delay_insert",
        ),
        ("RENAME TABLE findings TO findings_elsewhere", "RENAME TABLE findings_elsewhere TO findings"),
    ):
        with site.diagnosing(site.recording()):
            site.store.execute(refuse)
            site.tally.outages += 1
            try:
                site.amid(_REFUSING_S, 2 * _REFUSING_S)
            finally:
                site.store.execute(relent)
