"""The life of a local service, on one that needs nothing but this Python."""

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from local.service import LOOPBACK, LocalService, LocalServiceError, ServiceUnavailable, find_program, free_ports

# Holds every connection open until a signal ends it. Notes its starts in its folder.
_LISTENER = """
import pathlib, socket, sys
with pathlib.Path("starts").open("a") as starts:
    starts.write("started\\n")
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
connections = []
while True:
    connections.append(server.accept())
"""


class Listener(LocalService):
    name = "listener"
    program = _LISTENER

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        return [sys.executable, "-c", self.program, str(self.port)], None

    def is_ready(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex((LOOPBACK, self.port)) == 0


class Failing(Listener):
    program = "raise SystemExit('no such setting')"


class Deaf(Listener):
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + _LISTENER
    stopped_within_s = 0.2


class Orderly(Listener):
    # Waits for the signal itself: one that comes just before `accept` blocks is not handled until that returns.
    program = """
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
signal.sigwait({signal.SIGTERM})
sys.exit(7)
"""


class Silent(Listener):
    program = "import signal; signal.pause()"
    ready_within_s = 0.2


def test_it_answers_while_its_block_lasts_and_leaves_nothing_behind() -> None:
    with Listener() as service:
        assert service.is_ready()
        folder = service.folder
        assert folder.exists()
    assert not service.running
    assert not service.is_ready()
    assert not folder.exists()


def test_a_given_folder_stays(tmp_path: Path) -> None:
    with Listener(tmp_path):
        pass
    assert (tmp_path / "starts").read_text() == "started\n"


def test_restart_and_start_after_kill_keep_port_and_folder(tmp_path: Path) -> None:
    with Listener(tmp_path) as service:
        port = service.port
        service.restart()
        assert service.is_ready()
        service.kill()
        assert not service.running
        assert not service.is_ready()
        service.start()
        assert service.is_ready()
        assert service.port == port
    assert (tmp_path / "starts").read_text() == "started\n" * 3


def test_starting_twice_is_an_error() -> None:
    with Listener() as service, pytest.raises(LocalServiceError, match="running already"):
        service.start()


def test_stop_and_kill_do_nothing_to_a_service_that_is_not_there() -> None:
    service = Listener()
    assert service.stop() is None
    service.kill()
    with pytest.raises(LocalServiceError, match="not running"):
        service.wait()


def test_a_start_that_fails_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(LocalServiceError, match=r"code 1 before it was ready.*listener\.log:\nno such setting"):
        Failing(tmp_path).start()


def test_a_start_that_fails_keeps_the_log_of_a_temporary_folder() -> None:
    service = Failing()
    folder = service.folder
    try:
        with pytest.raises(LocalServiceError), service:
            pytest.fail("it must not start")
        del service
        assert (folder / "listener.log").exists()
    finally:
        shutil.rmtree(folder)


def test_a_service_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    service = Silent(tmp_path)
    with pytest.raises(LocalServiceError, match=r"not ready in 0\.2 s"):
        service.start()
    assert not service.running


def test_stopping_tells_the_exit_code(tmp_path: Path) -> None:
    service = Orderly(tmp_path)
    service.start()
    assert service.stop() == 7
    assert service.stop() is None


def test_a_service_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    service = Deaf(tmp_path)
    service.start()
    assert service.stop() == -signal.SIGKILL
    assert not service.running
    assert not service.is_ready()


def test_a_service_does_not_outlive_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner_program = f"""
import pathlib, signal, sys
sys.path[:0] = {sys.path!r}
from tests.local.test_service import Listener
service = Listener(pathlib.Path({str(tmp_path)!r}))
service.start()
print(service.port, flush=True)
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", owner_program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        port = int(owner.stdout.readline())
        with socket.create_connection((LOOPBACK, port)) as connection:
            owner.kill()
            connection.settimeout(60)
            # Reset instead of closed where it ended before it had accepted this connection.
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    for port in ports:
        with socket.create_server((LOOPBACK, port)):
            pass


def test_a_taken_port_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free, taken = sorted(free_ports(2))
    monkeypatch.setattr("local.service._PORTS", [free, taken])
    with socket.create_server((LOOPBACK, taken)):
        assert free_ports(1) == [free]


def test_a_program_that_is_missing_is_named_with_what_to_install() -> None:
    with pytest.raises(ServiceUnavailable, match="`no-such-program` is not on the PATH: install something"):
        find_program("no-such-program", "something")
