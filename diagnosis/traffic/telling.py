"""Operators of a host's NICs while telemetry comes in: each is told once, when it has passed it (Pulse 3.2, 5.2).

What was told never changes. What a step costs hardly depends on how much there is to find, so NICs that count alike
share it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import joint_codes
from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.association import Association, associate
from diagnosis.traffic.calls import Calls, Kind
from diagnosis.traffic.endpoints import MOST_NICS, nic_of, rank_of, sender_of
from diagnosis.traffic.inflation import MOST_INFLATION
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.queue_pairs import QueuePairs
from diagnosis.traffic.results import metrics_table, operators_table
from diagnosis.traffic.segmentation import COMPLETE, INCOMPLETE, MISSING_START, UNKNOWN_STATE
from diagnosis.traffic.series import EpochSeries
from diagnosis.traffic.volume import POINT_TO_POINT, TREE_OPS
from diagnosis.traffic.ways import Way
from diagnosis.traffic.windows import NicWindow, WindowRules

_MOST_KINDS = 10_000
"""Kinds of calls that are remembered: some jobs have a size of its own for each call."""

_OFTEN = 3
"""Operators of a kind that have come out complete by an algorithm: one that does not is no reason to doubt it."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Ranks of each communicator, whether two ranks share a host, and what communicators serve, where that is known."""

    members: Mapping[str, Sequence[int]]
    same_host: Callable[[int, int], bool]
    parallelism: Mapping[str, str] = field(default_factory=dict)

    def between_hosts(self, communicator: str) -> bool:
        """Whether any of a communicator's traffic crosses a NIC."""
        ranks = self.members.get(communicator, ())
        return any(not self.same_host(ranks[0], rank) for rank in ranks[1:])


@dataclass(frozen=True, slots=True)
class Told:
    """Rows of analysis.operators and of analysis.traffic_metrics."""

    operators: pa.Table
    metrics: pa.Table


@dataclass(frozen=True, slots=True)
class Served:
    """A NIC, the rows of the calls of ranks that it serves, and its queue pairs."""

    window: NicWindow
    calls: Ints
    queue_pairs: QueuePairs


