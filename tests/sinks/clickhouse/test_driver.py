"""What is the server's own: it can be away, die in the middle, refuse, and ask for TLS."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from local.clickhouse import LocalClickHouse
from schemas.errors import StoreError
from sinks.clickhouse.driver import DriverStore, ServerAddress
from tests.sinks.clickhouse.relay import Relay

pytestmark = pytest.mark.clickhouse

ROWS = pa.table({"n": pa.array(np.arange(200_000))})
NUMBERED = """
CREATE TABLE IF NOT EXISTS numbered (n Int64) ENGINE = MergeTree ORDER BY n
SETTINGS non_replicated_deduplication_window = 100
"""
COUNTED = "SELECT count() AS rows, uniqExact(n) AS different FROM numbered"


def address_of(server: LocalClickHouse) -> ServerAddress:
    return ServerAddress(server.host, server.tcp_port, user=server.user, password=server.password)


@pytest.fixture
def watcher(local_clickhouse: LocalClickHouse) -> Iterator[DriverStore]:
    """A store with a connection of its own to the server under test."""
    store = DriverStore(address_of(local_clickhouse))
    store.execute(NUMBERED)
    store.execute("CREATE TABLE rehearse AS numbered")
    yield store
    store.close()


def test_a_server_that_dies_before_the_acknowledgement_has_every_row_once(
    local_clickhouse: LocalClickHouse, watcher: DriverStore
) -> None:
    with Relay(local_clickhouse.tcp_port) as relay:  # how many bytes until the insert is complete?
        store = DriverStore(replace(address_of(local_clickhouse), port=relay.port))
        store.insert("rehearse", ROWS, "a")
        store.close()
    with Relay(local_clickhouse.tcp_port, lose_answers_after=relay.sent) as relay:
        store = DriverStore(replace(address_of(local_clickhouse), port=relay.port))
        insert = threading.Thread(target=store.insert, args=("numbered", ROWS, "a"), daemon=True)
        insert.start()
        assert relay.losing.wait(60)
        while watcher.query(COUNTED).to_pylist() != [{"rows": ROWS.num_rows, "different": ROWS.num_rows}]:
            assert insert.is_alive()  # stored, but not acknowledged
        local_clickhouse.kill()
        local_clickhouse.start()
        insert.join(60)
        assert not insert.is_alive()
        store.close()
    assert watcher.query(COUNTED).to_pylist() == [{"rows": ROWS.num_rows, "different": ROWS.num_rows}]


def test_an_insert_waits_for_a_server_that_comes_back(local_clickhouse: LocalClickHouse, watcher: DriverStore) -> None:
    store = DriverStore(address_of(local_clickhouse))
    store.insert("numbered", ROWS.slice(0, 1), "a")  # connected
    local_clickhouse.kill()
    insert = threading.Thread(target=store.insert, args=("numbered", ROWS.slice(1), "b"), daemon=True)
    insert.start()
    local_clickhouse.start()
    insert.join(60)
    assert not insert.is_alive()
    store.close()
    assert watcher.query(COUNTED).to_pylist() == [{"rows": ROWS.num_rows, "different": ROWS.num_rows}]


def test_a_server_that_stays_away_is_a_store_error(local_clickhouse: LocalClickHouse) -> None:
    store = DriverStore(address_of(local_clickhouse), retry_for_s=0)
    assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    local_clickhouse.kill()
    where = f"ClickHouse at 127.0.0.1:{local_clickhouse.tcp_port} .* cannot be reached: .*; see that it runs"
    for _ in range(2):
        with pytest.raises(StoreError, match=where):
            store.query("SELECT 1")
    with pytest.raises(StoreError, match=where):
        store.insert("numbered", ROWS, "a")
    local_clickhouse.start()
    assert store.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    store.close()


def test_what_the_server_will_always_refuse_is_not_tried_again(server: ServerAddress) -> None:
    store = DriverStore(replace(server, password="wrong"), retry_for_s=3600)
    with pytest.raises(StoreError, match="Authentication failed"):
        store.query("SELECT 1")
    store.close()
    store = DriverStore(server, retry_for_s=3600)
    with pytest.raises(StoreError, match="Unknown expression identifier"):
        store.query("SELECT nothing")
    with pytest.raises(StoreError, match=r"wrap that column in toString\(\.\.\.\)"):
        store.query("SELECT sumState(1)")
    store.close()


def test_what_may_pass_is_tried_again_until_it_is_too_long(server: ServerAddress) -> None:
    store = DriverStore(server, retry_for_s=0.5)
    with capture_logs() as logged, pytest.raises(StoreError, match="memory limit exceeded"):
        store.query("SELECT groupArray(number) FROM numbers(1000000)", settings={"max_memory_usage": 1000})
    assert len(logged) >= 2
    assert {entry["event"] for entry in logged} == {"store is tried again"}
    store.close()


def test_a_password_is_not_printed(server: ServerAddress) -> None:
    assert server.password
    assert server.password not in f"{server} {server!r}"


def test_compressed(server: ServerAddress) -> None:
    store = DriverStore(replace(server, compression=True))
    store.execute(NUMBERED)
    store.insert("numbered", ROWS, "a")
    assert store.query("SELECT n FROM numbered ORDER BY n").column("n").to_numpy().tolist() == list(range(200_000))
    store.close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 and its key, in one file."""
    path, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {path}"
    named = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), *named.split()], check=True, capture_output=True)
    path.write_text(path.read_text() + key.read_text())
    return path


def test_tls_checks_the_certificate(server: ServerAddress, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Relay(server.port, tls=context) as relay:
        secured = replace(server, port=relay.port, secure=True)
        trusting = DriverStore(replace(secured, ca_certificates=certificate))
        assert trusting.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
        trusting.close()
        strict = DriverStore(secured, retry_for_s=0)
        with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
            strict.query("SELECT 1")
        strict.close()
        careless = DriverStore(replace(secured, verify=False))
        assert careless.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]
        careless.close()
