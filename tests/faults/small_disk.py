"""A file system of a few megabytes, to fill and to make room on."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PIECE = 4096


class NoSmallDisk(Exception):
    """This user may not mount one."""


@dataclass(frozen=True)
class SmallDisk:
    """A mounted tmpfs at ``folder``."""

    folder: Path

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"

    def fill(self) -> None:
        """Take all room that is left."""
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):  # until there is none
            while True:
                ballast.write(bytes(_PIECE))

    @property
    def is_full(self) -> bool:
        """Whether not even a byte fits."""
        return shutil.disk_usage(self.folder).free == 0

    def make_room(self) -> None:
        """Give back what was taken."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size; raises ``NoSmallDisk`` where that is not allowed, as it is for root alone."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NoSmallDisk(f"no small disk can be mounted: {error}") from error
    if done.returncode != 0:
        raise NoSmallDisk(f"no small disk can be mounted: {done.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)
