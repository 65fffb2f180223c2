"""Result sets: what a replay found, kept beside the live rows and never among them.

Each is a store of its own, made by the same migrations: on a server a database, with chDB a folder. Whatever reads
the live store can read it, and nothing that is asked of the live store ever meets its rows.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from offbeat import wiring
from offbeat.settings import StoreSettings
from schemas.errors import SettingsError
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
    """Raise ``SettingsError`` where there is such a result set and it is not to be replaced, or something else is."""
    own = place(live, name)
    if not _exists(live, own):
        return
    if not replace:
        raise SettingsError(f"there is a result set {name} already: name another, or give --replace")
    if not _is_result_set(own):  # somebody's data, not ours to replace
        where = own.path if own.engine == "chdb" else f"database {own.database}"
        raise SettingsError(f"{where} is no result set of a replay: name another")


@contextmanager
def made(live: StoreSettings, name: str, about: Mapping[str, Any], *, replace: bool) -> Iterator[Store]:
    """A new result set, which says of itself what it is ``about``; with ``replace`` one of this name goes first.

    One that is not filled to its end goes again. Raises what ``require_free`` does, and ``StoreError`` where it cannot
    be made.
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
            store.insert(_TABLE, pa.table({"about": [json.dumps(about)]}), token=name)
            yield store
    except BaseException:
        _remove(live, own)
        raise


def _remove(live: StoreSettings, own: StoreSettings) -> None:
    if own.engine == "chdb":
        shutil.rmtree(own.path, ignore_errors=True)
    else:
        with wiring.opened(live) as store:
            store.execute(f"DROP DATABASE IF EXISTS `{own.database}` SYNC")


def _is_result_set(own: StoreSettings) -> bool:
    """Whether there is the table that ``made`` makes; a folder is asked without the engine, which would fill it."""
    if own.engine == "chdb":
        return (own.path / "metadata" / "default" / f"{_TABLE}.sql").is_file()
    with wiring.opened(own) as store:
        return bool(store.query(f"EXISTS TABLE {_TABLE}").column(0)[0].as_py())


def _exists(live: StoreSettings, own: StoreSettings) -> bool:
    if own.engine == "chdb":
        return own.path.exists()
    with wiring.opened(live) as store:
        known = store.query("SELECT name FROM system.databases WHERE name = {name:String}", {"name": own.database})
        return bool(known.num_rows)
