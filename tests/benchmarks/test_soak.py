"""A soak runs the deployed pipeline, and tells how memory and lag went."""

from __future__ import annotations

import pytest

from benchmarks import pages, soak
from benchmarks.bounds import Bounds
from benchmarks.deployment import ROLES, Sample
from tests.services import skipped_where_unavailable
from tests.sinks.webhook.incidents import incident, record


def test_quarters_tell_growth_and_what_is_not_known() -> None:
    samples = [Sample(rss * 1e6, lag) for rss, lag in zip((50, 100, 100, 110), (None, 0.0, 2.0, 1.0), strict=True)]
    assert soak.quarters(samples) == {
        "rss_mb": [50.0, 100.0, 100.0, 110.0],
        "rss_grows": 0.1,
        "lag_p50_s": [None, 0.0, 2.0, 1.0],
        "lag_most_s": [None, 0.0, 2.0, 1.0],
        "lag_untold": [1, 0, 0, 0],
    }


def test_each_figure_is_judged_beside_its_bound() -> None:
    bounds = Bounds(rss_grows=0.02, lag_p50_s=1.0, lag_most_s=5.0, pages_lost=0)
    flat = {
        "rss_mb": [9.0] * 4,
        "rss_grows": 0.02,
        "lag_p50_s": [8.0, 0.0, 1.0, 0.5],
        "lag_most_s": [90.0, 1.0, 5.0, 2.0],
        "lag_untold": [1, 0, 0, 0],
    }
    unknown = {"lag_p50_s": [None] * 4, "lag_most_s": [None] * 4, "lag_untold": [3] * 4}
    silent = {"rss_mb": [9.0] * 4, "rss_grows": 0.03, **unknown}
    verdicts = list(bounds.judge({"sink": flat, "agent": silent}, pages_lost=1))
    assert [(verdict.what, verdict.figure, verdict.bound, verdict.holds) for verdict in verdicts] == [
        ("sink rss_grows", 0.02, 0.02, True),
        ("sink lag_untold", 0, 0, True),
        ("sink lag_p50_s", 1.0, 1.0, True),
        ("sink lag_most_s", 5.0, 5.0, True),
        ("agent rss_grows", 0.03, 0.02, False),
        ("pages_lost", 1, 0, False),
    ]


def test_a_role_that_stops_telling_its_lag_does_not_hold() -> None:
    bounds = Bounds(rss_grows=0.02, lag_p50_s=1.0, lag_most_s=5.0, pages_lost=0)
    for lags in ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None), (None,) * 8):
        roles = {"search": soak.quarters([Sample(9e6, lag) for lag in lags])}
        assert [one.what for one in bounds.judge(roles, pages_lost=0) if not one.holds] == ["search lag_untold"]


def test_a_page_is_lost_whose_last_revision_nobody_got() -> None:
    asked = {"told": 2, "old": 2, "untold": 1}
    assert pages.lost(asked, ["told/1", "told/2", "told/2", "old/1", "other/1"]) == ["old", "untold"]


def test_the_pages_that_are_due_are_those_that_paging_sends() -> None:
    opened, resolved = incident("fault", 1), incident("fault", 2, "resolved")
    assert pages.due([record(opened, offset=0), record(resolved, offset=1)], {}) == {"fault": 2}


@pytest.mark.kafka
@pytest.mark.clickhouse
def test_a_short_soak_takes_jobs_from_their_agents_to_the_store() -> None:
    with skipped_where_unavailable():
        told = soak.run(minutes=0.1, jobs=1, ranks=16, iteration_s=0.1, every_s=0.5)
    assert (
        set(told["roles"])
        == {verdict["what"].split()[0] for verdict in told["verdicts"]} - {"pages_lost"}
        == set(ROLES)
    )
    assert told["holds"] == all(verdict["holds"] for verdict in told["verdicts"])
    assert told["pages"]["lost"] == []
    assert told["agent"]["operators"] > 0
    assert told["agent"]["dropped"] == 0
    for of_role in told["roles"].values():
        assert min(of_role["rss_mb"]) > 10
    assert told["load"]["iterations_a_second"] > 0
    assert told["stored"]["operators"] > 0
