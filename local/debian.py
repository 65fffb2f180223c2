"""Programs out of Debian's packages, unpacked into the cache without being installed: no root is needed."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from local.cache import cached
from local.service import ServiceUnavailable


def program(name: str, package: str) -> Path:
    """An executable: the one on the PATH, else /usr/bin/`name` of the Debian `package`.

    Raises ServiceUnavailable where neither can be had.
    """
    found = shutil.which(name)
    return Path(found) if found else unpacked(package) / "usr" / "bin" / name


def unpacked(package: str) -> Path:
    """The folder that holds a Debian package's files as they would lie under /; fetched if it is not there.

    Neither the packages that it depends on nor its set-up scripts: what comes of it must do without. Raises
    ServiceUnavailable where there is no apt, or where apt cannot have the package.
    """
    return cached(f"debian-{package}", package, lambda folder: _fetch(package, folder))


def _fetch(package: str, folder: Path) -> None:
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise ServiceUnavailable(f"`{missing[0]}` is not on the PATH to fetch it: install {package}")
    with tempfile.TemporaryDirectory(prefix="offbeat-debian-") as made:
        scratch = Path(made)
        # Package lists of its own: the machine's may be missing or old, and only root may renew them.
        (scratch / "lists" / "partial").mkdir(parents=True)
        apt = ["apt-get", "--quiet=2", "-o", f"Dir::State::Lists={scratch / 'lists'}", "-o", f"Dir::Cache={scratch}"]
        apt += ["-o", "APT::Sandbox::User="]  # the folder belongs to us, not to apt's own user
        _run(package, [*apt, "update"], scratch)
        _run(package, [*apt, "download", package], scratch)
        archives = list(scratch.glob("*.deb"))
        _run(package, ["dpkg-deb", "--extract", *map(str, archives), str(folder)], scratch)


def _run(package: str, command: Sequence[str], scratch: Path) -> None:
    done = subprocess.run(
        command,
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stdout.strip()[-2000:]
        raise ServiceUnavailable(f"Debian's package {package} could not be fetched ({said}): install {package}")
