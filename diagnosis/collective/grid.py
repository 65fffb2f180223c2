"""One communicator's operators as a grid of ranks and instances, and what they usually take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.collective.participation import COMPLETE, UNKNOWN, UNKNOWN_STATE, Participation

REMEMBERED = 5
"""Regular iterations that tell what is usual."""


@dataclass(frozen=True, slots=True)
class ComparisonRules:
    """When ranks differ, each held against the median of the others (Pulse 6.2)."""

    longer: float = 1.1
    """The collectives of a group are extended if they last at least so many times the usual; a lower value names more
    groups and hosts."""
    slower: float = 1.03
    """Collectives that last less than this times the usual are not looked at, neither for stragglers nor for extended
    groups."""
    margin: float = 0.03
    """By what part a straggler's actual time in built-in collectives must exceed the others'; a lower value names NICs
    that differ less."""
    custom_margin: float = 0.1
    """By what part a straggler's actual rate in custom collectives must fall below the others'; by twice that where its
    usual rate is not known, where it has more to do than others, and of what is sent to a single rank."""
    busy_margin: float = 0.03
    """By what part the others' full epochs must hold more than a straggler's, with ``busy_epochs``."""
    busy_share: float = 0.85
    """Part of a collective's duration in which a straggler must really send: where all are silent for long, none of
    them is waited for."""
    custom_busy_share: float = 0.5
    """The same in custom collectives, as far as all members were seen; else ``busy_share`` holds there too."""
    spread: float = 4.0
    """Multiple of the mean deviation among the others by which a straggler must differ as well, and a machine's sends
    be late of themselves; a higher value names less where all scatter."""
    recent: int = 10
    """Number of custom collectives of a communicator, the latest ones, over which rates are averaged (the paper's
    k)."""
    late_ns: int = 2_000_000
    """Nanoseconds that a rank must compute longer than the others before its operators, or that a pipeline's send must
    come later than expected, to be late."""
    late_share: float = 0.25
    """The same as a part of what the others compute, or of the usual time between two sends of a machine; both must be
    exceeded."""
    tie_share: float = 0.01
    """In a hang, ranks whose sent part of their bytes is no further than this from the least are not told apart."""
    pipeline_order: Literal["of_itself", "first_late"] = "of_itself"
    """Which machine of a pipeline computes too long: the one that is late ``of_itself``, by more than what it waits
    for, or as published the one that is ``first_late``."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """What the ranks of one communicator did in its operators, in order of time.

    ``rank`` has shape (ranks,); ``instance``, ``op``, ``expected`` (the most that one rank has to send) and ``custom``
    (instances,); the others (ranks, instances), NaN where a rank has no such row or did not see it.
    """

    communicator: str
    rank: Ints
    instance: Ints
    op: tuple[str, ...]
    expected: Ints
    custom: Bools
    row: Ints
    state: Ints
    start: Floats
    end: Floats
    actual: Floats
    sent: Floats
    share: Floats
    busy: Floats

    @property
    def duration(self) -> Floats:
        """From a rank's first traffic to its last."""
        return self.end - self.start

    @property
    def complete(self) -> Bools:
        """Instances that all ranks with a row have completed; shape (instances,)."""
        return np.asarray(
            ((self.state == COMPLETE) | (self.row == UNKNOWN)).all(axis=0) & (self.row != UNKNOWN).any(axis=0)
        )

    @property
    def coverage(self) -> float:
        """Share of the rows whose telemetry was there."""
        return float(np.mean(self.state[self.row != UNKNOWN] != UNKNOWN_STATE)) if (self.row != UNKNOWN).any() else 0.0

    def choose(self, chosen: Bools | Ints) -> Grid:
        """The chosen instances, and the ranks that have any of them."""
        rows = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        ranks = (self.row[:, rows] != UNKNOWN).any(axis=1)
        each = {
            f.name: column[ranks][:, rows] if column.ndim == 2 else column[rows]
            for f in fields(self)
            if f.name not in {"communicator", "rank", "op"}
            for column in (getattr(self, f.name),)
        }
        return Grid(self.communicator, self.rank[ranks], op=tuple(self.op[i] for i in rows), **each)

    @classmethod
    def of(cls, table: Participation, communicator: int) -> Grid:
        """The grid of one of the table's communicators."""
        low, high = np.searchsorted(table.communicator, [communicator, communicator + 1])
        rows = np.arange(low, high)
        rank, at_rank = np.unique(table.rank[rows], return_inverse=True)
        instance, first, at_instance = np.unique(table.instance[rows], return_index=True, return_inverse=True)
        row = np.full((len(rank), len(instance)), UNKNOWN, dtype=np.int64)
        row[at_rank, at_instance] = rows

        def values(column: Ints, known: Bools) -> Floats:
            cells = np.where(known[row] & (row != UNKNOWN), column[row], np.nan) if len(column) else np.zeros(row.shape)
            return np.asarray(cells, dtype=np.float64)

        seen, always = table.start_ns != UNKNOWN, np.ones(len(table), dtype=np.bool_)
        sent = values(table.sent, table.state != UNKNOWN_STATE)
        expected = values(table.expected, always)
        return cls(
            communicator=table.communicators[communicator],
            rank=rank,
            instance=instance,
            op=tuple(table.ops[code] for code in table.op[rows[first]]),
            expected=np.nan_to_num(np.nanmax(expected, axis=0)).astype(np.int64),
            custom=table.custom[rows[first]],
            row=row,
            state=np.where(row == UNKNOWN, UNKNOWN_STATE, table.state[row]),
            start=values(table.start_ns, seen),
            end=values(table.end_ns, seen),
            actual=values(table.actual_time_ns, seen),
            sent=sent,
            share=sent / np.maximum(expected, 1),
            busy=values(table.busy_epoch_bytes, seen & (table.busy_epoch_bytes != UNKNOWN)),
        )


