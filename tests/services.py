"""Where the tests' Kafka and ClickHouse come from: the environment, Docker where it runs, else this machine itself."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from local.service import ServiceUnavailable

KAFKA_VARIABLE = "OFFBEAT_TEST_KAFKA"
CLICKHOUSE_VARIABLE = "OFFBEAT_TEST_CLICKHOUSE"

KAFKA_IMAGE = "confluentinc/cp-kafka:8.0.0"  # Apache Kafka 4.0
CLICKHOUSE_IMAGE = "clickhouse/clickhouse-server:26.3"

# The fixtures that need a service, and the marker by which their tests are chosen or left out.
MARKER_OF_FIXTURE = {
    "kafka": "kafka",
    "local_kafka": "kafka",
    "clickhouse": "clickhouse",
    "local_clickhouse": "clickhouse",
}


def settings_of(kafka: LocalKafka, clickhouse: LocalClickHouse) -> dict[str, str]:
    """The environment of a role that uses the services of this machine."""
    return {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "OFFBEAT_STORE__ENGINE": "clickhouse",
        "OFFBEAT_STORE__HOST": clickhouse.host,
        "OFFBEAT_STORE__PORT": str(clickhouse.tcp_port),
        "OFFBEAT_STORE__USER": clickhouse.user,
        "OFFBEAT_STORE__PASSWORD": clickhouse.password,
    }


@dataclass(frozen=True)
class ClickHouseAddress:
    """Where a ClickHouse server listens (native TCP), and who may do everything there."""

    host: str
    port: int
    user: str
    password: str

    @classmethod
    def of_url(cls, url: str) -> "ClickHouseAddress":
        """Read clickhouse://user:password@host:port; the parts left out are ClickHouse's defaults."""
        parts = urlsplit(url)
        if parts.scheme != "clickhouse" or not parts.hostname:
            raise ValueError(f"{CLICKHOUSE_VARIABLE} is not of the form clickhouse://user:password@host:port")
        user, password = unquote(parts.username or "default"), unquote(parts.password or "")
        return cls(parts.hostname, parts.port or 9000, user, password)

    @property
    def url(self) -> str:
        """As ``of_url`` reads it."""
        return f"clickhouse://{quote(self.user, safe='')}:{quote(self.password, safe='')}@{self.host}:{self.port}"


@contextmanager
def shared(directory: Path, service: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """The address of a service that all processes of a test run have in common: the first of them to ask starts it, and
    ends it when the others are done with it. The locks of a process that dies end with it.
    """
    directory.mkdir(exist_ok=True)
    address, starting, using = (directory / name for name in ("address", "starting", "using"))
    with starting.open("a") as one_at_a_time, using.open("a") as users:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if address.exists():
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(one_at_a_time, fcntl.LOCK_UN)
            yield address.read_text()
            return
        with service() as started:
            address.write_text(started)
            fcntl.flock(one_at_a_time, fcntl.LOCK_UN)
            try:
                yield started
            finally:
                fcntl.flock(one_at_a_time, fcntl.LOCK_EX)  # who asks from now on starts another one
                fcntl.flock(users, fcntl.LOCK_EX)
                address.unlink()


@contextmanager
def kafka_broker() -> Iterator[str]:
    """The bootstrap servers of a broker; ServiceUnavailable where none can be had."""
    if given := os.environ.get(KAFKA_VARIABLE):
        yield given
    elif _docker_runs():
        from testcontainers.community.kafka import KafkaContainer

        container = KafkaContainer(KAFKA_IMAGE).with_kraft()
        # As local/kafka/server.properties.
        container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        container.with_env("KAFKA_MESSAGE_MAX_BYTES", "8388608")
        container.with_env("KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS", "1000")
        with container:
            yield container.get_bootstrap_server()
    else:
        with LocalKafka() as kafka:
            yield kafka.bootstrap_servers


@contextmanager
def clickhouse_url() -> Iterator[str]:
    """The same as ``clickhouse_server``, as a URL."""
    with clickhouse_server() as address:
        yield address.url


@contextmanager
def clickhouse_server() -> Iterator[ClickHouseAddress]:
    """The address of a ClickHouse server; ServiceUnavailable where none can be had."""
    if given := os.environ.get(CLICKHOUSE_VARIABLE):
        yield ClickHouseAddress.of_url(given)
    elif _docker_runs():
        from testcontainers.community.clickhouse import ClickHouseContainer

        with ClickHouseContainer(CLICKHOUSE_IMAGE, username="offbeat", password="offbeat") as container:
            host, port = container.get_container_host_ip(), int(container.get_exposed_port(9000))
            yield ClickHouseAddress(host, port, container.username, container.password)
    else:
        with LocalClickHouse() as server:
            yield ClickHouseAddress(server.host, server.tcp_port, server.user, server.password)


@contextmanager
def skipped_where_unavailable(variable: str | None = None) -> Iterator[None]:
    """Skip the test, or in CI fail it, when its service cannot be had on this machine.

    `variable` is the one that could name a service elsewhere.
    """
    try:
        yield
    except ServiceUnavailable as missing:
        message = f"{missing}, or start Docker, or set {variable}" if variable else str(missing)
        if os.environ.get("CI"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


def missing_markers(fixtures: Collection[str], markers: Collection[str]) -> set[str]:
    """The markers that a test with these fixtures must carry and does not."""
    return {marker for fixture, marker in MARKER_OF_FIXTURE.items() if fixture in fixtures} - set(markers)


def _docker_runs() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    return subprocess.run([docker, "info"], capture_output=True, timeout=20, check=False).returncode == 0
