"""What a training process tells about itself beside its rings, once: job, rank, place, and its communicators.

A process has a folder, named by rank and start id, in the rings' folder that it shares with its agent:

    registration.json   replaced whole whenever a communicator becomes known, before its first operator
    alive               locked by the process; the kernel lets go of it however the process ends
    ring-0, ring-1 ...  a ring a thread (``ring``)

Standard library alone: a training process imports it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from producers.whole_files import replacing

DEFAULT_FOLDER = Path("/dev/shm/offbeat")
FOLDER_VARIABLE = "OFFBEAT_LIVE__RINGS"
"""Environment variable that names another folder, to the training processes and to the agent."""

REGISTRATION, ALIVE, RING = "registration.json", "alive", "ring-"
MAX_BYTES = 16 << 20
"""Largest registration that is read."""

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "barrier", "send", "recv")
PHASES = ("forward", "backward", "gradient", "other")
"""What records hold the ordinals of; those of telemetry.comm_ops. A phase's ordinal is one more: 0 is not known."""

MOST_RANKS = 1 << 20
"""That of ``schemas.topic``, which a training process does not import."""

DEGREES = ("tp", "cp", "ep", "dp", "pp")
"""Degrees of parallelism that a layout may name; those of ``diagnosis.job``."""

ABANDONED_AFTER_S = 3600.0
"""How long what a dead process left is kept for an agent that is not there."""


@dataclass(frozen=True)
class Group:
    """A communicator as one member knows it; ``ranks`` is empty where its members were not said."""

    communicator: str
    ranks: tuple[int, ...] = ()
    kind: str | None = None


@dataclass(frozen=True)
class Registration:
    """One start of one rank of a job. A communicator's place in ``groups`` is its code in the records."""

    job: str
    rank: int
    start_id: str
    world: int | None = None
    host: str | None = None
    gpu: int | None = None
    started_ns: int | None = None
    layout: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[Group, ...] = ()

    def write(self, folder: Path) -> None:
        """Replace what the folder says."""
        with replacing(folder / REGISTRATION) as file:
            file.write(json.dumps(asdict(self)).encode())

    @classmethod
    def read(cls, folder: Path) -> Registration:
        """What a process's folder says.

        Raises ``ValueError`` for what no process writes, and ``OSError`` where there is nothing to read.
        """
        path = folder / REGISTRATION
        with os.fdopen(opened(path), "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
        try:
            return cls._of(json.loads(content.decode()))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is no registration: {type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, said: Mapping[str, Any]) -> Registration:
        groups = tuple(Group(g["communicator"], tuple(g["ranks"]), g["kind"]) for g in said["groups"])
        made = cls(**{**said, "groups": groups})
        made.check()
        return made

    def check(self) -> None:
        """Raise ``ValueError`` for numbers and names that cannot be."""
        if not set(self.layout) <= set(DEGREES) or any(type(own) is not int or own < 1 for own in self.layout.values()):
            raise ValueError(f"the layout is {dict(self.layout)}; give degrees of {', '.join(DEGREES)} from 1")
        numbers = [self.rank, *(rank for group in self.groups for rank in group.ranks)]
        numbers += [number for number in (self.world, self.gpu, self.started_ns) if number is not None]
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError("a rank, a size or a time is not a whole number from 0")
        if (
            max([self.rank, (self.world or 1) - 1, *(rank for group in self.groups for rank in group.ranks)])
            >= MOST_RANKS
        ):
            raise ValueError(f"a job has at most {MOST_RANKS} ranks")
        for group in self.groups:
            if len(set(group.ranks)) < len(group.ranks):
                raise ValueError(f"communicator {group.communicator} lists a rank twice")
        names = [self.job, self.start_id, *(group.communicator for group in self.groups)]
        names += [name for name in (self.host, *(group.kind for group in self.groups)) if name is not None]
        if not all(type(name) is str and name for name in names):
            raise ValueError("a name is not text, or empty")


def told_groups(said: Iterable[Registration]) -> list[Group]:
    """The communicators that processes of one job tell of, by name: members and kind as the first says who tells them.

    Those whose members nobody tells have the ranks that use them.
    """
    members: dict[str, tuple[int, ...]] = {}
    kinds: dict[str, str | None] = {}
    users: dict[str, set[int]] = {}
    for one in said:
        for group in one.groups:
            name = group.communicator
            members[name] = members.get(name) or group.ranks
            kinds[name] = kinds.get(name) or group.kind
            users.setdefault(name, set()).add(one.rank)
    return [Group(name, members[name] or tuple(sorted(users[name])), kinds[name]) for name in members]


class Presence:
    """A process's folder, as the process itself holds it: there until somebody clears it away, alive until then.

    Raises ``OSError`` where the folder cannot be made.
    """

    def __init__(self, rings: Path, registration: Registration) -> None:
        rings.mkdir(parents=True, exist_ok=True)
        sweep(rings)
        name = f"{registration.rank}-{registration.start_id}"
        made = rings / f".{name}"
        made.mkdir(mode=0o700)
        self._lock = os.open(made / ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        registration.write(made)
        self.folder = rings / name
        made.rename(self.folder)  # only now does an agent see it, locked and registered

    def leave(self) -> None:
        """Be seen as gone."""
        os.close(self._lock)


def is_alive(folder: Path) -> bool:
    """Whether the process of a folder still runs; seen from any container that shares the folder.

    Raises ``PermissionError`` where that may not be known.
    """
    try:
        lock = opened(folder / ALIVE)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except BlockingIOError:  # a lease: whoever holds it runs
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def folders(rings: Path) -> Iterator[Path]:
    """The folders of all processes, dead ones included, in the order of their names; links to folders are none."""
    if rings.is_dir():
        yield from sorted(path for path in rings.iterdir() if not path.name.startswith(".") and _is_folder(path))


def is_ours(folder: Path) -> bool:
    """Whether a folder is of the user that this process runs as: anybody may put one among the rings."""
    return folder.lstat().st_uid == os.geteuid()


def sweep(rings: Path, *, older_than_s: float = ABANDONED_AFTER_S) -> None:
    """Clear away what this user's dead processes left so long ago that no agent will come for it: it is memory."""
    for folder in folders(rings):
        try:
            old = is_ours(folder) and time.time() - (folder / REGISTRATION).lstat().st_mtime > older_than_s
            abandoned = old and not is_alive(folder)
        except OSError:  # just cleared away
            continue
        if abandoned:
            shutil.rmtree(folder, ignore_errors=True)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:  # just cleared away
        return False


def opened(path: Path) -> int:
    """A descriptor to read a file by; who put it there cannot make this wait, as a pipe or a lease would.

    Raises ``ValueError`` for what is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise ValueError(f"{path} is no regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is no regular file")
    return descriptor
