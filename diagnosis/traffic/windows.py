"""Operators of one NIC while its telemetry comes in: each is told once, when telemetry has passed it (Pulse 3.2, 5.2).

What was told never changes. Of the past only what open operators need is kept, so the paper's "most recent iterations"
are what is open, not a number of seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.columns import integers, joint_codes
from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.association import Association, associate
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Bools, EpochSeries, Poll
from diagnosis.traffic.queue_pairs import QueuePairs
from diagnosis.traffic.results import metrics_table, operators_table
from diagnosis.traffic.segmentation import (
    COMPLETE,
    INCOMPLETE,
    MISSING_START,
    MOST_INFLATION,
    UNKNOWN_STATE,
    SegmentationRules,
)
from diagnosis.traffic.transfers import Kind, kind_of

_MOST_KINDS = 10_000
"""Kinds of calls that are remembered: some jobs have a size of its own for each call."""


@dataclass(frozen=True, slots=True)
class WindowRules:
    """When an operator is told.

    ``unknown_ns``: one that telemetry has lost is not waited for any longer. ``overdue_ns``: one that is silent for as
    long is told while it is open, as it stands; ``give_up_ns``: it is closed so. ``infer_ns``: how long calls are kept
    whose algorithm does not show. ``sure``: confidence from which on an algorithm counts as known.
    """

    unknown_ns: int = 2_000_000_000
    overdue_ns: int = 1_000_000_000
    give_up_ns: int = 600_000_000_000
    infer_ns: int = 5_000_000_000
    sure: float = 0.9
    segmentation: SegmentationRules = field(default_factory=SegmentationRules)

    def settled_ns(self, epoch_ns: int) -> int:
        """Silence after which nothing that comes belongs to an operator that has sent all it had to."""
        return self.segmentation.tail_ns + self.segmentation.delta(epoch_ns)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Ranks of each communicator, and whether two ranks share a host."""

    members: Mapping[str, Sequence[int]]
    same_host: Callable[[int, int], bool]

    def between_hosts(self, communicator: str) -> bool:
        """Whether any of a communicator's traffic crosses a NIC."""
        ranks = self.members.get(communicator, ())
        return any(not self.same_host(ranks[0], rank) for rank in ranks[1:])


@dataclass(frozen=True, slots=True)
class Told:
    """Rows of analysis.operators and of analysis.traffic_metrics."""

    operators: pa.Table
    metrics: pa.Table


