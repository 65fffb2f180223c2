"""The checks of deployments can fail."""

import pytest
from typer.exceptions import TyperException

from schemas.errors import SettingsError
from tests.deploy.command_lines import check_command, loaded


def test_what_there_is_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_command(["worker", "search", "--instance", "pod-1"]) == "worker search"
    assert check_command(["topics", "apply"]) == "topics apply"
    assert check_command(["produce", "--simulate", "tp=2,pp=1,dp=1"]) == "produce"
    assert loaded({"OFFBEAT_KAFKA__USERNAME": "a"}, monkeypatch).kafka.username == "a"


@pytest.mark.parametrize(
    "arguments",
    [["works"], ["worker", "searches"], ["sink", "--health-prt", "1"], ["agent", "--health-port", "many"], ["topics"]],
    ids=" ".join,
)
def test_an_unknown_command_option_or_value_fails(arguments: list[str]) -> None:
    with pytest.raises(TyperException):
        check_command(arguments)


def test_an_unknown_fault_fails() -> None:
    with pytest.raises(SettingsError, match="gpu_sloow"):
        check_command(["produce", "--simulate", "tp=2", "--fault", "kind=gpu_sloow,rank=1,iterations=3-4"])


@pytest.mark.parametrize("name", ["OFFBEAT_KAFKA__SERVERS", "OFFBEAT_KAFKA", "OFFBEAT_WORKER__HEALTH_PORT"])
def test_an_unknown_variable_or_value_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=name):
        loaded({name: "x"}, monkeypatch)
