"""Files of a recording: which they are, and how their lines are read without trusting their size."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import unquote

from schemas.errors import InputError

_THREADS = min(4, os.cpu_count() or 1)

_HEAD_BYTES = 4096
_ROTATED = re.compile(r"([.-][0-9]+)+(?=(\.gz)?$)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

Work = TypeVar("Work")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limits:
    """What is read at most, in bytes: a file as it lies on disk, all files decompressed, one line."""

    file_bytes: int = 4 << 30
    decoded_bytes: int = 16 << 30
    line_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file; ``line`` is the number of the first, from 1. What follows the last end of a line is a
    block of its own, and comes with the line ``before`` it; ``torn``: the compressed data ended within it.
    """

    path: Path
    line: int
    data: bytes
    before: bytes = b""
    torn: bool = False


def line_blocks(files: Sequence[Path], limits: Limits, cut: list[str]) -> Iterator[Block]:
    """The lines of files, in blocks of about ``limits.line_bytes``; decompressed where a name ends in ``.gz``.

    Compressed data that ends early, as a killed job leaves it, is read as far as it goes, and ``cut`` is told, a line
    for each such file. Raises ``InputError`` for what cannot be read, is damaged, or is larger than the limits.
    """
    left = limits.decoded_bytes
    for path in files:
        for block in _blocks_of(path, limits, cut):
            left -= len(block.data)
            if left < 0:
                raise InputError(
                    f"{path}: the recording holds more than {limits.decoded_bytes} bytes once decompressed; "
                    "diagnose a part of it"
                )
            yield block


def in_order(work: Callable[[Work], Result], blocks: Iterable[Work]) -> Iterator[Result]:
    """Results of ``work`` in the order of the blocks, a few of which are under way at a time, on several threads."""
    under_way: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for block in blocks:
                under_way.append(pool.submit(work, block))
                if len(under_way) > 2 * _THREADS:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def unrotated(path: Path) -> str:
    """A file's name without what rotation put behind it: of ``rank5.log.1`` and ``rank5.log-20261127`` the name is
    ``rank5.log``, of ``rank5.log.2.gz`` it is ``rank5.log.gz``.
    """
    return _ROTATED.sub("", path.name)


def first_lines(path: Path, limits: Limits | None = None) -> list[str]:
    """The first lines of a file that say something, to tell its format by; none where it cannot be read."""
    limits = limits or Limits()
    try:
        with _open(path, limits) as file:
            head = file.read(_HEAD_BYTES).removeprefix(_BYTE_ORDER_MARK)
    except InputError:
        return []
    return [line.strip() for line in head.decode(errors="replace").splitlines() if line.strip()]


def _blocks_of(path: Path, limits: Limits, cut: list[str]) -> Iterator[Block]:
    line, carried, before = 1, b"", b""
    with _open(path, limits) as file:
        while chunk := file.read(limits.line_bytes):
            if line == 1 and not carried:
                chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
            first = chunk.find(b"\n")
            if len(carried) + (first if first >= 0 else len(chunk)) > limits.line_bytes:
                raise InputError(f"{path}:{line}: a line of more than {limits.line_bytes} bytes")
            end = chunk.rfind(b"\n") + 1
            if not end:
                carried += chunk
                continue
            data = carried + chunk[:end]
            yield Block(path, line, data)
            before = data[data.rfind(b"\n", 0, -1) + 1 :]
            line += chunk.count(b"\n")
            carried = chunk[end:]
        if file.cut:
            cut.append(f"{path}: the compressed data ends early, in line {line}; what follows is lost")
    if carried:
        yield Block(path, line, carried, before, file.cut)


class _File:
    """A file, decompressed where its name ends in ``.gz``; ``cut``: the compressed data ended before its end.

    Raises ``OSError`` where it cannot be opened, ``InputError`` where it cannot be read or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.cut = False
        self._path = path
        self._file = gzip.GzipFile(path) if unrotated(path).endswith(".gz") else path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end."""
        parts = []
        try:
            while size and (part := self._file.read1(size)):  # read would lose what precedes an early end
                parts.append(part)
                size -= len(part)
        except EOFError:
            self.cut = True
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self._path}: {self._damage(error)}") from error
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from error
        return b"".join(parts)

    def _damage(self, error: Exception) -> str:
        with self._path.open("rb") as file:
            if file.read(len(_GZIP)) != _GZIP:
                return "no gzip, whatever its name says; name it without .gz, or leave it out"
        return f"the compressed data is damaged at or after byte {self._file.tell()} of what it holds: {error}"


def _open(path: Path, limits: Limits) -> _File:
    try:
        size = path.stat().st_size
        if size > limits.file_bytes:
            raise InputError(f"{path}: {size} bytes, at most {limits.file_bytes} are read; split it")
        return _File(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def expand(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files that paths name, each once: files themselves, and those that lie in folders.

    Of the folders in a folder only those of a partition (``rank=3``) are looked into.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files.update(dict.fromkeys(_in_folder(path)))
        elif path.is_file():
            files[path] = None
        else:
            raise InputError(f"{path}: no such file or folder")
    return tuple(files)


def _in_folder(folder: Path) -> Iterator[Path]:
    children = sorted(folder.iterdir())
    yield from (child for child in children if child.is_file())
    for child in children:
        if "=" in child.name and child.is_dir() and not child.is_symlink():
            yield from _in_folder(child)


def partitions(path: Path) -> dict[str, str]:
    """What the names of the folders around a file say of its rows: ``rank=3/part-0.parquet`` says that rank is 3."""
    pairs = (part.split("=", 1) for part in path.parent.parts if "=" in part)
    return {name: unquote(value) for name, value in pairs if value != _NO_VALUE}


def common_folder(files: Sequence[Path]) -> Path:
    """The innermost folder that holds all files, and is none of a partition."""
    folders = [file.resolve().parent for file in files]
    return next(
        folder
        for folder in (folders[0], *folders[0].parents)
        if "=" not in folder.name and all(other.is_relative_to(folder) for other in folders)
    )
