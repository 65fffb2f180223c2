"""The operator log as columns, and one operator joined across the ranks that take part in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Bools, Ints
from diagnosis.numbering import numbered

UNKNOWN = -1
"""What integer columns hold where the log says nothing."""

POINT_TO_POINT = ("send", "recv")
ONE_SIDED = ("broadcast", "reduce")
"""Of these, as of a send, some are done before others have come: the root of the one, all but it of the other."""

_NUMBERS = {
    "rank": "rank",
    "seq": "seq",
    "position": "position",
    "iteration": "iteration",
    "peer": "peer",
    "p2p_seq": "p2p_seq",
    "microbatch": "microbatch",
    "size": "bytes",
    "call_order": "call_order",
    "call_ns": "call_ns",
    "end_ns": "end_ns",
    "next_ns": "next_call_ns",
}
"""Arrays of numbers, and the columns that these are in."""

_TEXTS = {"communicator": "communicators", "op": "ops", "phase": "phases"}
"""Columns of text, as arrays of codes, and where the texts are."""

_ARRAYS = (*_NUMBERS, *_TEXTS)

COLUMNS = (*_NUMBERS.values(), *_TEXTS)
"""The columns of telemetry.comm_ops that diagnosis reads."""


@dataclass(frozen=True)
class Operators:
    """Communication operators, sorted by rank and call; every array has shape (n,).

    ``communicator`` and ``op`` index ``communicators`` and ``ops``, ``size`` is in bytes. Times are nanoseconds of
    the rank's own host clock; ``call_order`` tells calls at the same time apart. Whatever the log does not say is
    ``UNKNOWN``: an unknown end is not a short operator. ``next_ns`` is when the rank went on to its next call,
    whichever that was, as its agent tells where an end is unknown.

    Arrays may be shared with others and are never written to; of a communicator, op or phase there need be no operator.
    """

    rank: Ints
    communicator: Ints
    op: Ints
    seq: Ints
    position: Ints
    iteration: Ints
    peer: Ints
    p2p_seq: Ints
    microbatch: Ints
    phase: Ints
    size: Ints
    call_order: Ints
    call_ns: Ints
    end_ns: Ints
    next_ns: Ints
    communicators: tuple[str, ...]
    ops: tuple[str, ...]
    phases: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)

    @cached_property
    def point_to_point(self) -> Bools:
        """Which operators have one peer instead of a group; shape (n,)."""
        return self.is_op(*POINT_TO_POINT)

    def is_point_to_point(self, row: int) -> bool:
        """Whether the operator of one row has one peer instead of a group."""
        return self.ops[self.op[row]] in POINT_TO_POINT

    def participants(self, row: int, members: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """The ranks that share the operator of one row: both ends of a send or recv, ascending, else the ``members`` of
        its communicator in their own order; none where these are not known.
        """
        if self.is_point_to_point(row):
            return tuple(sorted({int(self.rank[row]), int(self.peer[row])} - {UNKNOWN}))
        return members.get(self.communicators[self.communicator[row]], ())

    @cached_property
    def ended(self) -> Bools:
        """Which operators have a known end; shape (n,)."""
        return np.asarray(self.end_ns != UNKNOWN, dtype=np.bool_)

    @cached_property
    def meeting_keys(self) -> Ints:
        """A number that two operators share exactly when they are one communication; shape (n,).

        Collectives meet by (communicator, seq); point-to-point operators by the pair of ranks, the direction and
        p2p_seq, since a pipeline communicator's seq does not line up between its two ends. A log that numbers no
        collective at all is joined by (communicator, iteration, position). ``UNKNOWN`` where it carries too little.
        """
        between = self.point_to_point
        sends = self.is_op("send")
        source = np.where(sends, self.rank, self.peer)
        target = np.where(sends, self.peer, self.rank)
        first = np.where(between, source, self.communicator)
        second = np.where(between, target, UNKNOWN)
        third = np.where(between, self.p2p_seq, _ordinals(self, between))
        known = (third != UNKNOWN) & (~between | (self.peer != UNKNOWN))
        keys = numbered(between.astype(np.int64), first, second + 1, third)
        return np.where(known, keys, UNKNOWN)

    @cached_property
    def next_calls(self) -> Ints:
        """When each operator's rank went on after it, on the rank's own clock; shape (n,), ``UNKNOWN`` where its log
        ends or has a hole of whole iterations.

        Where ``next_ns`` does not tell, it is the call of the next operator here: that of the rank only if all are. A
        pipeline stage posts a send and the receive from the same peer at once and waits for both, so such a send's
        rank goes on when it goes on after the receive.
        """
        following = calls_after(
            self.rank,
            self.iteration,
            self.call_ns,
            self.peer,
            sends=self.is_op("send"),
            receives=self.is_op("recv"),
        )
        return np.where(self.next_ns == UNKNOWN, following, self.next_ns)

    def is_op(self, *names: str) -> Bools:
        """Which operators bear one of the names; shape (n,)."""
        bears = np.array([*(name in names for name in self.ops), False])  # the last one is of UNKNOWN
        return np.asarray(bears[self.op], dtype=np.bool_)

    def take(self, index: Ints | Bools | slice) -> Self:
        """The chosen operators, in the chosen order."""
        if isinstance(index, np.ndarray) and index.dtype == np.bool_:
            index = np.flatnonzero(index)  # once, not for each column
        return replace(self, **{name: getattr(self, name)[index] for name in _ARRAYS})

    @property
    def groups(self) -> frozenset[str]:
        """The communicators that there are collectives on."""
        codes = np.unique(self.communicator[~self.point_to_point])
        return frozenset(self.communicators[code] for code in codes[codes != UNKNOWN].tolist())

    def of_rank(self, rank: int) -> Self:
        """The operators of one rank: a slice, since operators are sorted by rank."""
        low, high = np.searchsorted(self.rank, [rank, rank + 1])
        return self.take(slice(int(low), int(high)))

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch, *, distinct: bool = False) -> Self:
        """Build from the columns of telemetry.comm_ops; absent columns are unknown.

        ``distinct``: each operator once, however often it was fetched (a rank makes one call at a time).
        """
        communicator, communicators = coded(table, "communicator")
        op, ops = coded(table, "op")
        phase, phases = coded(table, "phase")
        made = cls(
            communicator=communicator,
            op=op,
            phase=phase,
            communicators=communicators,
            ops=ops,
            phases=phases,
            **{name: ints(table, column) for name, column in _NUMBERS.items()},
        )
        return made._sorted(distinct=distinct)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The operators of some logs, one or more, each once, however many of the logs have it."""
        if len(parts) == 1:
            return parts[0]._sorted(distinct=True)
        whole: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS}
        for name, names in _TEXTS.items():
            texts = tuple(sorted({text for part in parts for text in getattr(part, names)}))
            whole[name] = np.concatenate([part._coded_by(name, texts) for part in parts])
            whole[names] = texts
        return cls(**whole)._sorted(distinct=True)

    def _coded_by(self, name: str, texts: tuple[str, ...]) -> Ints:
        """A column of codes, as places among other texts, which hold all of its own."""
        own: tuple[str, ...] = getattr(self, _TEXTS[name])
        codes: Ints = getattr(self, name)
        if own == texts:
            return codes
        place = {text: number for number, text in enumerate(texts)}
        return np.array([*(place[text] for text in own), UNKNOWN], dtype=np.int64)[codes]

    def _sorted(self, *, distinct: bool) -> Self:
        """By rank and call; ``distinct``: of those that are equal only one."""
        # down to what tells operators apart, so that rows that were fetched twice come together
        told_apart = (self.p2p_seq, self.peer, self.op, self.seq, self.communicator)
        order = in_order((self.rank, self.call_ns, self.call_order), told_apart[::-1])
        if distinct:
            order = first_of_each(order, (self.call_ns, self.rank, *told_apart))
        return self if len(order) == len(self) and (np.diff(order) == 1).all() else self.take(order)


