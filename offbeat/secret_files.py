"""Secrets from files: a setting ``password_file`` names the file that holds ``password``.

That is how Kubernetes and Docker hand secrets over without putting them into the environment, which every child
process inherits and which ``docker inspect`` shows.
"""

from __future__ import annotations

from pathlib import Path

from schemas.errors import SettingsError

SUFFIX = "_file"
SECRETS = frozenset({"password", "url", "secrets", "authorization", "routing_key"})
"""The settings that a file may hold."""

_MOST_BYTES = 64 << 10


def secret(path: Path, variable: str) -> str:
    """What the file that a ``variable`` names holds, without the end of its last line.

    Raises ``SettingsError`` where it cannot be read or holds no secret; what is in it is never told.
    """
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
