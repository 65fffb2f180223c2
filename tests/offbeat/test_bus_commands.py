"""`offbeat topics apply`, `dead-letters list` and `produce` where no broker is. (With one: test_deployed.py.)"""

import pytest

from tests.offbeat.command_line import EXAMPLE, offbeat, refusal

NOBODY = "127.0.0.1:1"


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offbeat.commands.bus._WITHIN_S", 0.5)
    monkeypatch.setattr("offbeat.produce._BROKER_WITHIN_S", 0.5)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("command", ["topics apply", "topics apply --dry-run", "dead-letters list", "produce"])
def test_brokers_that_are_away_are_one_line(command: str) -> None:
    recording = ("--recording", EXAMPLE) if command == "produce" else ()
    line = refusal(offbeat(*command.split(), *recording, settings={"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": NOBODY}))
    assert line.startswith(f"no broker answers at {NOBODY}: ")
    assert line.endswith("; set OFFBEAT_KAFKA__BOOTSTRAP_SERVERS, or start a broker with `make kafka`")
