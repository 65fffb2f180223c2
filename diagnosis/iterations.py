"""Finding iteration boundaries in logs that do not carry them.

Each rank's log goes round in cycles (cycle.py). Here the cycles of the ranks are given common numbers, by the
sequence numbers of the communicators that they share, and each operator gets the iteration that its own sequence
number falls into. Members of a communicator therefore agree, and a rank finds its place again after a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.anchors import LIGHT_SHARE, Anchors, RankLog, counted_from, find_anchors, marked_anchors
from diagnosis.arrays import Bools, Ints
from diagnosis.columns import codes, integers, joint_codes, sizes
from diagnosis.cycle import cycle_of
from diagnosis.iteration_numbers import Boundaries, Meetings, number
from diagnosis.lost_anchors import recounted
from diagnosis.repetition import LEAST_REPEATS

_REDUCING = ("all_reduce", "reduce_scatter", "reduce", "all_to_all", "send", "recv")
_POINT_TO_POINT = ("send", "recv")
_BY_HAND = "name the operator that ends an iteration, as op=all_reduce,bytes=4"


@dataclass(frozen=True, slots=True)
class OperatorPattern:
    """Operators named by hand: those with this op and, where they are given, these bytes and communicators."""

    op: str
    bytes: int | None = None
    communicators: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> OperatorPattern:
        """Read ``op=all_reduce,bytes=4,communicator=a|b``; raises ``ValueError`` that shows the form."""
        fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        strange = set(fields) - {"op", "bytes", "communicator"}
        size = fields.get("bytes")
        if strange or "op" not in fields or not (size is None or size.isdecimal()) or text.count(",") >= len(fields):
            raise ValueError(f"{text!r} names no operator; the form is op=all_reduce,bytes=4,communicator=a|b")
        names = frozenset(fields["communicator"].split("|")) if "communicator" in fields else frozenset()
        return cls(fields["op"], None if size is None else int(size), names)

    def __str__(self) -> str:
        size = "" if self.bytes is None else f",bytes={self.bytes}"
        names = f",communicator={'|'.join(sorted(self.communicators))}" if self.communicators else ""
        return f"op={self.op}{size}{names}"

    def rows(self, table: pa.Table) -> Bools:
        """Which rows of a table of comm_ops match."""
        hit = pc.equal(table.column("op").cast(pa.string()), self.op)
        if self.bytes is not None:
            hit = pc.and_(hit, pc.equal(table.column("bytes"), self.bytes))
        if self.communicators:
            names = pa.array(sorted(self.communicators), pa.string())
            hit = pc.and_(hit, pc.is_in(table.column("communicator").cast(pa.string()), names))
        return np.asarray(pc.fill_null(hit, False).to_numpy(), dtype=np.bool_)


def infer_iterations(table: pa.Table, ends_with: OperatorPattern | None = None) -> Ints:
    """The iteration of each row, counted from 0; -1 outside of iterations (warm-up).

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order. Sequence numbers that are
    missing are replaced by counting, which lost lines then disturb. ``ends_with`` names the operator that ends an
    iteration, once an iteration and rank.

    Raises ``ValueError`` that says what to give by hand where iterations cannot be told.
    """
    if not table.num_rows:
        raise ValueError("no operator to infer iterations from")
    logs = _Logs.of(table)
    anchors: dict[int, Anchors] = {}
    hints: dict[int, None] = {}
    marked = None if ends_with is None else ends_with.rows(table)
    if marked is not None and not marked.any():
        raise ValueError(f"no operator matches {ends_with}; {_BY_HAND}")
    by_rank = {rank: logs.of_rank(rank) for rank in logs.rows}
    for rank, log in by_rank.items():
        own = find_anchors(log, hints) if marked is None else _by_hand(log, marked[logs.rows[rank]], rank)
        if own is not None:
            anchors[rank] = own
            hints[own.every] = None
    if 2 * len(anchors) <= len(logs.rows):
        rank = next(rank for rank in logs.rows if rank not in anchors)
        raise ValueError(f"cannot tell where the iterations of rank {rank} begin; {_BY_HAND}")
    if marked is None:
        anchors = _alike(by_rank, anchors)
    for rank, own in anchors.items():
        if first := counted_from(by_rank[rank], own):
            by_rank[rank], anchors[rank] = by_rank[rank].since(first), own.since(first)
    whole = recounted(by_rank, anchors)
    cycles = {rank: cycle_of(by_rank[rank], own, ends=marked is not None) for rank, own in whole.items()}
    return _numbered(logs, by_rank, number(cycles, logs.meetings()))


def _alike(logs: Mapping[int, RankLog], anchors: Mapping[int, Anchors]) -> dict[int, Anchors]:
    """The anchors of all ranks, as far apart as most ranks' are where a rank's own log allows that as well."""
    apart = [own.every for own in anchors.values()]
    usual = max(dict.fromkeys(apart), key=apart.count)
    found = dict(anchors)
    for rank, own in anchors.items():
        if own.every != usual:
            again = find_anchors(logs[rank], (usual,))
            if again is not None and again.every == usual:
                found[rank] = again
    return found


def _by_hand(log: RankLog, marked: Bools, rank: int) -> Anchors | None:
    marks = np.flatnonzero(marked)
    if len(marks) < LEAST_REPEATS:
        return None
    if len(np.unique(log.communicator[marks])) > 1:
        raise ValueError(
            f"the operator that ends an iteration is found on several communicators of rank {rank}; "
            "name its communicators too, as communicator=a|b"
        )
    return marked_anchors(log, marks)


def _numbered(logs: _Logs, by_rank: Mapping[int, RankLog], boundaries: Boundaries) -> Ints:
    iteration = np.full(len(logs.seq), -1, dtype=np.int64)
    for rank, log in by_rank.items():
        known = np.zeros(len(log.seq), dtype=np.bool_)
        of_rank = iteration[logs.rows[rank]][-len(known) :]  # a view: rows is a slice
        for d, own in log.rows.items():
            found = boundaries.iterations(rank, d, log.seq[own])
            if found is not None:
                of_rank[own], known[own] = found, True
        _fill(of_rank, known)
    return iteration


def _fill(iteration: Ints, known: Bools) -> None:
    """Give rows of which nothing is known the iteration of the row before them, the first ones that after them."""
    at = np.flatnonzero(known)
    if len(at) and len(at) < len(known):
        nearest = np.clip(np.searchsorted(at, np.arange(len(known)), side="right") - 1, 0, None)
        iteration[:] = iteration[at[nearest]]


@dataclass(frozen=True)
class _Logs:
    """All ranks' rows as columns; ``rows`` is each rank's slice of them."""

    rows: Mapping[int, slice]
    communicator: Ints
    seq: Ints
    token: Ints
    size: Ints
    call_ns: Ints
    end_ns: Ints
    reducing: frozenset[int]
    point_to_point: frozenset[int]
    counted: frozenset[int]

    @classmethod
    def of(cls, table: pa.Table) -> _Logs:
        rank, seq = integers(table, "rank"), integers(table, "seq")
        communicator, _ = codes(table, "communicator")
        op, ops = codes(table, "op")
        heads = np.flatnonzero(np.diff(rank, prepend=-1))
        tails = np.append(heads[1:], len(rank))
        reducing = np.isin(op, [code for code, name in enumerate(ops) if name in _REDUCING])
        paired = np.isin(op, [code for code, name in enumerate(ops) if name in _POINT_TO_POINT])
        counted = frozenset(np.unique(communicator[seq < 0]).tolist())
        seq = _counted(rank, communicator, seq)
        size = sizes(table)
        return cls(
            rows={int(rank[a]): slice(int(a), int(b)) for a, b in zip(heads, tails, strict=True)},
            communicator=communicator,
            seq=seq,
            token=looks(communicator, op, size, integers(table, "peer")),
            size=np.maximum(size, 0),
            call_ns=integers(table, "call_ns"),
            end_ns=integers(table, "end_ns"),
            reducing=frozenset(np.unique(communicator[reducing]).tolist()),
            point_to_point=frozenset(np.unique(communicator[paired]).tolist()),
            counted=counted,
        )

    def of_rank(self, rank: int) -> RankLog:
        """One rank's log."""
        rows = self.rows[rank]
        communicator = self.communicator[rows]
        used, group = np.unique(communicator, return_inverse=True)
        carried = np.bincount(group, weights=self.size[rows])
        share = carried / carried.sum() if carried.any() else np.ones(len(used))
        present = set(used.tolist())
        heavy = set(used[share >= LIGHT_SHARE].tolist())
        return RankLog(
            communicator=communicator,
            seq=self.seq[rows],
            token=self.token[rows],
            call_ns=self.call_ns[rows],
            end_ns=self.end_ns[rows],
            stepped=present & (self.reducing | heavy) or present,
            collective=present - self.point_to_point,
            share=dict(zip(used.tolist(), share.tolist(), strict=True)),
            counted=present & self.counted,
        )

    def meetings(self) -> Meetings:
        """Where the ranks' numbers can be compared: not on communicators whose numbers are only counted."""
        shared: dict[int, list[int]] = {}
        paired: dict[int, list[int]] = {}
        for rank, rows in self.rows.items():
            for d in np.unique(self.communicator[rows]).tolist():
                if d not in self.counted:
                    (paired if d in self.point_to_point else shared).setdefault(d, []).append(rank)
        return Meetings(shared, paired)


def _counted(rank: Ints, communicator: Ints, seq: Ints) -> Ints:
    """Sequence numbers; those of a rank and communicator that lack some are counted instead."""
    if (seq >= 0).all():
        return seq
    pair = joint_codes(rank, communicator)
    at = np.flatnonzero(np.isin(pair, pair[seq < 0]))
    order = at[np.argsort(pair[at], kind="stable")]
    heads = np.flatnonzero(np.diff(pair[order], prepend=-1))
    counted = seq.copy()
    counted[order] = np.arange(len(order)) - np.repeat(heads, np.diff(np.append(heads, len(order))))
    return counted


def looks(communicator: Ints, op: Ints, size: Ints, peer: Ints) -> Ints:
    """A code a row for what an operator looks like: op, peer, and bytes unless they change from call to call."""
    kind = joint_codes(communicator, op)
    sized = joint_codes(kind, size)
    example = np.zeros(int(sized.max(initial=-1)) + 1, dtype=np.int64)
    example[sized] = np.arange(len(sized))
    calls = np.bincount(kind)
    sizes = np.bincount(kind[example], minlength=len(calls))
    changing = (sizes > np.maximum(calls / 4, 1))[kind]
    return joint_codes(op, peer, np.where(changing, -1, size))
