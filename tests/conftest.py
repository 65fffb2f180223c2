"""What every test shares: how hypothesis runs, and the real services."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import structlog
from hypothesis import HealthCheck, settings

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from tests.services import (
    CLICKHOUSE_VARIABLE,
    KAFKA_VARIABLE,
    MARKER_OF_FIXTURE,
    ClickHouseAddress,
    clickhouse_url,
    kafka_broker,
    missing_markers,
    shared,
    skipped_where_unavailable,
)

# No property depends on the speed of the machine; in CI the same examples are drawn every time.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that use a service without its marker: `-m "not kafka"` must leave out all that need Kafka.

    Files with tests of services or images go first: what is left at the end is short, so that workers end together.
    """
    wrong = []
    for item in items:
        missing = missing_markers(getattr(item, "fixturenames", ()), {marker.name for marker in item.iter_markers()})
        wrong += [f"{item.nodeid} needs @pytest.mark.{marker}" for marker in sorted(missing)]
    if wrong:
        raise pytest.UsageError("\n".join(wrong))
    marks = {"image", *MARKER_OF_FIXTURE.values()}
    long = {item.path for item in items if any(mark.name in marks for mark in item.iter_markers())}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The bootstrap servers of a broker that all tests of a process share: name topics and groups for the test. Another
    process has its own, since the deployed pipeline's topics have no names of their own.
    """
    with ExitStack() as stack:
        with skipped_where_unavailable(KAFKA_VARIABLE):
            bootstrap_servers = stack.enter_context(kafka_broker())
        yield bootstrap_servers


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseAddress]:
    """A ClickHouse server that all tests of all processes share: make a database for the test."""
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with ExitStack() as stack:
        with skipped_where_unavailable(CLICKHOUSE_VARIABLE):
            url = stack.enter_context(shared(common / "clickhouse", clickhouse_url))
        yield ClickHouseAddress.of_url(url)


@pytest.fixture
def local_kafka() -> Iterator[LocalKafka]:
    """A broker of this test's own, to stop, kill and restart."""
    with ExitStack() as stack:
        with skipped_where_unavailable():
            broker = stack.enter_context(LocalKafka())
        yield broker


@pytest.fixture
def local_clickhouse() -> Iterator[LocalClickHouse]:
    """A ClickHouse server of this test's own, to stop, kill and restart."""
    with ExitStack() as stack:
        with skipped_where_unavailable():
            server = stack.enter_context(LocalClickHouse())
        yield server


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """For tests of what configures logging for its process: it is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in ("httpx", "httpcore", "faust", "mode", "aiokafka")}
    configuration = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.configure(**configuration)
