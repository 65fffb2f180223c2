"""Calls of the communication library as columns, and what belongs to one custom collective (Pulse 5.1, 5.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import codes, integers, joint_codes
from diagnosis.traffic.endpoints import sender_of
from diagnosis.traffic.volume import DTYPE_BYTES, POINT_TO_POINT

UNKNOWN = -1


class LetGo(NamedTuple):
    """A rank's last call on a communicator that is no longer kept: its number, and how many are missing up to it."""

    seq: int
    lost: int


class Kind(NamedTuple):
    """Calls that run on the same algorithm: the library chooses it by operator and size. ``rank``: of several NICs
    the sender (``endpoints``)."""

    rank: int
    communicator: str
    op: str
    payload: int


@dataclass(frozen=True, eq=False)
class Calls:
    """Calls of any number of ranks, sorted by rank and call; arrays of shape (n,).

    ``communicator`` and ``op`` index ``communicators`` and ``ops``. ``payload``: count times element size, as passed.
    ``peer`` and ``root`` are global ranks or ``UNKNOWN``. ``launch_ns`` is when it may begin at the earliest: the
    first call of its operator. ``unit``: row of the first call of the same operator; the sends and
    receives of one group on one communicator are one operator, a custom collective. ``grouped``: whether it is in a
    group. ``lost``: calls of its rank on its communicator that are missing up to it. ``nic``: number of the NIC that
    they are looked for on. Times are of the host's clock.
    """

    nic: Ints
    rank: Ints
    call_id: Ints
    communicator: Ints
    seq: Ints
    op: Ints
    payload: Ints
    peer: Ints
    root: Ints
    call_ns: Ints
    launch_ns: Ints
    unit: Ints
    grouped: Bools
    lost: Ints
    communicators: tuple[str, ...]
    ops: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)

    def is_op(self, *names: str) -> Bools:
        """Which calls are of one of these operators; shape (n,)."""
        bears = np.array([name in names for name in self.ops], dtype=np.bool_)
        return bears[self.op]

    @property
    def point_to_point(self) -> Bools:
        """Which calls have one peer instead of a group; shape (n,)."""
        return self.is_op(*POINT_TO_POINT)

    @cached_property
    def source(self) -> Ints:
        """The sending end of each call, as in ``endpoints``; shape (n,)."""
        return sender_of(self.nic, self.rank)

    @cached_property
    def kinds(self) -> tuple[Ints, list[Kind]]:
        """What each call shares its algorithm with, as a code, and what codes stand for; in order of appearance."""
        code = joint_codes(self.source, self.communicator, self.op, self.payload)
        first = np.unique(code, return_index=True)[1]
        columns = (self.source, self.communicator, self.op, self.payload)
        rows = zip(*(column[first].tolist() for column in columns), strict=True)
        return code, [Kind(rank, self.communicators[c], self.ops[op], size) for rank, c, op, size in rows]

    def lost_up_to(self, operators: Ints) -> Ints:
        """Calls that are missing up to the last one of each of some operators; shape as given. ``operators``: rows of
        their first calls."""
        lost = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(lost, self.unit, self.lost)
        return lost[operators]

    def take(self, chosen: Ints | Bools) -> Calls:
        """The chosen calls, in their order; operators that are cut apart keep what is left of them."""
        picked = replace(self, **{f.name: getattr(self, f.name)[chosen] for f in fields(self) if f.name not in _NAMES})
        return replace(picked, unit=_first_of_each(picked.unit))

    def on_nics(self, chosen: Sequence[Ints]) -> Calls:
        """The chosen calls of each NIC, in the order of NICs: a rank may send by several."""
        rows = np.concatenate(chosen)
        nic = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen])
        picked = replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name not in _NAMES})
        return replace(picked, nic=nic, unit=_first_of_each(picked.unit + nic * len(self)))

    @classmethod
    def from_arrow(cls, table: pa.Table, before: Mapping[tuple[int, str], LetGo] | None = None) -> Calls:
        """Build from rows of telemetry.op_calls; a call that is told twice counts once.

        ``before``: the last calls that are not among these, by rank and communicator; where it is not known, nothing is
        missing before the first one.
        """
        rank, call_id = integers(table, "rank"), integers(table, "call_id")
        order = np.lexsort((call_id, rank))
        again = np.zeros(len(order), dtype=np.bool_)
        again[1:] = (np.diff(rank[order]) == 0) & (np.diff(call_id[order]) == 0)
        table = table.take(pa.array(order[~again])).combine_chunks()
        (communicator, communicators), (op, ops), (dtype, dtypes) = (
            _coded(table, name) for name in ("communicator", "op", "dtype")
        )
        width = np.array([DTYPE_BYTES[name] for name in dtypes] or [0], dtype=np.int64)
        call_ns, opened = integers(table, "call_ns"), integers(table, "group_start_ns")
        rank = integers(table, "rank")
        columns = cls(
            nic=np.zeros(len(rank), dtype=np.int64),
            rank=rank,
            call_id=integers(table, "call_id"),
            communicator=communicator,
            seq=integers(table, "seq"),
            op=op,
            payload=integers(table, "count") * width[dtype],
            peer=integers(table, "peer"),
            root=integers(table, "root"),
            call_ns=call_ns,
            launch_ns=call_ns,
            unit=np.arange(len(rank)),
            grouped=opened >= 0,
            lost=_lost(rank, communicator, integers(table, "seq"), communicators, before or {}),
            communicators=tuple(communicators),
            ops=tuple(ops),
        )
        unit = _units(columns, opened)
        return replace(columns, unit=unit, launch_ns=call_ns[unit])


