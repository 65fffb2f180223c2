"""Kustomize comes from where it can be had, and its refusals are passed on."""

import shutil
from pathlib import Path

import pytest

from local.kustomize import _command, build
from local.service import LocalServiceError, ServiceUnavailable
from tests.services import skipped_where_unavailable


def test_what_it_refuses_is_said(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [missing.yaml]\n")
    with skipped_where_unavailable(), pytest.raises(LocalServiceError, match=r"kustomize refuses .*missing\.yaml"):
        build(tmp_path)


def test_kubectl_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", {"kubectl": "/bin/kubectl"}.get)
    assert _command() == ["/bin/kubectl", "kustomize"]


def test_without_any_of_them_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="install kustomize"):
        build(tmp_path)
