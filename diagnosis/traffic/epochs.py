"""What the queue pairs of one NIC sent, epoch by epoch, joined over polls (Pulse 4.2).

Only epochs in which something was sent are held, so 2,000 busy queue pairs are fifteen million rows a second, and each
pass over them counts: rows lie queue pair after queue pair, times ascending, with offsets instead of a column of
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

WHOLE_PORT = -1
"""Number that stands for all queue pairs of a port that is counted as a whole."""


@dataclass(frozen=True, slots=True, eq=False)
class Poll:
    """One part of one poll, a row of telemetry.nic_epochs.

    ``qpn``, ``epoch`` and ``units`` have shape (n,), sorted by queue pair and epoch; ``qpn`` is None where the port is
    counted as a whole. Times are of the NIC's clock; ``host_minus_nic_ns`` is None where that is not known.
    """

    from_ns: int
    to_ns: int
    epoch_ns: int
    unit_bytes: int
    aggregation_bytes: int
    qpn: Words | None
    epoch: Words
    units: Words
    host_minus_nic_ns: int | None = None
    clock_error_ns: int | None = None
    events_dropped: int = 0
    part: int = 0
    parts: int = 1

    @classmethod
    def by_nic(cls, table: pa.Table | pa.RecordBatch) -> dict[str, list[Poll]]:
        """The polls of each NIC in rows of telemetry.nic_epochs; lists are not copied."""
        polls: dict[str, list[Poll]] = {}
        batches = table.to_batches() if isinstance(table, pa.Table) else [table]
        for batch in batches:
            lists = {name: batch.column(name) for name in ("qpn", "epoch", "units")}
            plain = batch.drop_columns([*lists, "aged_qpns", "source"]).to_pylist()
            for row, fields in enumerate(plain):
                qpn, epoch, units = (_words(column, row) for column in lists.values())
                assert epoch is not None
                assert units is not None
                polls.setdefault(fields["nic"], []).append(
                    cls(
                        from_ns=fields["poll_from_ns"],
                        to_ns=fields["poll_to_ns"],
                        qpn=qpn,
                        epoch=epoch,
                        units=units,
                        **{name: fields[name] for name in _AS_TOLD},
                    )
                )
        return polls


_AS_TOLD = (
    "epoch_ns",
    "unit_bytes",
    "aggregation_bytes",
    "host_minus_nic_ns",
    "clock_error_ns",
    "events_dropped",
    "part",
    "parts",
)


@dataclass(frozen=True, slots=True, eq=False)
class EpochSeries:
    """The nonzero epochs of one NIC.

    ``qpns``: its queue pairs, ascending, shape (flows,). Rows ``offsets[i]`` to ``offsets[i + 1]`` are those of
    ``qpns[i]``: ``start_ns`` (beginning of the epoch, of the host's clock if ``aligned``, else of the NIC's) and
    ``units``, shape (rows,). ``covered``: intervals that telemetry tells everything of, shape (m, 2), ascending and
    disjoint: only silence inside of them is zero. ``clock_error_ns``: how far times may be off the host's clock.
    """

    qpns: Ints
    offsets: Ints
    start_ns: Ints
    units: Words
    covered: Ints
    epoch_ns: int
    unit_bytes: int
    aggregation_bytes: int
    aligned: bool
    clock_error_ns: int

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def per_port(self) -> bool:
        """Whether the port is counted as a whole, so that nothing tells whom it sent to."""
        return bool(len(self.qpns)) and int(self.qpns[0]) == WHOLE_PORT

    def coverage(self, start_ns: Ints, end_ns: Ints) -> npt.NDArray[np.float64]:
        """Share of each time from ``start_ns`` to ``end_ns`` that telemetry covers, 0 to 1; shape as given."""
        length = np.maximum(end_ns - start_ns, 1)
        covered = self._covered_before(start_ns + length) - self._covered_before(start_ns)
        return np.asarray(np.minimum(covered / length, 1.0), dtype=np.float64)

    def _covered_before(self, at_ns: Ints) -> Ints:
        if not len(self.covered):
            return np.zeros(np.shape(at_ns), dtype=np.int64)
        starts, ends = self.covered[:, 0], self.covered[:, 1]
        before = np.concatenate(([0], np.cumsum(ends - starts)))
        row = np.searchsorted(starts, at_ns, side="right")
        last = np.maximum(row - 1, 0)
        within = np.clip(at_ns - starts[last], 0, ends[last] - starts[last])
        return np.asarray(np.where(row > 0, before[last] + within, 0), dtype=np.int64)

    @classmethod
    def join(cls, polls: Sequence[Poll], between_ns: tuple[int, int] | None = None) -> EpochSeries:
        """Join the polls of one NIC, in any order; a part that came twice counts once.

        ``between_ns``: only the epochs that lie between two times of the host's clock, and what is covered there.

        A poll of which a part is missing, or during which the NIC lost counts, covers nothing. Where some polls know
        the host's clock, the others take the offset of the one nearest to them.

        Raises ``ValueError`` if there is no poll, or if their units or epochs differ.
        """
        distinct = {(poll.from_ns, poll.part): poll for poll in polls}
        chosen = [distinct[key] for key in sorted(distinct)]
        if not chosen:
            raise ValueError("no poll to join")
        first = chosen[0]
        if any(_scale(poll) != _scale(first) for poll in chosen):
            raise ValueError("polls of one NIC differ in epoch, unit or aggregation: join them apart")
        offsets, error = _alignment(chosen)
        covered = _covered(chosen, offsets)
        if between_ns is not None:
            chosen = [_within(poll, offset, *between_ns) for poll, offset in zip(chosen, offsets, strict=True)]
            covered = np.clip(covered, *between_ns)
            covered = covered[covered[:, 1] > covered[:, 0]]
        qpns, lengths, start_ns, units = _rows(chosen, offsets)
        return cls(
            qpns=qpns,
            offsets=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))),
            start_ns=start_ns,
            units=units,
            covered=covered,
            epoch_ns=first.epoch_ns,
            unit_bytes=first.unit_bytes,
            aggregation_bytes=first.aggregation_bytes,
            aligned=error is not None,
            clock_error_ns=error or 0,
        )


def _words(column: pa.Array, row: int) -> Words | None:
    values = column[row].values
    return None if values is None else np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.uint32)


def _scale(poll: Poll) -> tuple[int, int, int, bool]:
    return poll.epoch_ns, poll.unit_bytes, poll.aggregation_bytes, poll.qpn is None


def _alignment(polls: Sequence[Poll]) -> tuple[list[int], int | None]:
    """Host's clock less the NIC's for each poll, and how far it may be wrong; None where no poll knows it."""
    known = [(poll.from_ns, poll.host_minus_nic_ns) for poll in polls if poll.host_minus_nic_ns is not None]
    if not known:
        return [0] * len(polls), None
    times = np.array([at for at, _ in known])
    nearest = [int(np.argmin(np.abs(times - poll.from_ns))) for poll in polls]
    error = max((poll.clock_error_ns or 0 for poll in polls), default=0)
    return [known[at][1] for at in nearest], error


def _within(poll: Poll, offset: int, from_ns: int, to_ns: int) -> Poll:
    """A poll with those of its epochs alone that lie between two times of the host's clock."""
    began = poll.from_ns + offset
    low, high = -((began - from_ns) // poll.epoch_ns), (to_ns - began) // poll.epoch_ns
    if low <= 0 and began + (poll.to_ns - poll.from_ns) <= to_ns:
        return poll
    inside = (poll.epoch >= max(low, 0)) & (poll.epoch < max(high, 0))
    qpn = None if poll.qpn is None else poll.qpn[inside]
    return replace(poll, qpn=qpn, epoch=poll.epoch[inside], units=poll.units[inside])


def _rows(polls: Sequence[Poll], offsets: Sequence[int]) -> tuple[Ints, Ints, Ints, Words]:
    """Queue pairs and how many rows each has, and the rows in order of queue pair and time."""
    run_at, run_qpn = zip(*(_runs(poll) for poll in polls), strict=True)
    run_length = np.concatenate([np.diff(at) for at in run_at])
    qpn = np.concatenate(run_qpn)
    starts, units = [], []
    for poll, offset in zip(polls, offsets, strict=True):
        start_ns = np.multiply(poll.epoch, poll.epoch_ns, dtype=np.int64)
        start_ns += poll.from_ns + offset
        starts.append(start_ns)
        units.append(poll.units)
    order = np.argsort(qpn, kind="stable")
    length = run_length[order]
    names, first = np.unique(qpn[order], return_index=True)
    totals = np.add.reduceat(length, first) if len(first) else length
    joined = np.concatenate(starts), np.concatenate(units)
    if (qpn[1:] >= qpn[:-1]).all():  # one poll, whose parts lie in order: nothing moves
        return names, totals, *joined
    source = np.cumsum(run_length) - run_length
    target = np.cumsum(length) - length
    take = np.arange(int(length.sum())) + np.repeat(source[order] - target, length)
    return names, totals, joined[0][take], joined[1][take]


def _runs(poll: Poll) -> tuple[Ints, Ints]:
    """Where each queue pair's rows begin, with the end of the last one, and the queue pairs."""
    rows = len(poll.epoch)
    if not rows:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if poll.qpn is None:
        return np.array([0, rows]), np.array([WHOLE_PORT])
    begins = np.concatenate(([0], np.flatnonzero(poll.qpn[1:] != poll.qpn[:-1]) + 1))
    return np.append(begins, rows), poll.qpn[begins].astype(np.int64)


def _covered(polls: Sequence[Poll], offsets: Sequence[int]) -> Ints:
    parts: dict[int, set[int]] = {}
    for poll in polls:
        parts.setdefault(poll.from_ns, set()).add(poll.part)
    lossy = {poll.from_ns for poll in polls if poll.events_dropped}
    whole = sorted(
        {
            (poll.from_ns + offset, poll.to_ns + offset)
            for poll, offset in zip(polls, offsets, strict=True)
            if len(parts[poll.from_ns]) == poll.parts and poll.from_ns not in lossy
        }
    )
    merged: list[list[int]] = []
    for start, end in whole:
        # clocks are aligned anew at each poll: two that follow each other may be a few microseconds apart
        if merged and start <= merged[-1][1] + polls[0].epoch_ns:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return np.array(merged, dtype=np.int64).reshape(-1, 2)
