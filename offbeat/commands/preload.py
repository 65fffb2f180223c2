"""preload: the library that logs the calls of NCCL from within a training process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def preload(
    target: Annotated[Path, typer.Argument(help="A folder, or the file to write.", show_default=".")] = Path(),
) -> None:
    """Build the library that logs a process's calls of NCCL.

    It prints where that is. LD_PRELOAD it, and the agent of the host tells what the process calls (docs/collectors.md).
    """
    from producers.collectors.preload import build

    print(build(target).absolute())