def _ordinals(operators: Operators, between: Bools) -> Ints:
    """Sequence numbers of collectives; counted within the iteration where the log has none for anybody."""
    if (operators.seq[~between] != UNKNOWN).any():
        return operators.seq
    counted = (operators.iteration != UNKNOWN) & (operators.position != UNKNOWN)
    most = int(operators.position.max(initial=0)) + 1
    return np.where(counted, operators.iteration * most + operators.position, UNKNOWN)


def last_callers(keys: Ints, call_ns: Ints) -> tuple[Ints, Ints, Ints]:
    """Who entered each communication last: (index of its operator, its call, operators seen), each of shape (n,).

    ``keys`` as ``Operators.meeting_keys`` has them, ``call_ns`` on one clock. An operator with an unknown key is
    its own last caller.
    """
    n = len(keys)
    last = np.arange(n, dtype=np.int64)
    seen = np.ones(n, dtype=np.int64)
    known = np.flatnonzero(keys != UNKNOWN)
    if len(known):
        key = keys[known]
        entered = np.full(int(key.max()) + 1, np.iinfo(np.int64).min)
        np.maximum.at(entered, key, call_ns[known])
        latest = known[call_ns[known] == entered[key]]
        of_key = np.empty(len(entered), dtype=np.int64)
        of_key[keys[latest]] = latest  # of those that called at the same time the last row
        last[known] = of_key[key]
        seen[known] = np.bincount(key)[key]
    return last, call_ns[last], seen


