"""The store: whether it answers, its tables, its clock, and the room that it has."""

from __future__ import annotations

import time
from collections.abc import Iterator

from offbeat.doctor.checked import CLOCK_WITHIN_S, Checked, failed, ok, refused, skipped
from offbeat.setting_groups import StoreSettings
from schemas.errors import StoreError
from sinks.clickhouse.folder_lock import FolderHeld
from sinks.clickhouse.store import Store

LEAST_FREE = 0.1
"""Share of a disk that merges and a busy day need."""


def examine(settings: StoreSettings) -> Iterator[Checked]:
    """The checks of the store; where it does not answer, that one alone."""
    from offbeat import wiring

    try:
        with wiring.opened(settings, existing=True) as store:
            yield from of_store(store, str(settings.path) if settings.engine == "chdb" else settings.host, settings)
    except FolderHeld as held:  # as it must be while a sink fills it: one process at a time
        who = "another process" if held.process is None else f"process {held.process}"
        yield skipped("store", f"{held.folder} is held by {who}, which works with it: stop that one to look inside")
    except StoreError as error:
        yield refused("store", error)


def of_store(store: Store, where: str, settings: StoreSettings) -> Iterator[Checked]:
    """The same of a store that is open; raises ``StoreError`` where it does not answer at all."""
    from offbeat import wiring
    from sinks.clickhouse.migrate import migrate

    before = time.time()
    row = store.query("SELECT version() AS version, toUnixTimestamp64Nano(now64(9)) AS now_ns").to_pylist()[0]
    after = time.time()
    yield ok("store", f"ClickHouse {row['version']} at {where}")
    try:
        if missing := migrate(store, dry_run=True):
            names = ", ".join(map(str, missing))
            yield failed("migrations", f"missing: {names}", f"run `{wiring.migrating(settings)}`")
        else:
            yield ok("migrations", "the tables of this build")
    except StoreError as error:
        yield refused("migrations", error)
    if settings.engine == "clickhouse":
        yield of_clock(row["now_ns"] / 1e9, before, after)
    yield _room(store)


def of_clock(store_s: float, before_s: float, after_s: float) -> Checked:
    """The store's time beside this host's before and after it was asked; seconds since the epoch."""
    difference_s = max(before_s - store_s, store_s - after_s, 0.0)
    what = "clock of the store"
    if difference_s > CLOCK_WITHIN_S:
        return failed(
            what, f"differs from this host's by {difference_s:.1f} s", "keep time with NTP here and on the server"
        )
    return ok(what, f"differs from this host's by less than {max(difference_s, after_s - before_s, 0.1):.1f} s")


def _room(store: Store) -> Checked:
    what = "disk of the store"
    try:
        disks = store.query("SELECT name, free_space AS free, total_space AS total FROM system.disks").to_pylist()
    except StoreError:
        return skipped(what, "this user may not read system.disks")
    sized = [disk for disk in disks if disk["total"]]
    if not sized:  # an object store has no end
        return skipped(what, "no disk of the store tells its size")
    fullest = min(sized, key=lambda disk: float(disk["free"] / disk["total"]))
    return of_room(fullest["name"], fullest["free"], fullest["total"])


def of_room(name: str, free: int, total: int) -> Checked:
    """How much of a disk is free; bytes."""
    what, found = "disk of the store", f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free on {name}"
    if free < LEAST_FREE * total:
        return failed(what, found, "add room, or drop old partitions of comm_ops; docs/operations.md, Recover")
    return ok(what, found)
