"""The rules of the shared services: which test may use one, and where it comes from."""

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from local.service import ServiceUnavailable
from tests.services import (
    ClickHouseAddress,
    clickhouse_server,
    kafka_broker,
    missing_markers,
    shared,
    skipped_where_unavailable,
)


def test_a_test_with_a_service_must_carry_its_marker() -> None:
    assert missing_markers(["tmp_path", "kafka", "local_clickhouse"], ["clickhouse"]) == {"kafka"}
    assert missing_markers(["kafka"], ["kafka", "parametrize"]) == set()
    assert missing_markers(["tmp_path"], []) == set()


def test_without_a_service_the_test_is_skipped_and_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with (
        pytest.raises(pytest.skip.Exception, match=r"^install Java, or start Docker, or set OFFBEAT_TEST_KAFKA$"),
        skipped_where_unavailable("OFFBEAT_TEST_KAFKA"),
    ):
        raise ServiceUnavailable("install Java")


def test_in_ci_the_test_fails_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install Java"), skipped_where_unavailable():
        raise ServiceUnavailable("install Java")


def test_the_environment_names_the_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_TEST_KAFKA", "broker:9092")
    monkeypatch.setenv("OFFBEAT_TEST_CLICKHOUSE", "clickhouse://someone:p%40ss@store:9440")
    with kafka_broker() as bootstrap_servers, clickhouse_server() as address:
        assert bootstrap_servers == "broker:9092"
        assert address == ClickHouseAddress("store", 9440, "someone", "p@ss")


def test_processes_share_what_the_first_of_them_starts_and_ends_after_the_last(tmp_path: Path) -> None:
    told: list[str] = []

    @contextmanager
    def service() -> Iterator[str]:
        told.append("started")
        yield f"broker {len(told)}"
        told.append("ended")

    first, second = shared(tmp_path / "a", service), shared(tmp_path / "a", service)
    assert first.__enter__() == second.__enter__() == "broker 1"
    with (tmp_path / "a" / "using").open() as users, pytest.raises(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    ending = Thread(target=first.__exit__, args=(None, None, None))
    ending.start()
    told.append("second leaves")
    second.__exit__(None, None, None)
    ending.join()
    assert told == ["started", "second leaves", "ended"]
    with shared(tmp_path / "a", service) as another:
        assert another == "broker 4"


def test_what_cannot_be_started_is_tried_by_the_next(tmp_path: Path) -> None:
    def missing() -> AbstractContextManager[str]:
        raise ServiceUnavailable("install Java")

    for _ in range(2):
        with pytest.raises(ServiceUnavailable), shared(tmp_path / "a", missing):
            pass


def test_a_clickhouse_url_is_read_as_it_is_written() -> None:
    address = ClickHouseAddress("store", 9440, "some:one", "p@s/s")
    assert ClickHouseAddress.of_url(address.url) == address


def test_a_clickhouse_url_has_clickhouse_s_defaults() -> None:
    assert ClickHouseAddress.of_url("clickhouse://store") == ClickHouseAddress("store", 9000, "default", "")


def test_another_url_is_refused() -> None:
    with pytest.raises(ValueError, match="OFFBEAT_TEST_CLICKHOUSE"):
        ClickHouseAddress.of_url("http://store:8123")
