"""Whose sends are late, or missing, by more than what they waited for: a step beyond Pulse's chronological scan (D.4).

The first late start of all stages can only be told as far as the clocks of their hosts agree. How late a send is
against the same stage of parallel pipelines needs no such agreement. A send waits for the one before it, for what its
machine has to get first (the same microbatch from the stage before; on the way back from the stage after), and for
its receiver, which has to get rid of the microbatch before. What is later than all of these is late of itself. What
it waits for may have begun in time and be over late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.collective.chronological import computing_too_long, late_from, step_ns, stuck
from diagnosis.collective.grid import ComparisonRules
from diagnosis.collective.participation import UNKNOWN
from diagnosis.collective.pipelines import Pipelines
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

METHOD = "own_lateness"

_ALIKE = 2 / 3
"""A neighbour that is late of itself by this part of the latest one's lateness may be the culprit as well."""

_OWN = 0.1
"""Part of what the latest send of a machine is late by that all its sends together have to be late of themselves."""

_COMPUTES = 1 / 4
"""Part of what usually passes between two sends of a machine that it computes at least before the second one, on what
came in between."""

_FIRST = 1 / 3
"""The same of the first stage. On the way back it only gets, so that what it computes too long there shows in how late
the stage after it gets rid of its sends."""


def late_of_itself(pipelines: Pipelines, job: Job, rules: ComparisonRules) -> Verdict | None:
    """The machine whose sends are late of themselves by most, all together, and its neighbour if it is about as late.

    Two that send to each other at once wait for each other, so that either may have computed too long. Nobody is named
    whose lateness is like that of others: microbatches are not alike. Nor where a send was not seen that it may have
    waited for.
    """
    expected = pipelines.expected()
    if not expected.size:
        return None
    late = pipelines.lateness()
    if not (late >= late_from(expected, rules)).any():
        return None
    way = _Way.of(pipelines)
    each = late - np.fmax(way.causes(late), np.fmax(way.awaited_late(pipelines), 0.0))
    own = np.nansum(each, axis=1)
    worst = int(np.argmax(own))
    if _unseen(late, pipelines.stage)[[worst, *way.neighbours(worst)]].any():
        return None
    if not own[worst] > max(_OWN * np.nanmax(late[worst]), rules.spread * _deviation(own, worst, way)):
        return None
    alike = [at for at in way.neighbours(worst) if own[at] >= _ALIKE * own[worst]]
    alike += [at for at in way.neighbours(worst) if way.before[at] == UNKNOWN and own[at] >= _FIRST * own[worst]]
    evidence = {
        "stage": float(pipelines.stage[worst]),
        "send": float(np.argmax(np.nan_to_num(each[worst]))),
        "late_ns": float(np.nanmax(late[worst])),
        "lost_ns": float(own[worst]),
    }
    return computing_too_long(pipelines, job, sorted((worst, *alike[:1])), METHOD, evidence, hang=False)


def computed_of_itself(pipelines: Pipelines) -> Floats:
    """What passes on each machine from the last send that one of its own waits for to that one, all together:
    nanoseconds, shape (machines,).

    That is what it computes, what the send before takes, and what its neighbours do before they take this one. Stages'
    clocks may be off, so that only by how much it grows says something.
    """
    if not pipelines.start.size:
        return np.zeros(len(pipelines.stage))
    return np.asarray(np.nansum(pipelines.start - _Way.of(pipelines).causes(pipelines.start), axis=1))


def missing_of_itself(pipelines: Pipelines, job: Job, alive: Mapping[int, bool] | None = None) -> Verdict | None:
    """The machine whose send is missing though nothing that it waits for is.

    And its neighbour, if that holds for a send of its own at about the same time: within what usually passes between
    two of a machine, since clocks of different stages may not agree. Who waits for what was not seen is not named, but
    beside one that only it could hold up. Where it holds for several machines of a stage, pipelines do not keep them
    waiting, but what their ranks, or those they send to, call together. A single send is stuck because of its
    receiver's machine if none of that one's ranks sends any more. Where one rank alone sends while the others of its
    machine wait, it sends again: the NIC that it sends to is down, unless that is known to be ``alive``.
    """
    expected = pipelines.expected()
    if not expected.size:
        return None
    way = _Way.of(pipelines)
    lacking = pipelines.lacking & ~np.isnan(expected)
    first = _without_cause(way, lacking)
    if not first.any():
        return None
    order = np.where(first, expected, np.inf)
    machine, send = (int(i) for i in np.unravel_index(int(np.argmin(order)), order.shape))
    if np.count_nonzero(first.any(axis=1) & (pipelines.stage == pipelines.stage[machine])) > 1:
        return _together(pipelines, job, first)
    down = [rank for rank in np.unique(pipelines.again_to[first]).tolist() if rank != UNKNOWN]
    if len(down) == 1 and not (alive or {}).get(down[0], False):
        return Verdict("hang_hardware", "device", tuple(down), "sent_again", coverage=pipelines.coverage)
    absent = first & pipelines.absent & (np.abs(expected - expected[machine, send]) <= step_ns(expected))
    if not pipelines.absent[machine, send]:
        receiver = int(way.receiver[machine, send])
        if receiver == UNKNOWN or not absent[receiver].any():
            return stuck(pipelines, machine, send, METHOD)
        machine, send = receiver, int(np.argmax(absent[receiver]))
    unseen = _unseen_cause(pipelines, way, expected, machine, send)
    alike = [at for at in way.neighbours(machine) if absent[at].any()]
    if unseen != UNKNOWN:
        if alike or way.neighbours(unseen) != [machine]:
            return None
        alike = [unseen]
    evidence = {"stage": float(pipelines.stage[machine]), "send": float(send)}
    return computing_too_long(pipelines, job, sorted((machine, *alike[:1])), METHOD, evidence, hang=True)


