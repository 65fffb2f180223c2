"""Result sets: what a replay found, kept beside the live rows and never among them.

Each is a store of its own, made by the same migrations: on a server a database, with chDB a folder. Whatever reads
the live store can read it, and nothing that is asked of the live store ever meets its rows. Its table ``replay`` has
one row, written last, that says what it is of: a set without it was not filled to its end.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pyarrow as pa

from offbeat import wiring
from offbeat.setting_groups import StoreSettings
from schemas.errors import SettingsError
from sinks.clickhouse import folder_lock
from sinks.clickhouse.store import Store

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TABLE = "replay"
_ABOUT = f"CREATE TABLE {_TABLE} (about String) ENGINE = MergeTree ORDER BY tuple()"


def place(live: StoreSettings, name: str) -> StoreSettings:
    """Where a result set is: the folder ``offbeat-data-NAME`` beside ``offbeat-data``, or a database ``default_NAME``.

    Raises ``SettingsError`` for a name that no database can have.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{name!r} cannot name a result set: give small letters, digits and _, at most 40")
    if live.engine == "chdb":
        return live.model_copy(update={"path": live.path.with_name(f"{live.path.name}-{name}"), "comm_ops": False})
    return live.model_copy(update={"database": f"{live.database}_{name}", "comm_ops": False})


def require_free(live: StoreSettings, name: str, *, replace: bool) -> None:
    """Raise ``SettingsError`` where there is such a result set and it is not to be replaced, or something else is.

    Raises ``StoreError`` where the store cannot be asked, or another process works with the folder.
    """
    own = place(live, name)
    if not _exists(live, own):
        return
    if own.engine == "chdb":
        folder_lock.require_free(own.path)
    found = _found(own)
    if found is _Found.FOREIGN:  # somebody's data, not ours to replace
        where = own.path if own.engine == "chdb" else f"database {own.database}"
        raise SettingsError(f"{where} is no result set of a replay: name another")
    if not replace and found is _Found.WHOLE:
        raise SettingsError(f"there is a result set {name} already: name another, or give --replace")
    if not replace:
        raise SettingsError(
            f"result set {name} is unfinished: what filled it was ended, or still does; name another, or give --replace"
        )


@contextmanager
def made(live: StoreSettings, name: str, about: Mapping[str, Any], *, replace: bool) -> Iterator[Store]:
    """A new result set, which says of itself what it is ``about``; with ``replace`` one of this name goes first.

    One that is not filled to its end goes again, unless the process is killed: then it lacks its row. Raises what
    ``require_free`` does, and ``StoreError`` where it cannot be made.
    """
    require_free(live, name, replace=replace)
    own = place(live, name)
    _remove(live, own)
    if own.engine != "chdb":
        with wiring.opened(live) as store:
            store.execute(f"CREATE DATABASE `{own.database}`")
    try:
        with wiring.opened(own) as store:
            store.execute(_ABOUT)
            yield store
            store.insert(_TABLE, pa.table({"about": [json.dumps(about)]}), token=name)
    except BaseException:
        _remove(live, own)
        raise


def _remove(live: StoreSettings, own: StoreSettings) -> None:
    if own.engine == "chdb":
        shutil.rmtree(own.path, ignore_errors=True)
    else:
        with wiring.opened(live) as store:
            store.execute(f"DROP DATABASE IF EXISTS `{own.database}` SYNC")


class _Found(Enum):
    """What is where a result set would be."""

    WHOLE = auto()
    UNFINISHED = auto()
    FOREIGN = auto()


def _found(own: StoreSettings) -> _Found:
    if own.engine == "chdb":
        return _found_in_folder(own.path)
    with wiring.opened(own) as store:
        if store.query(f"EXISTS TABLE {_TABLE}").column(0)[0].as_py():
            return _Found.WHOLE if _count(store, _TABLE) else _Found.UNFINISHED
        tables = _count(store, "system.tables WHERE database = currentDatabase()")
        return _Found.FOREIGN if tables else _Found.UNFINISHED  # ended before it had a table


def _count(store: Store, of: str) -> int:
    return int(store.query(f"SELECT count() AS n FROM {of}").column(0)[0].as_py())


def _found_in_folder(folder: Path) -> _Found:
    """The same without the engine: it would fill somebody's folder, and may not open one that was left halfway."""
    if (folder / "metadata" / "default" / f"{_TABLE}.sql").is_file():
        rows = any((folder / "data" / "default" / _TABLE).glob("all_*"))
        return _Found.WHOLE if rows else _Found.UNFINISHED
    if not folder.is_dir():
        return _Found.FOREIGN
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    return _Found.UNFINISHED if files <= {"status"} else _Found.FOREIGN


def _exists(live: StoreSettings, own: StoreSettings) -> bool:
    if own.engine == "chdb":
        return own.path.exists()
    with wiring.opened(live) as store:
        known = store.query("SELECT name FROM system.databases WHERE name = {name:String}", {"name": own.database})
        return bool(known.num_rows)
