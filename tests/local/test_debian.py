"""A program comes from the PATH, else out of Debian's package; where neither is, it is said what to install."""

import shutil
import subprocess
from pathlib import Path

import pytest

from local.debian import program, unpacked
from local.service import ServiceUnavailable


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))


def test_what_is_on_the_path_is_taken() -> None:
    assert str(program("sh", "dash")) == shutil.which("sh")


@pytest.mark.usefixtures("empty_cache")
def test_without_apt_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ServiceUnavailable, match="`apt-get` is not on the PATH to fetch it: install prometheus"):
        program("promtool", "prometheus")


@pytest.mark.usefixtures("empty_cache")
def test_what_apt_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 100, "E: no network\n")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", refusing)
    with pytest.raises(ServiceUnavailable, match=r"prometheus could not be fetched \(E: no network\)"):
        unpacked("prometheus")


@pytest.mark.usefixtures("empty_cache")
def test_a_package_is_unpacked_as_it_would_lie_under_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not on the PATH")
    packed = tmp_path / "packed"
    (packed / "usr" / "bin").mkdir(parents=True)
    (packed / "usr" / "bin" / "greeting").write_text("#!/bin/sh\necho hello\n")
    (packed / "DEBIAN").mkdir()
    (packed / "DEBIAN" / "control").write_text(
        "Package: greeting\nVersion: 1\nArchitecture: all\nMaintainer: a test <test@example.org>\nDescription: a test\n"
    )
    really_run = subprocess.run

    def run(command: list[str], *, cwd: Path, **options: object) -> subprocess.CompletedProcess[str]:
        """What apt downloads is packed here."""
        if command[0] == "apt-get":
            archive = cwd / "greeting.deb"
            command = ["dpkg-deb", "--build", str(packed), str(archive)] if "download" in command else ["true"]
        return really_run(command, cwd=cwd, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(subprocess, "run", run)
    greeting = program("greeting", "greeting")
    assert greeting.read_text().endswith("echo hello\n")
