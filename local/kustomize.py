"""Kustomize: the one on the PATH, the one in kubectl, else built with Go and cached."""

import os
import shutil
import subprocess
from pathlib import Path

from local.cache import cached
from local.service import LocalServiceError, ServiceUnavailable

_PROGRAM = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"


def build(folder: Path) -> str:
    """The objects of an overlay, as YAML documents.

    Raises ServiceUnavailable where there is no kustomize to be had, LocalServiceError where it refuses the overlay.
    """
    done = subprocess.run([*_command(), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalServiceError(f"kustomize refuses {folder}: {done.stderr.strip()}")
    return done.stdout


def _command() -> list[str]:
    if found := shutil.which("kustomize"):
        return [found, "build"]
    if found := shutil.which("kubectl"):
        return [found, "kustomize"]
    return [str(cached("kustomize", _PROGRAM, _install) / "kustomize"), "build"]


def _install(folder: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ServiceUnavailable("neither `kustomize` nor `kubectl` nor `go` is on the PATH: install kustomize")
    folder.mkdir()
    environment = {**os.environ, "GOBIN": str(folder)}
    done = subprocess.run([go, "install", _PROGRAM], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServiceUnavailable(f"Go could not build kustomize ({done.stderr.strip()[-500:]}): install kustomize")
