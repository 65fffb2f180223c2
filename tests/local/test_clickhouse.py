"""The local ClickHouse is a real server: rows go in through the driver and survive its death."""

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException

from local.clickhouse import LocalClickHouse
from tests.services import ClickHouseAddress


@pytest.mark.clickhouse
def test_the_shared_server_answers_the_driver(clickhouse: ClickHouseAddress) -> None:
    with Client(clickhouse.host, clickhouse.port, user=clickhouse.user, password=clickhouse.password) as client:
        assert client.execute("SELECT sum(number) FROM numbers(11)") == [(55,)]


@pytest.mark.clickhouse
def test_acknowledged_rows_survive_kill_and_restart(local_clickhouse: LocalClickHouse) -> None:
    with _client(local_clickhouse) as client:
        client.execute("CREATE DATABASE kept")
        client.execute("CREATE TABLE kept.rows (x Int32) ENGINE = MergeTree ORDER BY x")
        client.execute("INSERT INTO kept.rows VALUES", [(1,), (2,)])
    local_clickhouse.kill()
    assert not local_clickhouse.is_ready()
    local_clickhouse.start()
    with _client(local_clickhouse) as client:
        client.execute("INSERT INTO kept.rows VALUES", [(3,)])
    local_clickhouse.restart()
    with _client(local_clickhouse) as client:
        assert client.execute("SELECT x FROM kept.rows ORDER BY x") == [(1,), (2,), (3,)]


@pytest.mark.clickhouse
@pytest.mark.parametrize(
    ("user", "password", "refusal"),
    [("offbeat", "wrong", "Authentication failed"), ("default", "", "Not enough privileges")],
)
def test_only_the_password_opens_it(local_clickhouse: LocalClickHouse, user: str, password: str, refusal: str) -> None:
    address = (local_clickhouse.host, local_clickhouse.tcp_port)
    with Client(*address, user=user, password=password) as client, pytest.raises(ServerException, match=refusal):
        client.execute("CREATE DATABASE intruder")


def _client(server: LocalClickHouse) -> Client:
    return Client(server.host, server.tcp_port, user=server.user, password=server.password)
