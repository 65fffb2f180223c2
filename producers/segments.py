"""Frames of bytes in files of one folder, in order and bounded: the oldest file goes first.

What is appended survives the end of this process, however it ends, but not that of the machine. A file that was cut
short or damaged is cut where its last whole frame ends. Nobody but this user may read what is made here.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_FRAME = struct.Struct("<4sIIq")
"""Magic, bytes of the payload, checksum of number and payload, number."""
MAGIC = b"OFB1"
SUFFIX = ".frames"
_FILES = 16
"""The bound is shared by so many files: what goes at once is a part of what is kept."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a payload is."""

    number: int
    path: Path
    offset: int
    size: int


class Segments:
    """Numbered frames, oldest first; ``cut_bytes`` is what was found damaged at the start, and thrown away.

    ``for_reading`` leaves the folder as it is. Raises ``OSError`` where it cannot be used.
    """

    def __init__(self, folder: Path, max_bytes: int, *, for_reading: bool = False) -> None:
        if not for_reading:
            make_private(folder)
        self._folder = folder
        self._max_bytes = max_bytes
        self._file: Path | None = None
        self._sizes: dict[Path, int] = {}
        self.cut_bytes = 0
        self.frames: list[Frame] = []
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            self._open(path, for_reading=for_reading)
        if not for_reading:
            self.bound(max_bytes)

    @property
    def total_bytes(self) -> int:
        """What is on disk."""
        return sum(self._sizes.values())

    def append(self, number: int, payload: bytes) -> list[Frame]:
        """Add a frame, whose number is above all before it; returns those that had to go for it.

        Raises ``OSError`` where the disk takes it not; then nothing was added.
        """
        if self._file is None or self._sizes[self._file] + len(payload) > self._max_bytes // _FILES:
            path, offset = self._folder / f"{number:020d}{SUFFIX}", 0
        else:
            path, offset = self._file, self._sizes[self._file]
        try:
            with open(path, "ab", opener=private) as file:
                file.write(_FRAME.pack(MAGIC, len(payload), _checksum(number, payload), number) + payload)
        except OSError:
            if path.exists():
                os.truncate(path, offset)
            raise
        self._file = path
        self._sizes[path] = offset + _FRAME.size + len(payload)
        self.frames.append(Frame(number, path, offset + _FRAME.size, len(payload)))
        return self.bound(self._max_bytes)

    def read(self, frame: Frame) -> bytes:
        """A frame's payload. Raises ``OSError`` where it can no longer be read."""
        return read_frame(frame)

    def discard(self, before: int) -> None:
        """Let go of the frames whose numbers are below; their files go once none of their frames is needed."""
        self.frames = [frame for frame in self.frames if frame.number >= before]
        needed = {frame.path for frame in self.frames}
        for path in [path for path in self._sizes if path not in needed]:
            self._remove(path)

    def leave_out(self, numbers: Collection[int]) -> None:
        """Let go of single frames that are of no use to anybody; their files stay while others need them."""
        self.frames = [frame for frame in self.frames if frame.number not in numbers]
        self.discard(0)

    def bound(self, max_bytes: int) -> list[Frame]:
        """Hold the files to so many bytes from now on: the oldest beyond go, never the newest; returns their frames."""
        self._max_bytes = max_bytes
        gone: list[Path] = []
        while self.total_bytes > self._max_bytes and len(self._sizes) > 1:
            gone.append(min(self._sizes))
            self._remove(gone[-1])
        forgotten = [frame for frame in self.frames if frame.path in gone]
        self.frames = self.frames[len(forgotten) :]
        return forgotten

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        del self._sizes[path]
        if path == self._file:
            self._file = None

    def _open(self, path: Path, *, for_reading: bool) -> None:
        size, end = path.stat().st_size, 0
        try:
            for frame, _ in read_frames(path, self.frames[-1].number if self.frames else -1):
                self.frames.append(frame)
                end = frame.offset + frame.size
        except ValueError:
            self.cut_bytes += size - end
            if not for_reading:
                os.truncate(path, end)
        if end:
            self._sizes[path] = end
        elif not for_reading:
            path.unlink()


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone; ``Path.mkdir`` would open the latter."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)  # raises where there is something else


def private(path: str, flags: int) -> int:
    """An opener of files that are made for this user alone."""
    return os.open(path, flags, 0o600)


def read_frames(path: Path, last: int = -1) -> Iterator[tuple[Frame, bytes]]:
    """The frames of a file and what they hold, one at a time; the file is left as it is.

    ``last`` is the number before the first. Raises ``ValueError`` where a frame is damaged or not written to its end:
    of what follows it nothing is known. Raises ``OSError`` where the file cannot be read.
    """
    with path.open("rb") as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            header = file.read(_FRAME.size)
            magic, length, checksum, number = _FRAME.unpack(header) if len(header) == _FRAME.size else (b"", 0, 0, -1)
            begin = at + _FRAME.size
            whole = magic == MAGIC and number > last and begin + length <= size
            payload = file.read(length) if whole else b""
            if not whole or len(payload) < length or checksum != _checksum(number, payload):
                raise ValueError(f"{path}: its last {size - at} bytes are damaged, or are being written")
            yield Frame(number, path, begin, length), payload
            at, last = begin + length, number


def read_frame(frame: Frame) -> bytes:
    """A frame's payload. Raises ``OSError`` where it can no longer be read."""
    with frame.path.open("rb") as file:
        file.seek(frame.offset - _FRAME.size)
        header, payload = file.read(_FRAME.size), file.read(frame.size)
    if len(payload) < frame.size or _FRAME.unpack(header)[2] != _checksum(frame.number, payload):
        raise OSError(f"{frame.path}: the frame {frame.number} is damaged")
    return payload


def begins_with(path: Path, bytes_: int) -> bytes:
    """The first bytes of a file's first payload; fewer where there are none. Raises ``OSError``."""
    with path.open("rb") as file:
        return file.read(_FRAME.size + bytes_)[_FRAME.size :]


def _checksum(number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(number.to_bytes(8, "little", signed=True)))
