"""Alertmanager comes out of Debian's package and runs without being installed."""

import shutil
from pathlib import Path

import pytest

from local.alertmanager import _OURS, _THEIRS, LocalAlertmanager
from local.service import ServiceUnavailable
from tests.services import skipped_where_unavailable


def test_it_runs_and_runs_again_on_the_same_port(tmp_path: Path) -> None:
    service = LocalAlertmanager("http://127.0.0.1:1/", tmp_path)
    with skipped_where_unavailable():
        service.start()
    try:
        assert service.is_ready()
        url = service.url
        service.restart()
        assert (service.is_ready(), service.url) == (True, url)
        assert service.stop() == 0
        assert not service.is_ready()
    finally:
        service.kill()


def test_without_apt_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="install prometheus-alertmanager"):
        LocalAlertmanager("http://127.0.0.1:1/", tmp_path).start()


def test_a_path_within_a_program_is_replaced_by_one_as_long() -> None:
    assert len(_OURS) == len(_THEIRS)
    assert Path("/" + _OURS.decode()) == Path(_THEIRS.decode())