_NAMES = ("communicators", "ops")


def _coded(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        table = table.set_column(table.schema.get_field_index(name), name, column.dictionary_encode())
    return codes(table.combine_chunks(), name)


def _lost(
    rank: Ints, communicator: Ints, seq: Ints, communicators: Sequence[str], before: Mapping[tuple[int, str], LetGo]
) -> Ints:
    """How many numbers are left out up to each call of its rank and communicator; shape (n,)."""
    order = np.lexsort((seq, communicator, rank))
    ordered = seq[order]
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (np.diff(rank[order]) != 0) | (np.diff(communicator[order]) != 0)
    heads = np.flatnonzero(fresh)
    of_head = zip(rank[order[heads]].tolist(), communicator[order[heads]].tolist(), strict=True)
    known = [before.get((number, communicators[code])) for number, code in of_head]
    last = np.array([UNKNOWN if one is None else one.seq for one in known], dtype=np.int64)
    lost = np.array([0 if one is None else one.lost for one in known], dtype=np.int64)
    group = np.cumsum(fresh) - 1
    previous = np.append(0, ordered[:-1])[: len(order)]
    previous[heads] = np.where(last == UNKNOWN, ordered[heads] - 1, last)
    gap = np.maximum(ordered - np.maximum(previous, last[group]) - 1, 0)
    total = np.cumsum(gap)
    found = np.zeros(len(order), dtype=np.int64)
    found[order] = lost[group] + total - (total - gap)[heads][group]
    return found


def _units(calls: Calls, opened: Ints) -> Ints:
    """The first call of each one's operator: groups join the sends and receives on one communicator."""
    if not len(calls):
        return calls.unit
    joined = calls.point_to_point & calls.grouped
    alone = np.where(joined, UNKNOWN, calls.unit)
    return _first_of_each(
        joint_codes(calls.rank, np.where(joined, calls.communicator, UNKNOWN), np.where(joined, opened, UNKNOWN), alone)
    )


def _first_of_each(unit: Ints) -> Ints:
    first = np.zeros(int(unit.max(initial=-1)) + 1, dtype=np.int64)
    first[unit[::-1]] = np.arange(len(unit))[::-1]  # of several the last one stays, which is the first
    return first[unit]
