"""Timing searches over Kafka: the roles as processes, the agents' desk in this one."""

import pytest

from benchmarks.large import over_kafka
from offbeat.settings import Settings
from tests.benchmarks.large.runs import slow_nic

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse]


def test_each_search_is_timed_until_clickhouse_has_its_findings() -> None:
    with over_kafka.deployed() as running:
        taken = over_kafka.measure(slow_nic(), Settings(), running)
    assert len(taken) >= 2
    assert min(taken) > 0
