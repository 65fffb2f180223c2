"""`offbeat topics`, `dead-letters` and `produce` where no broker is. (With one: test_deployed.py.)"""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.offbeat.command_line import EXAMPLE, offbeat, refusal

NOBODY = "127.0.0.1:1"


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offbeat.commands.bus._WITHIN_S", 0.5)
    monkeypatch.setattr("offbeat.commands.dead_letters._WITHIN_S", 0.5)
    monkeypatch.setattr("offbeat.commands.silences._WITHIN_S", 0.5)
    monkeypatch.setattr("offbeat.produce._BROKER_WITHIN_S", 0.5)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    "command",
    [
        "topics apply",
        "topics apply --dry-run",
        "topics retire",
        "dead-letters list",
        "dead-letters replay",
        "produce",
        "silences list",
        "silences add --job a",
        "silences end a",
    ],
)
def test_brokers_that_are_away_are_one_line(command: str) -> None:
    recording = ("--recording", EXAMPLE) if command == "produce" else ()
    line = refusal(offbeat(*command.split(), *recording, settings={"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": NOBODY}))
    assert line.startswith(f"no broker answers at {NOBODY}: ")
    assert line.endswith("; set OFFBEAT_KAFKA__BOOTSTRAP_SERVERS, or start a broker with `make kafka`")


@pytest.fixture
def plain_talker() -> Iterator[int]:
    """Listens, and answers every connection with something that is no TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            try:
                while True:
                    with server.accept()[0] as connection:
                        connection.recv(64)
                        connection.sendall(b"this is not what you look for\r\n")
            except OSError:  # the listening has ended
                return

        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.usefixtures("_impatient")
def test_a_handshake_that_fails_is_laid_to_the_protocol(plain_talker: int) -> None:
    settings = {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{plain_talker}",
        "OFFBEAT_KAFKA__SECURITY_PROTOCOL": "SSL",
    }
    line = refusal(offbeat("topics", "apply", "--dry-run", settings=settings))
    assert line.startswith(f"no broker answers at 127.0.0.1:{plain_talker}: ")
    assert line.endswith(
        "; set OFFBEAT_KAFKA__SECURITY_PROTOCOL (it is SSL) to what the brokers speak there, and "
        "OFFBEAT_KAFKA__CA_FILE to the authority that signed their certificates"
    )


@pytest.mark.parametrize("command", ["topics apply --dry-run", "dead-letters list", "worker monitor", "produce"])
def test_a_file_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    recording = ("--recording", EXAMPLE) if command == "produce" else ()
    missing = tmp_path / "ca.pem"
    settings = {"OFFBEAT_KAFKA__SECURITY_PROTOCOL": "SSL", "OFFBEAT_KAFKA__CA_FILE": str(missing)}
    line = refusal(offbeat(*command.split(), *recording, settings=settings))
    assert line == f"OFFBEAT_KAFKA__CA_FILE: {missing}: no such file or directory; give a file in PEM form"


@pytest.mark.parametrize(
    ("name", "said"), [("CA_FILE", "holds no certificate in PEM form"), ("KEY_FILE", "is not in PEM form")]
)
def test_a_file_that_is_something_else_is_named(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("hello")
    settings = {"OFFBEAT_KAFKA__SECURITY_PROTOCOL": "SSL", f"OFFBEAT_KAFKA__{name}": str(tmp_path / "notes")}
    line = refusal(offbeat("topics", "apply", settings=settings))
    assert line == f"OFFBEAT_KAFKA__{name}: {tmp_path / 'notes'} {said}"
