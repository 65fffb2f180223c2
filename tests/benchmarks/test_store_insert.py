"""The insert benchmark stores what it times."""

import pytest

from benchmarks.store_insert import measure_inserts, operator_messages
from schemas.catalogue import COMM_OPS
from schemas.message import decode
from sinks.clickhouse.driver import DriverStore, ServerAddress
from tests.services import ClickHouseAddress


@pytest.fixture
def address(clickhouse: ClickHouseAddress) -> ServerAddress:
    return ServerAddress(clickhouse.host, clickhouse.port, user=clickhouse.user, password=clickhouse.password)


@pytest.mark.clickhouse
def test_both_inserts_are_timed_and_nothing_is_left(address: ServerAddress) -> None:
    store = DriverStore(address)
    databases = "SELECT name FROM system.databases WHERE startsWith(name, 'offbeat_bench_')"
    before = store.query(databases)
    rates = measure_inserts(address, operator_messages(3000, rows_per_message=1000), repeats=1)
    assert rates.rows == 3000
    assert rates.ratio == pytest.approx(rates.sink_rows_per_s / rates.bare_rows_per_s)
    assert min(rates.sink_rows_per_s, rates.bare_rows_per_s) > 0
    assert store.query(databases).equals(before)
    store.close()


@pytest.mark.clickhouse
def test_what_is_not_one_insert_is_refused(address: ServerAddress) -> None:
    late = operator_messages(10, start_ns=1_768_100_000_000_000_000)
    with pytest.raises(ValueError, match="20 rows of 2 days are not one insert"):
        measure_inserts(address, [*operator_messages(10), *late])


def test_the_made_up_operators_are_valid_records() -> None:
    messages = operator_messages(2500, rows_per_message=1000)
    assert [decode(message, COMM_OPS).num_rows for message in messages] == [1000, 1000, 500]
    assert [message.offset for message in messages] == [0, 1, 2]