def grids(table: Participation) -> list[Grid]:
    """The grids of all communicators."""
    return [Grid.of(table, code) for code in np.unique(table.communicator).tolist()]


Kind = tuple[str, str, int]
"""Communicator, operator and expected bytes: operators that take equally long."""

Work = tuple[str, int, int]
"""Host, operators of its ranks, and what they have to send: iterations in which it does the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Usual:
    """What operators took while nothing was slow. ``duration`` and ``actual`` are medians over ranks and instances of
    a kind, ``rate`` of each rank's custom collectives; ``computed``: nanoseconds that hosts computed for a work."""

    duration: Mapping[Kind, float]
    actual: Mapping[Kind, float]
    rate: Mapping[tuple[str, int], float]
    computed: Mapping[Work, float] = field(default_factory=dict)

    @classmethod
    def of(cls, past: Sequence[Grid], computed: Mapping[Work, float] | None = None) -> Usual:
        """Take what is usual from the grids of regular iterations."""
        duration: dict[Kind, float] = {}
        actual: dict[Kind, float] = {}
        rate: dict[tuple[str, int], float] = {}
        for whole in past:
            grid = whole.choose(whole.complete)
            for kind in sorted({kind_of(grid, i) for i in range(len(grid.instance)) if not grid.custom[i]}):
                alike = np.array([kind_of(grid, i) == kind for i in range(len(grid.instance))])
                duration[kind] = float(np.nanmedian(grid.duration[:, alike]))
                actual[kind] = float(np.nanmedian(grid.actual[:, alike]))
            custom = grid.choose(grid.custom)
            each = np.nanmedian(rates(custom), axis=1) if len(custom.instance) else np.zeros(0)
            rate |= {(grid.communicator, int(r)): float(v) for r, v in zip(custom.rank, each, strict=True)}
        return cls(duration, actual, rate, computed or {})


def kind_of(grid: Grid, at: int) -> Kind:
    """The kind of one instance."""
    return grid.communicator, grid.op[at], int(grid.expected[at])


def rates(grid: Grid) -> Floats:
    """Bytes a second in actual time; shape (ranks, instances)."""
    return np.asarray(grid.sent / np.maximum(grid.actual, 1.0) * 1e9, dtype=np.float64)


def over_others(values: Floats) -> tuple[Floats, Floats]:
    """Each value over the median of the others, and the relative deviation among these; shape (n,) both."""
    ratio, deviation = np.full(len(values), np.nan), np.zeros(len(values))
    for i in range(len(values)):
        others = np.delete(values, i)
        others = others[~np.isnan(others)]
        if len(others):
            middle = float(np.median(others))
            ratio[i] = values[i] / middle if middle > 0 else np.nan
            # of as few as three, the mean deviation says more than the median one
            deviation[i] = float(np.mean(np.abs(others - middle))) / middle if middle > 0 else np.nan
    return ratio, deviation