def calls_after(rank: Ints, iteration: Ints, call_ns: Ints, peer: Ints, *, sends: Bools, receives: Bools) -> Ints:
    """When each row's rank went on, as its next row tells: what ``Operators.next_calls`` is where logs do not say.

    Columns by rank and time of call, each of shape (n,); ``peer`` tells a rank's peers apart.
    """
    following = np.full(len(rank), UNKNOWN, dtype=np.int64)
    same_rank = (rank[1:] == rank[:-1]) & (np.diff(iteration) <= 1)
    following[:-1][same_rank] = call_ns[1:][same_rank]
    together = same_rank & (peer[1:] == peer[:-1]) & sends[:-1] & receives[1:]
    at = np.flatnonzero(together)
    following[at] = following[at + 1]
    return following


def in_order(keys: tuple[Ints, ...], finer: tuple[Ints, ...]) -> Ints:
    """The order by ``keys``, the first one foremost, and by ``finer`` ones where all of them are equal.

    Few rows are: of the others the finer keys need not be sorted, and of what comes in order nothing.
    """
    first = keys[0]
    rises, ties = np.zeros(max(len(first) - 1, 0), dtype=np.bool_), np.ones(max(len(first) - 1, 0), dtype=np.bool_)
    for key in keys:
        rises |= ties & (key[1:] > key[:-1])
        ties &= key[1:] == key[:-1]
    if (rises | ties).all():
        order = np.arange(len(first), dtype=np.int64)
    else:
        foremost = _packed(keys[0], keys[1])
        order = np.argsort(foremost, kind="stable") if foremost is not None else np.lexsort(keys[1::-1])
        ties = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys[:2]])
    at = np.flatnonzero(np.r_[ties, False] | np.r_[False, ties])
    if len(at):
        rows = order[at]
        order[at] = rows[np.lexsort([key[rows] for key in (*finer[::-1], *keys[::-1])])]
    return order


def first_of_each(order: Ints, columns: Sequence[Ints]) -> Ints:
    """Rows in an order that brings those together that are equal in all columns: the first of these, and the others.

    Quickest if few are equal in the first column.
    """
    foremost = columns[0][order]
    again = np.flatnonzero(foremost[1:] == foremost[:-1]) + 1
    for column in columns[1:]:
        again = again[column[order[again]] == column[order[again - 1]]]
    return np.delete(order, again)


def _packed(first: Ints, second: Ints) -> Ints | None:
    """Both as one number that sorts as they do, in a third of the time; None where it would not fit."""
    least = int(second.min())
    width = int(second.max()) - least + 1
    if int(first.min()) < 0 or int(first.max()) >= np.iinfo(np.int64).max // width:
        return None
    return first * width + (second - least)


def ints(table: pa.Table | pa.RecordBatch, name: str) -> Ints:
    """A column of whole numbers, ``UNKNOWN`` where it is null or not there."""
    if name not in table.schema.names:
        return np.full(table.num_rows, UNKNOWN, dtype=np.int64)
    values = table.column(name).cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, UNKNOWN)
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy())


def coded(table: pa.Table | pa.RecordBatch, name: str) -> tuple[Ints, tuple[str, ...]]:
    """A text column as codes of its sorted distinct values."""
    if name not in table.schema.names:
        return np.full(table.num_rows, UNKNOWN, dtype=np.int64), ()
    column = table.column(name)
    if isinstance(column, pa.ChunkedArray):
        encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    else:
        encoded = column.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.array([], pa.string()).dictionary_encode()
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), UNKNOWN).to_numpy(zero_copy_only=False)
    names = encoded.dictionary.to_pylist()
    used = sorted({names[code] for code in np.flatnonzero(np.bincount(codes[codes != UNKNOWN]))})
    place = {text: number for number, text in enumerate(used)}
    moved = np.array([*(place.get(text, UNKNOWN) for text in names), UNKNOWN], dtype=np.int64)
    return moved[codes], tuple(used)
