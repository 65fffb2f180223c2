"""What the local services are made of: fetched once, into a cache folder that all checkouts share."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """$OFFBEAT_CACHE, else ~/.cache/offbeat."""
    return Path(os.environ.get("OFFBEAT_CACHE") or Path.home() / ".cache" / "offbeat").resolve()


def cached(name: str, recipe: str, fetch: Callable[[Path], None]) -> Path:
    """The folder that `fetch` has filled; it is called if the folder is not there, or was made from another `recipe`.

    `fetch` makes the folder itself. What it raises passes through, and the next call fetches again.
    """
    home = cache_folder() / name
    home.mkdir(parents=True, exist_ok=True)
    content, made_from = home / "content", home / "recipe"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once: the second waits for what the first fetches
        if not made_from.exists() or made_from.read_text() != recipe:
            made_from.unlink(missing_ok=True)
            shutil.rmtree(content, ignore_errors=True)
            fetch(content)
            made_from.write_text(recipe)  # last: it says that the folder is complete
    return content
