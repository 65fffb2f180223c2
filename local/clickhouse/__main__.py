"""A ClickHouse server in the foreground: python -m local.clickhouse [--folder DIR] [--port PORT].

It prints the settings by which Offbeat reaches it.
"""

import argparse
import secrets
import shlex
import sys
from contextlib import suppress
from pathlib import Path

from local.clickhouse import LocalClickHouse
from local.foreground import serve
from local.service import LocalServiceError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m local.clickhouse", description="Run a ClickHouse server on loopback."
    )
    parser.add_argument("--folder", type=Path, help="keep its data here (default: a temporary folder)")
    parser.add_argument("--port", type=int, default=9000, help="where clients connect (default: %(default)s)")
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="the password of its user; made, for its owner alone, where it is missing (default: a new password)",
    )
    options = parser.parse_args()
    file: Path | None = options.password_file

    def server() -> LocalClickHouse:
        return LocalClickHouse(options.folder, options.port, None if file is None else password(file))

    return serve(server, lambda clickhouse: exports(clickhouse, file))


def exports(server: LocalClickHouse, password_file: Path | None) -> str:
    """The settings by which Offbeat reaches the server, as a shell takes them."""
    settings = {"ENGINE": "clickhouse", "HOST": server.host, "PORT": str(server.tcp_port), "USER": server.user}
    if password_file is None:
        settings["PASSWORD"] = server.password
    else:
        settings["PASSWORD_FILE"] = str(password_file.absolute())
    return "\n".join(f"export OFFBEAT_STORE__{name}={shlex.quote(value)}" for name, value in settings.items())


def password(file: Path) -> str:
    """The password that the file holds; a new one is put there if it is missing."""
    try:
        with suppress(FileExistsError):
            file.touch(0o600, exist_ok=False)
            file.write_text(secrets.token_urlsafe(12))
    except OSError as error:
        raise LocalServiceError(f"{file}: {error.strerror}; give --password-file another one") from error
    try:
        kept = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LocalServiceError(f"{file} cannot be read: {error}; give --password-file another one") from error
    if not kept:
        raise LocalServiceError(f"{file} is empty: write a password to it, or remove it")
    return kept


if __name__ == "__main__":
    sys.exit(main())