def _unseen_cause(pipelines: Pipelines, way: _Way, expected: Floats, machine: int, send: int) -> int:
    """The machine that a send waits for and that was not seen any more; else ``UNKNOWN``."""
    seen = ~np.isnan(pipelines.start) | pipelines.lacking
    later = np.fliplr(np.logical_or.accumulate(np.fliplr(seen), axis=1))
    unseen = ~later & ~(np.isnan(expected) & seen.any(axis=1, keepdims=True))
    receiver = int(way.receiver[machine, send])
    if receiver != UNKNOWN and unseen[receiver].any():
        return receiver
    return int(way.awaited(unseen)[machine, send])


def _without_cause(way: _Way, lacking: Bools) -> Bools:
    """The first lacking sends of machines that wait for nothing that is lacking; shape as ``lacking``.

    Whose receiver is held up by somebody else waits for that one: it may have had to get something from the receiver
    first. Two that so wait for each other are left.
    """
    send = np.argmax(lacking, axis=1)
    machines = np.arange(len(lacking))
    awaited = np.where(lacking.any(axis=1), way.awaited(lacking)[machines, send], UNKNOWN)

    def held_by(machine: int) -> int:
        seen = set()
        while awaited[machine] != UNKNOWN and machine not in seen:
            seen.add(machine)
            machine = int(awaited[machine])
        return machine

    free = [int(m) for m in np.flatnonzero(lacking.any(axis=1) & (awaited == UNKNOWN))]
    to = {m: int(way.receiver[m, send[m]]) for m in free}
    by = {m: held_by(to[m]) if to[m] != UNKNOWN and lacking[to[m]].any() else m for m in free}
    left = [m for m in free if by[m] == m or by.get(by[m]) == m]
    chosen = np.zeros_like(lacking)
    chosen[left, send[left]] = True
    return chosen


def _unseen(late: Floats, stage: Ints) -> Bools:
    """The machines that were not seen to send what most of their stage did, or anything; shape (machines,)."""
    unknown = np.isnan(late)
    stages = (stage == at for at in range(int(stage.max()) + 1))
    expected = np.stack([2 * np.count_nonzero(~unknown[own], axis=0) > np.count_nonzero(own) for own in stages])[stage]
    return np.asarray((expected & unknown).any(axis=1) | unknown.all(axis=1))


def _deviation(own: Floats, worst: int, way: _Way) -> float:
    """By how much the machines of other pipelines are late of themselves: the mean."""
    others = np.delete(own, way.pipeline(worst))
    return float(np.mean(np.abs(others))) if len(others) else 0.0


