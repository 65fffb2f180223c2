"""What the queue pairs of a NIC sent, epoch by epoch, as its polls tell it (Pulse 4.2).

Only epochs in which something was sent are told, so 2,000 busy queue pairs are fifteen million rows a second, and each
pass over them counts. Rows stay where they came: one pass over each part of a poll finds what its queue pairs sent
between silences, and most of what follows looks at these stretches alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnosis.arrays import Ints

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """What queue pairs sent between silences: rows ``low`` to ``high`` of a part of a poll, from epoch ``first`` to
    ``last``, and how many units; shape (n,), sorted by queue pair and time."""

    qpn: Ints
    low: Ints
    high: Ints
    first: Ints
    last: Ints
    units: Ints


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
    _stretches: dict[int, Stretches] = field(default_factory=dict, repr=False)

    @property
    def scale(self) -> tuple[int, int, int, bool]:
        """What polls have to have in common to be joined."""
        return self.epoch_ns, self.unit_bytes, self.aggregation_bytes, self.qpn is None

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

    def stretches(self, quiet_epochs: int) -> Stretches:
        """What its queue pairs sent between silences of as many epochs from one's beginning to the next one's; worked
        out once."""
        if quiet_epochs not in self._stretches:
            self._stretches.clear()
            self._stretches[quiet_epochs] = _found(self, quiet_epochs)
        return self._stretches[quiet_epochs]


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


def _words(column: pa.Array, row: int) -> Words | None:
    values = column[row].values
    return None if values is None else np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.uint32)


def _found(poll: Poll, quiet_epochs: int) -> Stretches:
    rows = len(poll.epoch)
    if not rows or poll.qpn is None:
        none = np.zeros(0, dtype=np.int64)
        return Stretches(none, none, none, none, none, none)
    # where the next queue pair begins the difference wraps around or not: it is cut either way
    cut = np.subtract(poll.epoch[1:], poll.epoch[:-1]) >= quiet_epochs
    cut |= poll.qpn[1:] != poll.qpn[:-1]
    begins = np.flatnonzero(cut) + 1
    low, high = np.append(0, begins), np.append(begins, rows)
    return Stretches(
        qpn=poll.qpn[low].astype(np.int64),
        low=low,
        high=high,
        first=poll.epoch[low].astype(np.int64),
        last=poll.epoch[high - 1].astype(np.int64),
        units=np.add.reduceat(poll.units, low).astype(np.int64),
    )