def tell(until_ns: int, calls: Calls, served: Sequence[Served], around: Surroundings) -> list[Told]:
    """What can be told of a host's NICs by telemetry up to a time.

    Of ``calls`` those count that were launched from the ``from_ns`` of a NIC's window on and before ``until_ns``.
    """
    alike: dict[Hashable, list[tuple[Served, EpochSeries, Ints]]] = {}
    for one in served:
        window, launch = one.window, calls.launch_ns[one.calls]
        rows = one.calls[(launch >= window.from_ns) & (launch < until_ns)]
        series = window.series(until_ns)
        if series is None or not len(rows):
            window.forget(until_ns - window.rules.infer_ns)
        else:
            alike.setdefault((series.scale, window.rules), []).append((one, series, rows))
    told = []
    for group in (own[at : at + MOST_NICS] for own in alike.values() for at in range(0, len(own), MOST_NICS)):
        pairs = QueuePairs.beside([one.queue_pairs for one, *_ in group])
        windows = [one.window for one, *_ in group]
        step = _Step(until_ns, windows, calls.on_nics([own for *_, own in group]), around)
        told.append(step.tell(Ports([series for _, series, _ in group]), pairs))
    return told


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of NICs that count alike; ``calls`` are on their numbers."""

    until_ns: int
    windows: Sequence[NicWindow]
    calls: Calls
    around: Surroundings

    @property
    def rules(self) -> WindowRules:
        return self.windows[0].rules

    def tell(self, ports: Ports, queue_pairs: QueuePairs) -> Told:
        calls, around = self.calls, self.around
        told = self._told()
        about = ports, queue_pairs, calls, around.members, around.same_host
        ways = self._ways([window.mapped for window in self.windows]), self._ways([w.unmapped for w in self.windows])
        found = associate(*about, self._known(), self.rules.segmentation, *ways)
        if self._unlearn(found):
            found = associate(*about, self._known(), self.rules.segmentation, *ways)
        over = self._over(found)
        rows = self._rows(found, over, told)
        self._learn(found, over)
        needed = self._needed_from(found, over)
        bounds = np.searchsorted(calls.nic, np.arange(len(self.windows) + 1))
        for nic, window in enumerate(self.windows):
            window.forget(needed[nic])
            own = np.arange(bounds[nic], bounds[nic + 1])
            own = own[(told | over)[own] & (calls.launch_ns[own] >= window.from_ns)]
            window.told = np.stack((calls.rank[own], calls.call_id[own]), axis=1)
        return rows

    def _known(self) -> dict[Kind, Inference]:
        """The algorithms that are known of the calls."""
        known = {}
        for kind in self.calls.kinds[1]:
            inference = self.windows[nic_of(kind.rank)].inferred.get(_of_rank(kind))
            if inference is not None:
                known[kind] = inference
        return known

    @staticmethod
    def _ways(of_nics: Sequence[Collection[Way]]) -> set[Way]:
        """Ways by the numbers of senders."""
        return {way._replace(sender=sender_of(nic, way.sender)) for nic, ways in enumerate(of_nics) for way in ways}

    def _told(self) -> Bools:
        """Which calls were told before; shape (calls,)."""
        before = [(sender_of(nic, window.told[:, 0]), window.told[:, 1]) for nic, window in enumerate(self.windows)]
        sender, call = (np.concatenate(column) for column in zip(*before, strict=True))
        told = np.zeros(len(self.calls), dtype=np.bool_)
        near = np.flatnonzero(np.isin(self.calls.call_id, call))  # few, if any: ranks may call by the same numbers
        code = joint_codes(np.append(self.calls.source[near], sender), np.append(self.calls.call_id[near], call))
        told[near] = np.isin(code[: len(near)], code[len(near) :])
        return told

    def _over(self, found: Association) -> Bools:
        """Which calls nothing is to be waited for of any more; shape (calls,)."""
        calls, operators = self.calls, found.operators
        settled = self.rules.settled_ns(found.ports.epoch_ns)
        over = calls.launch_ns < self.until_ns - settled
        over &= ~self._awaiting_inference(found)
        complete, unknown = operators.state == COMPLETE, operators.state == UNKNOWN_STATE
        followed = _followed(found, calls)
        halfway = complete & ~followed & self._newly_along_trees(found)
        limit = np.select(
            [halfway, complete, unknown, followed],
            [self.rules.overdue_ns, settled, self.rules.unknown_ns, self.rules.overdue_ns],
            default=self.rules.give_up_ns,
        )
        done, on_network = np.zeros(len(calls), dtype=np.bool_), np.zeros(len(calls), dtype=np.bool_)
        done[operators.key] = operators.silent_ns >= limit
        on_network[operators.key] = True
        return np.where(on_network[calls.unit], done[calls.unit], over)

    def _newly_along_trees(self, found: Association) -> Bools:
        """Operators of kinds that go along trees only by what was sent so far: a late receiver may have held one up
        that goes around a ring, when it had sent what it would have along a tree. Shape (operators,)."""
        code, kinds = self.calls.kinds
        new = np.zeros(len(kinds), dtype=np.bool_)
        for at, kind in enumerate(kinds):
            inference = found.inferred.get(kind)
            known = self.windows[nic_of(kind.rank)].inferred
            new[at] = inference is not None and inference.algorithm == "tree" and _of_rank(kind) not in known
        return new[code[found.operators.key]]

    def _awaiting_inference(self, found: Association) -> Bools:
        """Collectives between hosts whose algorithm does not show yet are not over for a while; shape (calls,)."""
        code, kinds = self.calls.kinds
        remote = {name for name in self.calls.communicators if self.around.between_hosts(name)}
        first = np.zeros(len(kinds), dtype=np.int64)
        first[code[::-1]] = np.arange(len(code))[::-1]  # of several the last one stays, which is the first
        waiting = np.zeros(len(kinds), dtype=np.bool_)
        for at, kind in enumerate(kinds):
            if kind.op not in POINT_TO_POINT and kind.communicator in remote and kind not in found.inferred:
                called = self.windows[nic_of(kind.rank)].first_called
                since = called.setdefault(_of_rank(kind), int(self.calls.launch_ns[first[at]]))
                waiting[at] = self.until_ns - since < self.rules.infer_ns
        for window in self.windows:
            _keep_newest(window.first_called)
        return waiting[code]

    def _learn(self, found: Association, over: Bools) -> None:
        """Take algorithms for known of which one operator is over, and nothing else of their kind is in doubt: what
        only goes around rings never is. And take what was seen of ways for known."""
        code, kinds = self.calls.kinds
        key = found.operators.key
        doubtful = set(code[key[_doubtful(found, code[key])]].tolist())
        for at in dict.fromkeys(code[key[over[key]]].tolist()):
            inference, doubted = found.inferred.get(kinds[at]), at in doubtful and kinds[at].op in TREE_OPS
            if inference is not None and not doubted and inference.confidence >= self.rules.sure:
                self.windows[nic_of(kinds[at].rank)].inferred.setdefault(_of_rank(kinds[at]), inference)
        for window in self.windows:
            _keep_newest(window.inferred)
        for way in found.mapped | found.unmapped:
            window, own = self.windows[nic_of(way.sender)], way._replace(sender=rank_of(way.sender))
            (window.mapped if way in found.mapped else window.unmapped).add(own)

    def _unlearn(self, found: Association) -> bool:
        """Whether algorithms are no longer known, since operators have sent more by them than any protocol costs: what
        a late receiver held up long enough may have been taken for all of it."""
        code, kinds = self.calls.kinds
        beyond = found.operators.sent > MOST_INFLATION * found.operators.expected
        wrong = [kinds[at] for at in np.unique(code[found.operators.key[beyond]]).tolist()]
        gone = [self.windows[nic_of(kind.rank)].inferred.pop(_of_rank(kind), None) for kind in wrong]
        return any(gone)

    def _rows(self, found: Association, over: Bools, told: Bools) -> Told:
        """What is over and was not told, and what is overdue."""
        operators = found.operators
        overdue = np.zeros(len(self.calls), dtype=np.bool_)
        overdue[operators.key] = (operators.silent_ns >= self.rules.overdue_ns) & (operators.state != UNKNOWN_STATE)
        chosen = (over | overdue[self.calls.unit]) & ~told
        nics = [window.nic for window in self.windows]
        return Told(
            operators_table(found, self.calls, nics, chosen, self.around.parallelism),
            metrics_table(found, self.calls, nics, chosen[operators.key], self.around.parallelism),
        )

    def _needed_from(self, found: Association, over: Bools) -> list[int]:
        """Since when telemetry of each NIC is still needed: the first open call, or what runs beyond it."""
        calls, operators = self.calls, found.operators
        slack = found.ports.clock_error_ns + found.ports.epoch_ns
        launch, nic = calls.launch_ns[operators.key], calls.nic[operators.key]
        needed = np.full(len(self.windows), self.until_ns - self.rules.settled_ns(found.ports.epoch_ns))
        np.minimum.at(needed, calls.nic[~over], calls.launch_ns[~over])
        while True:
            across = (launch < needed[nic]) & (operators.end_ns > (needed - slack)[nic])
            if not across.any():
                return [int(at) for at in needed - slack]
            np.minimum.at(needed, nic[across], launch[across])


def _of_rank(kind: Kind) -> Kind:
    """What a NIC's window knows a kind of calls by."""
    return kind._replace(rank=rank_of(kind.rank))