def _together(pipelines: Pipelines, job: Job, first: Bools) -> Verdict | None:
    """The smallest communicator of all ranks that single sends which are stuck go to, or come from; None: there is no
    such."""
    single = first & ~pipelines.absent
    for ends in (pipelines.stuck_to[single], pipelines.stuck[single]):
        ranks = set(ends.tolist()) - {UNKNOWN}
        around = [c for c in job.communicators if len(ranks) > 1 and ranks <= set(c.ranks)]
        if around:
            group = min(around, key=lambda communicator: len(communicator.ranks))
            return Verdict(
                cause="hang_not_entered",
                level="group",
                ranks=tuple(sorted(group.ranks)),
                method=METHOD,
                communicator=group.communicator,
                evidence={"sends": float(np.count_nonzero(single))},
                coverage=pipelines.coverage,
            )
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """The way of microbatches through the machines of pipelines.

    ``forward``: which sends go to the next stage, ``back``: to the one before; ``ordinal``: how many of the machine
    went the same way earlier; shape (machines, sends).
    """

    after: Ints
    before: Ints
    forward: Bools
    back: Bools
    ordinal: Ints

    @classmethod
    def of(cls, pipelines: Pipelines) -> _Way:
        """A send that was never called goes where the same one of the stage's other machines does."""
        stage, known = pipelines.stage, pipelines.peer != UNKNOWN
        towards = np.where(known, stage[pipelines.peer] - stage[:, None], 0)
        of_stage = np.stack([towards[stage == at].sum(axis=0) for at in range(int(stage.max()) + 1)])[stage]
        forward, back = of_stage > 0, of_stage < 0
        return cls(
            after=pipelines.after,
            before=pipelines.before,
            forward=forward,
            back=back,
            ordinal=np.where(forward, np.cumsum(forward, axis=1), np.cumsum(back, axis=1)) - 1,
        )

    def pipeline(self, machine: int) -> list[int]:
        """The machines of all stages of the pipeline that one belongs to."""
        found = [machine]
        for to in (self.before, self.after):
            at = to[machine]
            while at != UNKNOWN and at not in found:
                found.append(int(at))
                at = to[at]
        return found

    def neighbours(self, machine: int) -> list[int]:
        """The machines of the stages around one."""
        return [int(at) for at in (self.before[machine], self.after[machine]) if at != UNKNOWN]

    @property
    def receiver(self) -> Ints:
        """The machine that each send goes to; shape (machines, sends)."""
        return np.where(self.forward, self.after[:, None], np.where(self.back, self.before[:, None], UNKNOWN))

    def awaited(self, lacking: Bools) -> Ints:
        """The machine whose lacking send each one waits for, ``UNKNOWN`` where none is; shape as ``lacking``."""
        _, same, emptied = self._of_causes(lacking.astype(np.float64))
        came = np.where(self.forward | self._turns, self.before[:, None], self.after[:, None])
        return np.where(same > 0, came, np.where(emptied > 0, self.receiver, UNKNOWN))

    def causes(self, values: Floats) -> Floats:
        """The largest of the values that belong to the sends which each one waits for; NaN where there is none."""
        own, same, emptied = self._of_causes(values)
        return np.asarray(np.fmax(own, np.fmax(same, emptied)))

    def awaited_late(self, pipelines: Pipelines) -> Floats:
        """By how much later than in parallel pipelines that was over which each send waits for: the send before, the
        microbatch that it sends on, and what came back to the machine since the send before. Shape (machines, sends);
        NaN where none of these was seen.

        What comes may be late because the machine was not ready, but not by more than its send before.
        """
        late = pipelines.end_lateness()
        before, came, _ = self._of_causes(late)
        returned = np.full(late.shape, np.nan)
        begins, ends = pipelines.expected(), pipelines.expected_end()
        computes = _COMPUTES * step_ns(begins)
        for machine in np.flatnonzero((self.after != UNKNOWN) & pipelines.shared).tolist():
            back = np.flatnonzero(self.back[self.after[machine]])
            if not len(back):
                continue
            over = ends[self.after[machine], back]
            last = np.searchsorted(over, begins[machine] - computes, side="right") - 1
            since = np.append(np.inf, begins[machine, :-1])
            fresh = self.forward[machine] & (last >= 0) & (over[last] > since)
            returned[machine, fresh] = late[self.after[machine], back[last[fresh]]]
        return np.asarray(np.fmax(before, np.fmax(came, returned)))

    @property
    def _turns(self) -> Bools:
        """The last stage sends back what it got."""
        return np.asarray(self.after == UNKNOWN)[:, None]

    def _of_causes(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Values of each one's causes: the send before it, that of the microbatch it sends on, and its receiver's."""
        forward, back = self._by_ordinal(values, self.forward), self._by_ordinal(values, self.back)
        same = np.where(self.forward | self._turns, self._of(forward, self.before, 0), self._of(back, self.after, 0))
        emptied = np.where(self.forward, self._of(forward, self.after, -1), self._of(back, self.before, -1))
        own = np.concatenate((np.full((len(values), 1), np.nan), values[:, :-1]), axis=1)
        return own, same, emptied

    def _by_ordinal(self, values: Floats, direction: Bools) -> Floats:
        """Values of the sends in one direction by their ordinal; a row more than machines, of ``UNKNOWN``."""
        found = np.full((len(values) + 1, values.shape[1] + 1), np.nan)
        machine, send = np.nonzero(direction)
        found[machine, self.ordinal[machine, send]] = values[machine, send]
        return found

    def _of(self, by_ordinal: Floats, machine: Ints, shift: int) -> Floats:
        """The value of another machine's send of each one's ordinal, or ``shift`` from it."""
        at = self.ordinal + shift
        return np.where(at >= 0, by_ordinal[machine[:, None], at], np.nan)
