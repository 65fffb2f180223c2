"""Files that are replaced whole: who reads one finds it as it was, or as it is to be.

Standard library alone: a training process imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, opener: Callable[[str, int], int] | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` once it is whole. Raises ``OSError`` where it cannot."""
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb", opener=opener) as file:
            yield file
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