def _keep_newest(known: dict[Kind, Inference] | dict[Kind, int]) -> None:
    while len(known) > _MOST_KINDS:
        del known[next(iter(known))]


def _doubtful(found: Association, kind: Ints) -> Bools:
    """Operators that sent something and did not come out complete: what one that still runs has sent so far may be all
    of another algorithm's. Not so the last one of a kind that has come out complete before. Shape (operators,)."""
    key, state = found.operators.key, found.operators.state
    complete = np.bincount(kind[state == COMPLETE], minlength=int(kind.max(initial=-1)) + 1)
    last = np.full(len(complete), -1, dtype=np.int64)
    np.maximum.at(last, kind, key)
    stuck = (state == INCOMPLETE) & (key == last[kind]) & (complete[kind] >= _OFTEN)
    return np.asarray((state != COMPLETE) & (state != MISSING_START) & ~stuck)


def _followed(found: Association, calls: Calls) -> Bools:
    """Operators after which their rank has completed another one of their communicator: those come in order."""
    key = found.operators.key
    group = joint_codes(calls.source[key], calls.communicator[key])
    last = np.full(int(group.max(initial=-1)) + 1, -1, dtype=np.int64)
    complete = found.operators.state == COMPLETE
    np.maximum.at(last, group[complete], key[complete])
    return np.asarray(key < last[group])
