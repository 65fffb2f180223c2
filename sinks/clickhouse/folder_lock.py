"""Who has a chDB folder open: the engine locks it for one process, and says of others no more than "error"."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import StoreError

_LOCK = "status"
_LOCKS = Path("/proc/locks")


class FolderHeld(StoreError):
    """Another process has the folder open; ``process`` is its number, None where this machine does not tell it."""

    def __init__(self, folder: Path, process: int | None) -> None:
        who = "another process" if process is None else f"process {process}"
        super().__init__(
            f"chDB folder {folder}: {who} holds it; end that one, give another folder, or serve both with ClickHouse"
        )
        self.folder = folder
        self.process = process


def require_free(folder: Path) -> None:
    """Raise ``FolderHeld`` where another process has the folder open, ``OSError`` where that cannot be looked at."""
    try:
        with (folder / _LOCK).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderHeld(folder, _holder(os.fstat(lock.fileno()))) from None
    except FileNotFoundError:
        return


@contextmanager
def opening(folder: Path) -> Iterator[None]:
    """While one process opens a folder, others wait for it here: the engine would tell them of it in its own words.

    Raises what ``require_free`` does, and ``OSError`` for a folder that cannot be written.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        require_free(folder)
        for path in (folder, folder / _LOCK):
            if path.exists() and not os.access(path, os.W_OK):
                raise OSError(errno.EACCES, "it cannot be written, and the engine writes where it reads")
        yield
    finally:
        os.close(lock)


def _holder(lock: os.stat_result) -> int | None:
    """The process that holds a lock, as Linux lists it: ``1: FLOCK  ADVISORY  WRITE 4039 fe:00:10289224 0 EOF``."""
    file = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    try:
        fields = [line.split() for line in _LOCKS.read_text().splitlines()]
    except OSError:
        return None
    holders = (int(field[4]) for field in fields if field[1] != "->" and len(field) > 5 and field[5] == file)
    return next((process for process in holders if process > 0), None)  # 0, -1: one of another container
