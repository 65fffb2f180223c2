"""The rules of the shared services: which test may use one, and where it comes from."""

import pytest

from local.service import ServiceUnavailable
from tests.services import (
    ClickHouseAddress,
    clickhouse_server,
    kafka_broker,
    missing_markers,
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


def test_a_clickhouse_url_has_clickhouse_s_defaults() -> None:
    assert ClickHouseAddress.of_url("clickhouse://store") == ClickHouseAddress("store", 9000, "default", "")


def test_another_url_is_refused() -> None:
    with pytest.raises(ValueError, match="OFFBEAT_TEST_CLICKHOUSE"):
        ClickHouseAddress.of_url("http://store:8123")
