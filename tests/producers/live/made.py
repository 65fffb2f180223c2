"""Live logs made from rows of telemetry.comm_ops: what training processes would have left in their rings."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.live_host import append
from diagnosis.job import Job
from producers.live.live_store import LiveStore
from producers.live.rank_log import RankLog
from producers.live.registration import Group, Presence, Registration, folders
from producers.live.ring import RingWriter
from producers.segments import Segments

PLENTY = 1 << 30


def write_rank(rings: Path, job: Job, rank: int, rows: list[dict[str, Any]]) -> Presence:
    """A process that has logged rows and still lives."""
    names = sorted({row["communicator"] for row in rows})
    groups = tuple(Group(name, job.members.get(name, ())) for name in names)
    presence = Presence(rings, Registration(job.job, rank, f"start{rank}", world=len(job.ranks), groups=groups))
    ring = RingWriter(presence.folder / "ring-0", max(len(rows), 1))
    for row in rows:
        append(ring, row, names)
    return presence


def live_store(
    job: Job, table: pa.Table, folder: Path, *, ranks: Any = None, keep_iterations: int | None = None, **options: Any
) -> LiveStore:
    """The store of a host with these ranks, whose processes have ended.

    ``keep_iterations`` becomes a bound of bytes that so many iterations fit into.
    """
    own = list(job.ranks if ranks is None else ranks)
    max_bytes = PLENTY
    if keep_iterations is not None:
        trial = live_store(job, table, folder / "trial", ranks=ranks)
        while trial.advance():
            pass
        max_bytes = int((keep_iterations + 0.5) * max(f.size for f in Segments(folder / "trial/kept", PLENTY).frames))
    for rank in own:
        rows = table.filter(pc.field("rank") == rank).to_pylist()
        write_rank(folder / "rings", job, rank, rows).leave()
    store = LiveStore(job, own, Segments(folder / "kept", max_bytes), **options)
    for process in folders(folder / "rings"):
        store.add(RankLog(process))
    return store
