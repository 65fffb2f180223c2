"""The local ClickHouse is a real server: rows go in through the driver and survive its death."""

import os
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException

from local.clickhouse import LocalClickHouse
from local.clickhouse.__main__ import password
from local.service import LocalServiceError, free_ports
from offbeat import wiring
from offbeat.settings import Settings
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


@pytest.mark.clickhouse
def test_in_the_foreground_it_prints_the_settings_that_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    secret = tmp_path / "password"
    root = Path(__file__).parents[2]
    named = os.path.relpath(secret, root)  # as make clickhouse does; what is printed holds in every folder
    command = [sys.executable, "-m", "local.clickhouse", "--port", str(port), "--password-file", named]
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if line.startswith("(log: "):
                break
            if line.startswith("export "):
                name, _, value = shlex.split(line)[1].partition("=")
                monkeypatch.setenv(name, value)
        with wiring.opened(Settings().store) as store:
            assert store.query("SELECT currentUser() AS user").to_pylist() == [{"user": LocalClickHouse.user}]
        server.terminate()
        assert server.wait(30) == 0
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_the_password_of_a_file_stays(tmp_path: Path) -> None:
    made = password(tmp_path / "password")
    assert made
    assert password(tmp_path / "password") == made
    (tmp_path / "password").write_text("\n")
    with pytest.raises(LocalServiceError, match="is empty: write a password to it"):
        password(tmp_path / "password")
    with pytest.raises(LocalServiceError, match=r"none/password: No such file or directory; give --password-file"):
        password(tmp_path / "none" / "password")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LocalServiceError, match=f"port {port} on 127.0.0.1 is taken: give ClickHouse another one"):
            LocalClickHouse(port=port).start()


def _client(server: LocalClickHouse) -> Client:
    return Client(server.host, server.tcp_port, user=server.user, password=server.password)
