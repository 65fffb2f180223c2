"""A soak runs the deployed pipeline, and tells how memory and lag went."""

from __future__ import annotations

import pytest

from benchmarks import soak
from benchmarks.deployment import ROLES, Sample
from tests.services import skipped_where_unavailable


def test_quarters_tell_growth_and_what_is_not_known() -> None:
    samples = [Sample(rss * 1e6, lag) for rss, lag in zip((50, 100, 100, 110), (None, 0.0, 2.0, 1.0), strict=True)]
    assert soak.quarters(samples) == {
        "rss_mb": [50.0, 100.0, 100.0, 110.0],
        "rss_grows": 0.1,
        "lag_p50_s": [None, 0.0, 2.0, 1.0],
        "lag_most_s": [None, 0.0, 2.0, 1.0],
    }


@pytest.mark.kafka
@pytest.mark.clickhouse
def test_a_short_soak_takes_jobs_from_their_agents_to_the_store() -> None:
    with skipped_where_unavailable():
        told = soak.run(minutes=0.1, jobs=1, ranks=16, iteration_s=0.1, every_s=0.5)
    assert set(told["roles"]) == set(ROLES)
    for of_role in told["roles"].values():
        assert min(of_role["rss_mb"]) > 10
    assert told["load"]["iterations_a_second"] > 0
    assert told["stored"]["operators"] > 0
