"""Secrets from files: a setting ``password_file`` names the file that holds ``password``.

That is how Kubernetes and Docker hand secrets over without putting them into the environment, which every child
process inherits and which ``docker inspect`` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas.errors import SettingsError

SUFFIX = "_file"
SECRETS = frozenset({"password", "url", "secrets", "authorization", "routing_key"})
"""The settings that a file may hold."""

_MOST_BYTES = 64 << 10


def with_secrets(given: Mapping[str, Any], variable: Callable[[str], str]) -> dict[str, Any]:
    """A group's settings with those that files hold; ``variable`` names the environment variable of a field.

    Raises ``SettingsError`` where a secret is given twice, or its file cannot be read or holds none; what is in the
    file is never told.
    """
    held = dict(given)
    for name in sorted(SECRETS):
        if not (path := given.get(name + SUFFIX)):
            continue
        if given.get(name):
            raise SettingsError(f"{variable(name)} and {variable(name + SUFFIX)} are both set: give one of them")
        held[name] = _secret(Path(path), variable(name + SUFFIX))
    return held


def _secret(path: Path, variable: str) -> str:
    """What a file holds, without the end of its last line."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8").rstrip("\r\n")
    except OSError as error:
        raise SettingsError(
            f"{variable}: {path}: {(error.strerror or str(error)).lower()}; give a file that holds the secret"
        ) from error
    except UnicodeDecodeError:
        raise SettingsError(f"{variable}: {path} is no UTF-8 text; give a file that holds the secret") from None
    if not text or len(content) > _MOST_BYTES or "\0" in text or "\n" in text:
        raise SettingsError(f"{variable}: {path} does not hold one line; give a file that holds the secret and no more")
    return text
