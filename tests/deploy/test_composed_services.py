"""What docker-compose.yml gives Kafka and ClickHouse, given to a real Kafka and a real ClickHouse."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from schemas.catalogue import TOPICS
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.migrate import migrate
from tests.deploy.dashboards import STORE, as_sent, queries
from tests.deploy.dockerfile import ROOT
from tests.offbeat.command_line import offbeat
from tests.services import skipped_where_unavailable
from tests.sinks.clickhouse.samples import JOB, stored_in

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
SINCE, UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)


class ComposedKafka(LocalKafka):
    """A broker with the composition's settings, but for the places where it listens and keeps its data."""

    def settings(self, port: int, controller_port: int, data: Path) -> str:
        given = {
            name.removeprefix("KAFKA_").lower().replace("_", "."): value
            for name, value in SERVICES["kafka"]["environment"].items()
            if name != "KAFKA_HEAP_OPTS"
        }
        here = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"INSIDE://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"INSIDE://127.0.0.1:{port}",
            "log.dirs": str(data),
        }
        assert set(here) <= set(given)
        return "\n".join(f"{name}={value}" for name, value in (given | here).items())


@pytest.mark.kafka
def test_the_broker_takes_the_topics() -> None:
    with skipped_where_unavailable(), ComposedKafka() as kafka:
        for expected in (f"created with {TOPICS['dead_letters'].partitions} partition", "topics are as they should be"):
            done = offbeat("topics", "apply", "--bootstrap", kafka.bootstrap_servers)
            assert done.exit_code == 0, done.output
            assert expected in done.stdout


class WithReader(LocalClickHouse):
    """A server with the user of the dashboards beside its own."""

    reader_password = "for-the-reader"

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        command, environment = super().prepare()
        users = self.folder / ".clickhouse-local" / "users.d"
        users.mkdir(exist_ok=True)
        (users / "reader.xml").write_bytes((ROOT / "grafana" / "clickhouse-reader.xml").read_bytes())
        return command, {**(environment or {}), "READER_PASSWORD": self.reader_password}


@pytest.fixture(scope="module")
def server() -> Iterator[WithReader]:
    """Holds a small job."""
    with skipped_where_unavailable(), WithReader() as server:
        store = DriverStore(ServerAddress(server.host, server.tcp_port, user=server.user, password=server.password))
        migrate(store)
        stored_in(store)
        store.close()
        yield server


def reader(server: WithReader, password: str | None = None) -> Client:
    given = server.reader_password if password is None else password
    return Client(server.host, server.tcp_port, user="reader", password=given)


@pytest.mark.clickhouse
def test_the_reader_may_ask_all_that_dashboards_ask(server: WithReader) -> None:
    with reader(server) as client:
        for query in queries(STORE):
            sent = as_sent(query.text, {"job": JOB, "incident": "i-gpu"}, SINCE, UNTIL, 86_400 * 365)
            client.execute(sent, settings={"max_execution_time": 30})
        assert client.execute("SELECT count() FROM incidents FINAL") == [(3,)]


@pytest.mark.clickhouse
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO findings SELECT * FROM findings",
        "ALTER TABLE findings DELETE WHERE 1",
        "DROP TABLE findings",
        "CREATE TABLE mine (x Int8) ENGINE = Memory",
        "SELECT * FROM system.users",
        "SELECT * FROM url('http://127.0.0.1:1/', LineAsString)",
        "SELECT 1 SETTINGS readonly = 0",
        "SELECT 1 SETTINGS max_memory_usage = 0",
        "SELECT 1 SETTINGS max_execution_time = 600",
    ],
)
def test_the_reader_may_do_nothing_else(server: WithReader, statement: str) -> None:
    with reader(server) as client, pytest.raises(ServerException):
        client.execute(statement)


@pytest.mark.clickhouse
def test_the_reader_has_a_password(server: WithReader) -> None:
    with reader(server, password="") as client, pytest.raises(ServerException, match="Authentication failed"):
        client.execute("SELECT 1")
