"""The library that logs the calls of NCCL and libibverbs from within a training process, and how it is built.

It is C, because it is loaded into processes that may be anything (LD_PRELOAD); ``ring.h`` says what it writes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from schemas.errors import SettingsError

LIBRARY = "liboffbeat_calls.so"
SOURCES = tuple(sorted(Path(__file__).parent.glob("*.c")))

_FLAGS = "-std=gnu11 -O2 -g -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -Wl,-z,defs -Wl,-z,now".split()
"""Optimised, or dlvsym's tail call would not be one."""
_LIBRARIES = "-ldl -lpthread".split()


def build(target: Path) -> Path:
    """Compile the library into a file whose name ends in .so, or into a folder under its own name, and return where it
    is. A folder is made where there is none.

    The compiler is ``CC``, or else ``cc``. Raises ``SettingsError`` where there is none, or it refuses.
    """
    path = target if target.suffix == ".so" and not target.is_dir() else target / LIBRARY
    compiler = shlex.split(os.environ.get("CC", "cc")) or ["cc"]
    if shutil.which(compiler[0]) is None:
        raise SettingsError(
            f"no C compiler: {compiler[0]} is not found; install one (Debian: apt-get install gcc libc6-dev), or set CC"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{path.parent}: {error.strerror}; name a folder to write to") from error
    command = [*compiler, *_FLAGS, "-o", str(path), *map(str, SOURCES), *_LIBRARIES]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SettingsError(f"{shlex.join(command)} failed: {made.stderr.strip() or made.returncode}")
    return path