@dataclass
class NicWindow:
    """What is open on one NIC.

    Of what was told, all since ``from_ns`` is kept (host's clock); ``told``: rank and id of calls among it that were
    told and are context. ``inferred``: algorithms that count as known; ``first_called``: when a kind that has none was
    first called.
    """

    nic: str
    rules: WindowRules
    polls: list[Poll] = field(default_factory=list)
    from_ns: int = 0
    told: set[tuple[int, int]] = field(default_factory=set)
    inferred: dict[Kind, Inference] = field(default_factory=dict)
    first_called: dict[Kind, int] = field(default_factory=dict)

    def tell(self, until_ns: int, calls: Calls, queue_pairs: QueuePairs, around: Surroundings) -> Told | None:
        """What can be told by telemetry up to a time; None: nothing was called or polled.

        ``calls``: those of the ranks that the NIC serves, launched from ``from_ns`` on and before ``until_ns``. What
        telemetry told of later times does not count, so that the answer hangs on the time alone.
        """
        polls = [poll for poll in self.polls if host_ns(poll, poll.from_ns) < until_ns]
        series = EpochSeries.join(polls, (self.from_ns, until_ns)) if polls else None
        if series is None or series.per_port or not len(calls):
            self._forget(until_ns - self.rules.infer_ns)
            return None
        known = around.members, around.same_host, self.inferred, self._rules
        found = associate(series, queue_pairs, calls, *known)
        if self._unlearn(found, calls):
            found = associate(series, queue_pairs, calls, *known)
        over = self._over(found, calls, series, until_ns, around)
        rows = self._rows(found, calls, series, over)
        self._learn(found, calls, over)
        self.told |= _ids(calls, over)
        self._forget(_needed_from(found, calls, over, series, until_ns - self.rules.settled_ns(series.epoch_ns)))
        self.told &= _ids(calls, calls.launch_ns >= self.from_ns)
        return rows

    def to_state(self) -> dict[str, Any]:
        """All but the polls, in a form that JSON can carry."""
        return {
            "from_ns": self.from_ns,
            "told": sorted(self.told),
            "inferred": [
                [*kind, one.algorithm, one.trees, one.confidence, list(one.shares.items())]
                for kind, one in self.inferred.items()
            ],
            "first_called": [[*kind, at] for kind, at in self.first_called.items()],
        }

    @classmethod
    def from_state(cls, nic: str, rules: WindowRules, state: Mapping[str, Any]) -> NicWindow:
        """The window that ``to_state`` described; its polls come again."""
        return cls(
            nic,
            rules,
            from_ns=state["from_ns"],
            told={(rank, call) for rank, call in state["told"]},
            inferred={Kind(*row[:4]): Inference(row[4], row[5], row[6], dict(row[7])) for row in state["inferred"]},
            first_called={Kind(*row[:4]): row[4] for row in state["first_called"]},
        )

    @property
    def _rules(self) -> SegmentationRules:
        return self.rules.segmentation

    def _over(
        self, found: Association, calls: Calls, series: EpochSeries, until_ns: int, around: Surroundings
    ) -> Bools:
        """Which calls nothing is to be waited for of any more; shape (calls,)."""
        settled = self.rules.settled_ns(series.epoch_ns)
        over = np.asarray(calls.launch_ns < until_ns - settled)
        self._await_inference(found, calls, over, until_ns, around)
        operators = found.operators
        open_ = np.isin(operators.state, (INCOMPLETE, MISSING_START))
        limit = np.select(
            [operators.state == COMPLETE, operators.state == UNKNOWN_STATE, open_ & _followed(found, calls)],
            [settled, self.rules.unknown_ns, self.rules.overdue_ns],
            default=self.rules.give_up_ns,
        )
        done = np.zeros(len(calls), dtype=np.bool_)
        done[operators.key] = operators.silent_ns >= limit
        on_network = np.zeros(len(calls), dtype=np.bool_)
        on_network[operators.key] = True
        return np.where(on_network[calls.unit], done[calls.unit], over)

    def _await_inference(
        self, found: Association, calls: Calls, over: Bools, until_ns: int, around: Surroundings
    ) -> None:
        """Collectives between hosts whose algorithm does not show yet are not over for a while."""
        remote = np.array([around.between_hosts(name) for name in calls.communicators], dtype=np.bool_)
        for row in np.flatnonzero(remote[calls.communicator] & ~calls.point_to_point).tolist():
            kind = kind_of(calls, row)
            if kind not in found.inferred:
                since = self.first_called.setdefault(kind, int(calls.launch_ns[row]))
                over[row] &= until_ns - since >= self.rules.infer_ns
        while len(self.first_called) > _MOST_KINDS:
            del self.first_called[next(iter(self.first_called))]

    def _learn(self, found: Association, calls: Calls, over: Bools) -> None:
        """Take algorithms for known by which all operators of their kind came out complete, and one is over: what one
        that still runs has sent so far may be all of another algorithm's."""
        doubtful = {kind_of(calls, row) for row in found.operators.key[found.operators.state != COMPLETE].tolist()}
        for row in found.operators.key[over[found.operators.key]].tolist():
            kind = kind_of(calls, row)
            inference = found.inferred.get(kind)
            if inference is not None and kind not in doubtful and inference.confidence >= self.rules.sure:
                self.inferred.setdefault(kind, inference)
        while len(self.inferred) > _MOST_KINDS:
            del self.inferred[next(iter(self.inferred))]

    def _unlearn(self, found: Association, calls: Calls) -> bool:
        """Whether algorithms are no longer known, since operators have sent more by them than any protocol costs: what
        a late receiver held up long enough may have been taken for all of it."""
        beyond = found.operators.sent > MOST_INFLATION * found.operators.expected
        wrong = self.inferred.keys() & {kind_of(calls, row) for row in found.operators.key[beyond].tolist()}
        for kind in wrong:
            del self.inferred[kind]
        return bool(wrong)

    def _rows(self, found: Association, calls: Calls, series: EpochSeries, over: Bools) -> Told:
        """What is over and was not told, and what is overdue."""
        operators = found.operators
        overdue = np.zeros(len(calls), dtype=np.bool_)
        overdue[operators.key] = (operators.silent_ns >= self.rules.overdue_ns) & (operators.state != UNKNOWN_STATE)
        known = np.array([call in self.told for call in _named(calls)], dtype=np.bool_)
        chosen = (over | overdue[calls.unit]) & ~known
        operators_rows = operators_table(found, calls, self.nic)
        ids = zip(*(integers(operators_rows, name).tolist() for name in ("rank", "call_id")), strict=True)
        of_call = dict(zip(_named(calls), chosen.tolist(), strict=True))
        return Told(
            operators_rows.filter(pa.array([of_call[call] for call in ids], pa.bool_())),
            metrics_table(found, calls, series, self.nic).filter(pa.array(chosen[operators.key])),
        )

    def _forget(self, before_ns: int) -> None:
        """Let go of what lies before a time."""
        self.from_ns = max(self.from_ns, before_ns)
        self.polls = [poll for poll in self.polls if host_ns(poll, poll.to_ns) > self.from_ns]


def host_ns(poll: Poll, at_ns: int) -> int:
    """A time of a poll by the host's clock, as far as the poll knows it."""
    return at_ns + (poll.host_minus_nic_ns or 0)


def _needed_from(found: Association, calls: Calls, over: Bools, series: EpochSeries, settled_ns: int) -> int:
    """Since when telemetry is still needed: the first open call, or what runs beyond it."""
    operators = found.operators
    slack = series.clock_error_ns + series.epoch_ns
    launch = calls.launch_ns[operators.key]
    needed = min(settled_ns, int(calls.launch_ns[~over].min(initial=settled_ns)))
    while True:
        across = launch[(launch < needed) & (operators.end_ns > needed - slack)]
        if not len(across):
            return needed - slack
        needed = int(across.min())


def _followed(found: Association, calls: Calls) -> Bools:
    """Operators after which their rank has completed another one of their communicator: those come in order."""
    key = found.operators.key
    group = joint_codes(calls.rank[key], calls.communicator[key])
    last = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
    complete = found.operators.state == COMPLETE
    np.maximum.at(last, group[complete], key[complete])
    return np.asarray(key < last[group])


def _named(calls: Calls) -> list[tuple[int, int]]:
    """Rank and id of each call."""
    return list(zip(calls.rank.tolist(), calls.call_id.tolist(), strict=True))


def _ids(calls: Calls, chosen: Bools) -> set[tuple[int, int]]:
    return set(_named(calls.take(chosen)))
