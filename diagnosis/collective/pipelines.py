"""What the stages of pipelines send to each other in an iteration, by machine (Pulse 7.2.1, D.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.collective.moments import Moments
from diagnosis.collective.participation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    UNKNOWN,
    UNKNOWN_STATE,
    Participation,
)
from diagnosis.collective.resends import sent_again
from diagnosis.job import Job

_LEAST_TOGETHER = 3
"""Ranks of a machine of which one that sends alone does so for a reason of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Pipelines:
    """Sends between pipeline stages by machine; arrays of shape (machines, sends).

    A machine is one stage on one host; ``stage`` and ``host`` have shape (machines,). ``start`` and ``end`` (of the
    last rank) are nanoseconds since a moment that at least the ranks of a stage share, NaN where nothing was seen;
    ``shared``: those of all stages do. ``absent``: covered, and nothing was sent. ``peer`` is the machine that is sent
    to, or ``UNKNOWN``. ``stuck`` is the rank whose send did not end though those of most other ranks of its machine
    did, and ``stuck_to`` whom it sent to; ``again_to`` is whom the only rank of its machine that sends sent to again;
    ``UNKNOWN`` where there is none. ``after`` and ``before``: the machines of
    the next stage and of the one before, ``UNKNOWN`` at the ends; shape (machines,).
    """

    host: tuple[str, ...]
    stage: Ints
    start: Floats
    end: Floats
    absent: Bools
    peer: Ints
    stuck: Ints
    stuck_to: Ints
    again_to: Ints
    after: Ints
    before: Ints
    shared: bool
    coverage: float

    @classmethod
    def of(cls, table: Participation, job: Job, pipelines: Sequence[Sequence[int]], moments: Moments) -> Pipelines:
        """Collect the sends of an iteration within ``pipelines``: ranks by stage. ``moments`` are what times count
        from, so that clocks of hosts need not agree.
        """
        moment_ns = moments.of_rank
        place = {rank: (at, job.clock(rank)) for ranks in pipelines for at, rank in enumerate(ranks)}
        machines = sorted(set(place.values()))
        number = {machine: i for i, machine in enumerate(machines)}
        of_rank = {rank: number[machine] for rank, machine in place.items()}
        rows = {rank: _sends(table, rank, ranks) for ranks in pipelines for rank in ranks if rank in moment_ns}
        elsewhere = _held_elsewhere(table, rows)
        told = _Sends.unknown(len(machines), max((len(own) for own in rows.values()), default=0))
        for machine, at in number.items():
            own = {rank: of for rank, of in rows.items() if place[rank] == machine}
            if own:
                of_machine = _of_machine(table, own, told.start.shape[1], moment_ns, elsewhere, of_rank)
                for column, values in zip(told, of_machine, strict=True):
                    column[at] = values
        return cls(
            host=tuple(host for _, host in machines),
            stage=np.array([at for at, _ in machines], dtype=np.int64),
            **told._asdict(),
            after=_next_to(pipelines, of_rank, len(machines), 1),
            before=_next_to(pipelines, of_rank, len(machines), -1),
            shared=moments.shared,
            coverage=len(rows) / max(len(place), 1),
        )

    @property
    def lacking(self) -> Bools:
        """Sends that did not start, or did not end; shape as ``start``."""
        return np.asarray(self.absent | (self.stuck != UNKNOWN))

    def lateness(self) -> Floats:
        """By how much each send starts later than on the same stage of parallel pipelines; NaN where none of them was
        seen to. Shape as ``start``."""
        return self._late(self.start)

    def end_lateness(self) -> Floats:
        """By how much each send ends later than on the same stage of parallel pipelines; as ``lateness``."""
        return self._late(self.end)

    def _late(self, times: Floats) -> Floats:
        known = ~np.isnan(times)
        pipelines = np.stack(
            [np.count_nonzero(known[self.stage == at], axis=0) for at in range(int(self.stage.max()) + 1)]
        )
        others = np.count_nonzero(self.stage == self.stage[:, None], axis=1) > 1
        alone = others[:, None] & (pipelines[self.stage] < 2)
        return np.where(alone, np.nan, times - self._expected(times))

    def expected(self) -> Floats:
        """When each send starts on the same stage of parallel pipelines: their lower median; shape as ``start``."""
        return self._expected(self.start)

    def expected_end(self) -> Floats:
        """When each send ends there; as ``expected``."""
        return self._expected(self.end)

    def _expected(self, times: Floats) -> Floats:
        usual = np.full(times.shape, np.nan)
        for stage in np.unique(self.stage).tolist():
            own = self.stage == stage
            ordered = np.sort(times[own], axis=0)  # NaN last
            known = np.count_nonzero(~np.isnan(ordered), axis=0)
            middle = np.maximum((known - 1) // 2, 0)
            usual[own] = ordered[middle, np.arange(ordered.shape[1])]
        return usual


class _Sends(NamedTuple):
    """What ``Pipelines`` tells of sends: arrays of shape (machines, sends), or of one machine (sends,)."""

    start: Floats
    end: Floats
    absent: Bools
    peer: Ints
    stuck: Ints
    stuck_to: Ints
    again_to: Ints

    @classmethod
    def unknown(cls, machines: int, sends: int) -> _Sends:
        """Nothing is known of any."""
        shape = machines, sends
        start, end = (np.full(shape, np.nan) for _ in range(2))
        peer, stuck, stuck_to, again_to = (np.full(shape, UNKNOWN, dtype=np.int64) for _ in range(4))
        return cls(start, end, np.zeros(shape, dtype=np.bool_), peer, stuck, stuck_to, again_to)


def _of_machine(
    table: Participation,
    rows: Mapping[int, Sequence[int]],
    sends: int,
    moment_ns: Mapping[int, int],
    elsewhere: Set[int],
    machine: Mapping[int, int],
) -> _Sends:
    """The sends of one machine, by the rows of its ranks; ``machine``: the number of each rank's."""
    ranks = np.array(list(rows))
    each = [_relative(table, rank, own, sends, moment_ns[rank], elsewhere) for rank, own in rows.items()]
    starts, ends, state = (np.stack(column) for column in zip(*each, strict=True))
    to = np.array([_receivers(table, own, sends) for own in rows.values()])
    start, columns = _median(starts), np.arange(sends)
    missing, through = state == MISSING_START, (state == COMPLETE).sum(axis=0)
    lacking = missing | (state == INCOMPLETE)
    alone, which = lacking.any(axis=0) & (through * 2 >= len(ranks)), np.argmax(lacking, axis=0)
    again = np.zeros(state.shape, dtype=np.bool_)
    for i, own in enumerate(rows.values()):
        again[i, : len(own)] = sent_again(table, np.array(own, dtype=np.int64))
    sends_alone = (missing.sum(axis=0) == len(ranks) - 1) & (len(ranks) >= _LEAST_TOGETHER) & again.any(axis=0)
    return _Sends(
        start=start,
        end=np.where(np.isnan(start), np.nan, np.fmax.reduce(ends)),
        absent=missing.sum(axis=0) * 2 > len(ranks),
        peer=np.array([machine.get(rank, UNKNOWN) for rank in to[0].tolist()], dtype=np.int64),
        stuck=np.where(alone, ranks[which], UNKNOWN),
        stuck_to=np.where(alone, to[which, columns], UNKNOWN),
        again_to=np.where(sends_alone, to[np.argmax(again, axis=0), columns], UNKNOWN),
    )


def _next_to(pipelines: Sequence[Sequence[int]], machine: Mapping[int, int], machines: int, step: int) -> Ints:
    """The machine that is so many stages further on; shape (machines,). ``machine``: of each rank."""
    found = np.full(machines, UNKNOWN, dtype=np.int64)
    for ranks in pipelines:
        for at, rank in enumerate(ranks):
            if 0 <= at + step < len(ranks):
                found[machine[rank]] = machine[ranks[at + step]]
    return found


def _sends(table: Participation, rank: int, pipeline: Sequence[int]) -> list[int]:
    """Rows in which a rank sends within its pipeline, in order of calls."""
    own = np.flatnonzero((table.rank == rank) & table.direct)
    within = [row for row in own.tolist() if np.isin(table.peer[table.peers(row)], pipeline).all()]
    return sorted((row for row in within if len(table.peer[table.peers(row)])), key=lambda row: int(table.call_ns[row]))


def _held_elsewhere(table: Participation, sends: Mapping[int, Sequence[int]]) -> set[int]:
    """The ranks whose first operator that did not end is none of their sends: pipelines wait for it."""
    of_pipelines = np.zeros(len(table), dtype=np.bool_)
    for rows in sends.values():
        of_pipelines[rows] = True
    lacking = np.flatnonzero(np.isin(table.state, (INCOMPLETE, MISSING_START)))
    lacking = lacking[np.lexsort((table.call_ns[lacking], table.rank[lacking]))]
    ranks, first = np.unique(table.rank[lacking], return_index=True)
    return set(ranks[~of_pipelines[lacking[first]]].tolist())


def _relative(
    table: Participation, rank: int, rows: Sequence[int], sends: int, moment_ns: int, elsewhere: Set[int]
) -> tuple[Floats, Floats, Ints]:
    """Start and end of each send from the common moment on, and its state; what was never called is missing.

    What follows a loss is no silence, until a send is seen to end; nor is what waits for something else than the
    pipeline, on either side. A send of which nothing was seen does not tell to whom it was, so that none that is
    called later is known.
    """
    start, end, state = np.full(sends, np.nan), np.full(sends, np.nan), np.full(sends, MISSING_START)
    for at, row in enumerate(rows):
        state[at] = table.state[row]
        if table.start_ns[row] != UNKNOWN:
            start[at] = table.start_ns[row] - moment_ns
        if state[at] == COMPLETE:
            end[at] = table.end_ns[row] - moment_ns
        if state[at] != COMPLETE and {rank, *table.peer[table.peers(row)].tolist()} & elsewhere:
            state[at] = UNKNOWN_STATE
    to_nobody = (table.state == UNKNOWN_STATE) & (np.diff(table.peer_offset) == 0)
    unseen_ns = table.call_ns[(table.rank == rank) & table.direct & to_nobody]
    if len(unseen_ns):
        known = np.count_nonzero(table.call_ns[list(rows)] < unseen_ns.min())
        start[known:], end[known:], state[known:] = np.nan, np.nan, UNKNOWN_STATE
    ended = np.flatnonzero(state == COMPLETE)
    lost = np.flatnonzero(state == UNKNOWN_STATE)
    lost = lost[lost > (ended[-1] if len(ended) else -1)]
    state[lost[0] if len(lost) else sends :] = UNKNOWN_STATE
    return start, end, state


def _receivers(table: Participation, rows: Sequence[int], sends: int) -> list[int]:
    to = [int(table.peer[table.peers(row)][0]) for row in rows]
    return to + [UNKNOWN] * (sends - len(to))


def _median(values: Floats) -> Floats:
    """Median of each column; NaN where at least half are."""
    ordered = np.sort(values, axis=0)
    known = np.count_nonzero(~np.isnan(ordered), axis=0)
    middle = ordered[np.maximum((known - 1) // 2, 0), np.arange(values.shape[1])]
    return np.where(2 * known > len(values), middle, np.nan)
