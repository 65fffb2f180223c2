"""Secrets from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from offbeat import wiring
from offbeat.secret_files import SECRETS, SUFFIX
from offbeat.settings import Settings
from schemas.errors import SettingsError
from tests.offbeat.command_line import offbeat

HUSH = "hush-hush"
FIELDS = [
    (group, name)
    for group, model in Settings.model_fields.items()
    if isinstance(model.default, BaseModel)
    for name, field in type(model.default).model_fields.items()
    if "SecretStr" in str(field.annotation)
]
"""Every secret of the settings."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("OFFBEAT_"):
            monkeypatch.delenv(name)


def variable(group: str, name: str) -> str:
    return f"OFFBEAT_{group}__{name}{SUFFIX}".upper()


def test_every_secret_may_be_in_a_file() -> None:
    assert len(FIELDS) == 6
    assert {name for _, name in FIELDS} == SECRETS
    groups = {group: type(Settings.model_fields[group].default).model_fields for group, _ in FIELDS}
    assert all(name + SUFFIX in groups[group] for group, name in FIELDS)


@pytest.mark.parametrize(("group", "name"), FIELDS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_holds_a_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: str, name: str, end: str
) -> None:
    (tmp_path / "secret").write_bytes(f"{HUSH}{end}".encode())
    monkeypatch.setenv(variable(group, name), str(tmp_path / "secret"))
    settings = Settings.load()
    whole = getattr(settings, group).with_secrets()
    held = getattr(whole, name)
    assert isinstance(held, SecretStr)
    assert held.get_secret_value() == HUSH
    assert HUSH not in f"{whole!r}{whole}{whole.model_dump_json()}"


@pytest.mark.parametrize(("group", "name"), FIELDS)
def test_a_file_that_is_set_to_nothing_is_not_set(monkeypatch: pytest.MonkeyPatch, group: str, name: str) -> None:
    monkeypatch.setenv(variable(group, name), "")
    settings = getattr(Settings.load(), group)
    assert settings.with_secrets() == settings


def test_clients_get_the_password(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(HUSH)
    for group in ("kafka", "store"):
        monkeypatch.setenv(variable(group, "password"), str(tmp_path / "secret"))
    settings = Settings.load()
    assert wiring.bus(settings.kafka).password == HUSH
    assert wiring.server_address(settings.store).password == HUSH
    assert HUSH not in f"{wiring.bus(settings.kafka)!r}{wiring.server_address(settings.store)!r}"


@pytest.mark.parametrize(("content", "said"), [(b"", "one line"), (b"a\nb", "one line"), (b"\xff", "no UTF-8 text")])
def test_what_holds_no_secret_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    monkeypatch.setenv("OFFBEAT_STORE__PASSWORD_FILE", str(file))
    with pytest.raises(SettingsError, match=f"^OFFBEAT_STORE__PASSWORD_FILE: .*{said}"):
        Settings.load().store.with_secrets()


def test_an_endless_file_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_STORE__PASSWORD_FILE", "/dev/zero")
    with pytest.raises(SettingsError, match="does not hold one line"):
        Settings.load().store.with_secrets()


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OFFBEAT_WEBHOOK__URL_FILE", str(tmp_path / "url"))
    with pytest.raises(SettingsError, match=r"^OFFBEAT_WEBHOOK__URL_FILE: .*/url: no such file or directory; give a"):
        Settings.load().webhook.with_secrets()


@pytest.mark.parametrize("group", ["kafka", "store", "webhook"])
def test_who_does_not_use_a_service_needs_no_file_of_it(group: str, tmp_path: Path) -> None:
    names = [name for its, name in FIELDS if its == group]
    gone = {variable(group, name): str(tmp_path / "gone") for name in names}
    result = offbeat("simulate", "--out", tmp_path / "run", "--scenario", "tp=1,pp=1,dp=4,iterations=5", settings=gone)
    assert result.exit_code == 0, result.output
    result = offbeat("diagnose", tmp_path / "run", settings=gone)
    assert result.exit_code == 0, result.output


def test_a_password_in_a_file_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("SECURITY_PROTOCOL", "SASL_SSL"), ("SASL_MECHANISM", "PLAIN"), ("USERNAME", "me")):
        monkeypatch.setenv(f"OFFBEAT_KAFKA__{name}", value)
    monkeypatch.setenv("OFFBEAT_KAFKA__PASSWORD_FILE", str(tmp_path / "secret"))
    (tmp_path / "secret").write_text(HUSH)
    assert wiring.bus(Settings.load().kafka).password == HUSH


def test_a_secret_is_given_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(HUSH)
    monkeypatch.setenv("OFFBEAT_KAFKA__PASSWORD", HUSH)
    monkeypatch.setenv("OFFBEAT_KAFKA__PASSWORD_FILE", str(tmp_path / "secret"))
    with pytest.raises(SettingsError) as refused:
        Settings.load()
    assert str(refused.value) == (
        "OFFBEAT_KAFKA__PASSWORD and OFFBEAT_KAFKA__PASSWORD_FILE are both set: give one of them"
    )
