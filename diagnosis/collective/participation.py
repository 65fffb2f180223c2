"""What each rank did in each operator, as columns, and which rows of different ranks are one operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.columns import codes, integers

UNKNOWN = -1
CUSTOM = "custom"
STATES = ("complete", "incomplete", "missing_start", "unknown")
COMPLETE, INCOMPLETE, MISSING_START, UNKNOWN_STATE = range(4)

_FAR_MORE = 1.25
"""What a custom collective sent, over what it had to, over what is usual: more holds sends of another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Participation:
    """Rows of analysis.traffic_metrics that a NIC can see, sorted by communicator, rank and call; arrays (n,).

    ``instance`` is the same for rows of one communicator exactly where they are one operator. ``iteration`` is
    ``UNKNOWN`` where it is not told. ``lost``: calls of its rank on its communicator that are missing since the row
    before. ``communicator`` and ``op`` index ``communicators`` and ``ops``. Times are of the rank's host; ``UNKNOWN``
    where not seen. ``busy_epoch_bytes`` is ``UNKNOWN`` where it was not measured; ``nic_sent_ns``, when the NIC last
    sent for anyone, where the operator has ended. Rows ``peer_offset[i]`` to ``peer_offset[i + 1]`` hold the peers of
    row i: what was sent to each (``peer_sent``), in how long (``peer_time_ns``, of epochs with traffic) and whether
    that was all of it (``peer_done``).
    """

    communicator: Ints
    instance: Ints
    iteration: Ints
    lost: Ints
    rank: Ints
    op: Ints
    call_ns: Ints
    start_ns: Ints
    end_ns: Ints
    state: Ints
    actual_time_ns: Ints
    expected: Ints
    sent: Ints
    busy_epoch_bytes: Ints
    nic_sent_ns: Ints
    coverage: Floats
    peer_offset: Ints
    peer: Ints
    peer_sent: Ints
    peer_time_ns: Ints
    peer_done: Bools
    communicators: tuple[str, ...]
    ops: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def duration_ns(self) -> Ints:
        """From the first traffic to the last; 0 where none was seen."""
        return self.end_ns - self.start_ns

    @property
    def custom(self) -> Bools:
        """Which rows are groups of sends; shape (n,)."""
        bears = np.array([*(name == CUSTOM for name in self.ops), False])
        return np.asarray(bears[self.op])

    @property
    def direct(self) -> Bools:
        """Which rows are sends, alone or in groups; shape (n,)."""
        bears = np.array([*(name in {CUSTOM, "send"} for name in self.ops), False])
        return np.asarray(bears[self.op])

    def peers(self, row: int) -> slice:
        """The rows of ``peer`` that belong to one row."""
        return slice(int(self.peer_offset[row]), int(self.peer_offset[row + 1]))

    def take(self, chosen: Bools | Ints) -> Participation:
        """The chosen rows, in the chosen order."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        lengths = np.diff(self.peer_offset)[rows]
        offset = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        of_peer = np.arange(int(offset[-1])) + np.repeat(self.peer_offset[rows] - offset[:-1], lengths)
        plain = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name not in _NOT_A_ROW_EACH}
        ragged = {name: getattr(self, name)[of_peer] for name in _OF_PEERS}
        return replace(self, **plain, **ragged, peer_offset=offset)

    @classmethod
    def from_arrow(cls, table: pa.Table, lost: Ints | None = None) -> Participation:
        """Build from rows of analysis.traffic_metrics; those that no NIC sees are left out. Of an operator that has
        begun all figures have to be told, or it is unknown.

        ``lost``: as ``lost_before`` has it; None: none are.
        """
        visible, names = codes(table.combine_chunks(), "visibility")
        network = names.index("network") if "network" in names else UNKNOWN - 1
        missing = np.zeros(len(table), dtype=np.int64) if lost is None else lost
        missing, table = missing[visible == network], table.filter(pa.array(visible == network)).combine_chunks()
        (communicator, communicators), (op, ops), (state, states) = (
            codes(table, name) for name in ("communicator", "op", "state")
        )
        numbered = np.array([STATES.index(name) for name in states] or [0], dtype=np.int64)
        of_rank, called = integers(table, "rank"), integers(table, "call_ns")
        figures = {name: integers(table, name) for name in ("start_ns", "end_ns", "actual_time_ns", "sent_bytes")}
        began = np.isin(numbered[state], (COMPLETE, INCOMPLETE))
        lacking = began & np.any([column == UNKNOWN for column in figures.values()], axis=0)
        rows = cls(
            communicator=communicator,
            instance=integers(table, "seq"),
            iteration=integers(table, "iteration"),
            lost=missing,
            rank=of_rank,
            op=op,
            call_ns=called,
            start_ns=figures["start_ns"],
            end_ns=figures["end_ns"],
            state=np.where(lacking, UNKNOWN_STATE, numbered[state]),
            actual_time_ns=figures["actual_time_ns"],
            expected=integers(table, "expected_bytes"),
            sent=figures["sent_bytes"],
            busy_epoch_bytes=integers(table, "busy_epoch_bytes"),
            nic_sent_ns=integers(table, "nic_sent_ns"),
            coverage=np.asarray(table.column("coverage").to_numpy(), dtype=np.float64),
            **_peers(table),
            communicators=tuple(communicators),
            ops=tuple(ops),
        )
        return rows.take(np.lexsort((called, of_rank, communicator))).joined()

    def joined(self) -> Participation:
        """The same rows with custom collectives numbered so that those of different ranks meet.

        Sequence numbers count sends and receives, and pairs with nothing to send make none, so they differ between
        ranks. The n-th custom collective of a communicator in an iteration is one operator on all ranks: rows have to
        begin with the same one everywhere. Times cannot tell, since the clocks of hosts differ by more than what lies
        between two.
        """
        instance = self.instance.copy()
        rows = np.flatnonzero(self.custom)
        ordinal = np.arange(len(rows)) - _first_alike(self.communicator[rows], self.rank[rows], self.iteration[rows])
        each = np.stack((self.iteration[rows], ordinal))
        instance[rows] = np.unique(each, axis=1, return_inverse=True)[1].ravel()
        return replace(self, instance=instance)

    def unknown_after_losses(self) -> Participation:
        """The same rows, those of a rank on a communicator unknown after a lost call, up to the end of the iteration:
        whose traffic is whose is uncertain. Fewer calls than any custom collective has are a part of one, and only that
        behind them is unknown. What is lost may begin within the one before, which is unknown as well, and so is what
        sent far more than it had to: some of it was of sends whose calls are lost, which may show only later.
        """
        first = _first_alike(self.communicator, self.rank, self.iteration)
        sends = np.where(self.custom, np.diff(self.peer_offset), 1)
        fewest = np.full(len(self.communicators) + 1, np.iinfo(np.int64).max)
        np.minimum.at(fewest, self.communicator[sends > 0], sends[sends > 0])
        whole = self.lost >= fewest[self.communicator]
        upto = np.append(0, np.cumsum(np.where(whole, self.lost, 0)))
        some = self.lost > 0
        same = (np.diff(self.communicator) == 0) & (np.diff(self.rank) == 0)
        before = np.append(some[1:] & same, False)[: len(some)] & self.custom
        uncertain = some | before | (upto[1:] > upto[first]) | self._too_much_sent
        return replace(
            self,
            start_ns=np.where(uncertain, UNKNOWN, self.start_ns),
            end_ns=np.where(uncertain, UNKNOWN, self.end_ns),
            state=np.where(uncertain, UNKNOWN_STATE, self.state),
            coverage=np.where(uncertain, 0.0, self.coverage),
        )

    @property
    def _too_much_sent(self) -> Bools:
        """Complete custom collectives that sent far more than what usually comes on top of their volume; shape (n,)."""
        rows = np.flatnonzero(self.custom & (self.state == COMPLETE))
        found = np.zeros(len(self), dtype=np.bool_)
        if len(rows):
            share, of = self.sent[rows] / np.maximum(self.expected[rows], 1), self.communicator[rows]
            count = np.bincount(of)
            middle = np.cumsum(count) - count + np.maximum(count - 1, 0) // 2
            usual = share[np.lexsort((share, of))][np.minimum(middle, len(rows) - 1)]
            found[rows] = share > _FAR_MORE * usual[of]
        return found


_OF_PEERS = ("peer", "peer_sent", "peer_time_ns", "peer_done")
_NOT_A_ROW_EACH = (*_OF_PEERS, "peer_offset", "communicators", "ops")


def lost_before(table: pa.Table, earlier: Mapping[tuple[int, str], int] | None = None) -> Ints:
    """How many calls telemetry has lost between each row of analysis.traffic_metrics and the one before it of its rank
    and communicator; shape (rows,). ``earlier``: how many up to what came before these, where any were."""
    (communicator, names), rank = codes(table, "communicator"), integers(table, "rank")
    order = np.lexsort((integers(table, "call_ns"), rank, communicator))
    total = np.maximum(integers(table, "calls_lost"), 0)[order]
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = (np.diff(communicator[order]) == 0) & (np.diff(rank[order]) == 0)
    previous = np.append(0, total[:-1])[: len(order)]
    heads = np.flatnonzero(~same)
    of_head = zip(rank[order[heads]].tolist(), communicator[order[heads]].tolist(), strict=True)
    previous[heads] = [(earlier or {}).get((number, names[code]), 0) for number, code in of_head]
    lost = np.zeros(len(order), dtype=np.int64)
    lost[order] = np.maximum(total - previous, 0)
    return lost


def _first_alike(*columns: Ints) -> Ints:
    """The first of each row's run of rows that are alike in all columns; shape as one of them."""
    rows = np.arange(len(columns[0]))
    begins = np.ones(len(rows), dtype=np.bool_)
    begins[1:] = np.logical_or.reduce([np.diff(column) != 0 for column in columns])
    return np.asarray(np.maximum.accumulate(np.where(begins, rows, 0)))


def _peers(table: pa.Table) -> dict[str, Any]:
    """What was sent to each peer; peers that nothing was sent to are told only among the incomplete ones."""
    names = ("peers", "peer_sent_bytes", "peer_actual_time_ns", "incomplete_peers")
    peer: list[int] = []
    sent: list[int] = []
    time: list[int] = []
    done: list[bool] = []
    offset = [0]
    for peers, sizes, times, lacking in zip(*(table.column(name).to_pylist() for name in names), strict=True):
        missing = [rank for rank in lacking or () if rank not in (peers or ())]
        peer += [*(peers or ()), *missing]
        sent += [*(sizes or ()), *(0 for _ in missing)]
        time += [*(times or ()), *(0 for _ in missing)]
        done += [rank not in (lacking or ()) for rank in (*(peers or ()), *missing)]
        offset.append(len(peer))
    return {
        "peer_offset": np.array(offset, dtype=np.int64),
        "peer": np.array(peer, dtype=np.int64),
        "peer_sent": np.array(sent, dtype=np.int64),
        "peer_time_ns": np.array(time, dtype=np.int64),
        "peer_done": np.array(done, dtype=np.bool_),
    }
