"""What calls have to send to whom: the expected volume of each operator, peer by peer (Pulse 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Bools, Ints
from diagnosis.columns import joint_codes
from diagnosis.traffic.algorithm import Inference, infer
from diagnosis.traffic.bursts import Bursts
from diagnosis.traffic.calls import UNKNOWN, Calls, Kind
from diagnosis.traffic.endpoints import nic_of, pair_of, rank_of
from diagnosis.traffic.volume import POINT_TO_POINT, ring_bytes

DIRECT = (*POINT_TO_POINT, "all_to_all")
"""What a rank sends to each peer by itself, by no algorithm."""


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """What one rank sends another for one call; arrays of shape (n,), sorted by source, destination and call.

    ``call``: row of its call. ``source``: the sending end (``endpoints``). ``expected``: bytes, a lower bound of what a
    NIC counts.
    """

    call: Ints
    source: Ints
    destination: Ints
    expected: Ints
    launch_ns: Ints

    def __len__(self) -> int:
        return len(self.call)

    @property
    def pair(self) -> Ints:
        """The sending end and the destination of each, as one number; shape (n,)."""
        return pair_of(self.source, self.destination)

    @classmethod
    def of(cls, calls: Calls, call: Ints, destination: Ints, expected: Ints) -> Transfers:
        """Build from rows of calls with a peer each."""
        source, launch = calls.source[call], calls.launch_ns[call]
        order = np.lexsort((call, launch, destination, source))
        return cls(call[order], source[order], destination[order], expected[order], launch[order])

    def take(self, chosen: Bools | Ints) -> Transfers:
        """The chosen transfers, in their order."""
        return Transfers(*(getattr(self, name)[chosen] for name in self.__slots__))


def expected_transfers(
    calls: Calls, members: Mapping[str, Sequence[int]], inferred: Mapping[Kind, Inference]
) -> Transfers:
    """The transfers of all calls whose algorithm needs no inference or is inferred; those of no bytes are left out.

    ``members``: ranks of each communicator.
    """
    sends = np.flatnonzero(calls.is_op("send"))
    call, peer, expected = [sends], [calls.peer[sends]], [calls.payload[sends]]
    for rows, kind in _alike(calls):
        each = _each_peer(kind, int(calls.root[rows[0]]), members, inferred)
        call.append(np.repeat(rows, len(each)))
        peer.append(np.tile(np.array(list(each), dtype=np.int64), len(rows)))
        expected.append(np.tile(np.array(list(each.values()), dtype=np.int64), len(rows)))
    of_call, destination, size = np.concatenate(call), np.concatenate(peer), np.concatenate(expected)
    kept = (size > 0) & (destination >= 0) & (destination != calls.rank[of_call])
    return Transfers.of(calls, of_call[kept], destination[kept], size[kept])


def infer_algorithms(
    calls: Calls,
    members: Mapping[str, Sequence[int]],
    bursts: Bursts,
    slack_ns: Ints,
    known: Mapping[Kind, Inference],
) -> dict[Kind, Inference]:
    """The algorithm of each kind of collective calls that is not known, told by what its ranks sent after calling.

    What bursts bring to each member from a run of the communicator's collectives until the rank's next other call
    counts; the median stands against other traffic on the same queue pairs. Where calls run ahead of what they launch,
    such windows hold too little or too much: then all of the traffic between members counts, less what is known to be
    sent directly.
    ``slack_ns``: how far clocks may be off, a NIC each.
    """
    found: dict[Kind, Inference] = {}
    wanted: dict[int, list[Kind]] = {}
    for kind in calls.kinds[1]:
        if kind.op not in DIRECT and kind not in known:
            wanted.setdefault(kind.rank, []).append(kind)
    for sender, kinds in wanted.items():
        low, high = np.searchsorted(bursts.source, [sender, sender + 1])
        reached = set(bursts.destination[low:high].tolist())
        peers = {
            kind: [rank for rank in members.get(kind.communicator, ()) if rank != rank_of(sender)] for kind in kinds
        }
        sent_to = {kind: ranks for kind, ranks in peers.items() if not reached.isdisjoint(ranks)}
        if sent_to:
            found |= _Sending.of(calls, sender, bursts, int(slack_ns[nic_of(sender)])).inferred(sent_to)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Sending:
    """One sender's calls in order of launch, and its bursts. ``kind`` numbers ``kinds``, what the calls share an
    algorithm with; ``begins``: where runs of calls of one kind begin; ``window``: the run that each burst falls into.
    """

    calls: Calls
    kind: Ints
    kinds: list[Kind]
    begins: Ints
    window: Ints
    destination: Ints
    size: Ints

    @classmethod
    def of(cls, calls: Calls, sender: int, bursts: Bursts, slack_ns: int) -> _Sending:
        own = np.flatnonzero(calls.source == sender)
        calls = calls.take(own[np.argsort(calls.launch_ns[own], kind="stable")])
        kind, kinds = calls.kinds
        begins = np.flatnonzero(np.diff(kind, prepend=-1) != 0)
        low, high = np.searchsorted(bursts.source, [sender, sender + 1])
        window = np.searchsorted(calls.launch_ns[begins], bursts.start_ns[low:high] + slack_ns, side="right") - 1
        return cls(calls, kind, kinds, begins, window, bursts.destination[low:high], bursts.size[low:high])

    def inferred(self, peers: Mapping[Kind, Sequence[int]]) -> dict[Kind, Inference]:
        """The algorithms of some kinds of calls, among the sender and its ``peers``, as far as they show."""
        found = {}
        for kind, ranks in peers.items():
            about = kind.op, kind.payload, len(ranks) + 1
            inference = infer(*about, self.after_runs(kind, ranks)) or infer(*about, self.in_all(kind, ranks))
            if inference is not None:
                found[kind] = inference
        return found

    def after_runs(self, kind: Kind, peers: Sequence[int]) -> dict[int, float]:
        """Bytes that one call usually sends to each peer; nothing where most runs are followed by none.

        A run is of collectives of the communicator, whatever their kinds: without a silence between them bursts hold
        several. A call's part is in proportion of what rings carry.
        """
        in_ring = np.array([self._in_a_ring(one, kind, len(peers) + 1) for one in self.kinds])
        of_kind = self.kind[self.begins]
        own = in_ring[of_kind] > 0
        run = np.where(own, np.cumsum(own & ~np.append(False, own[:-1])) - 1, UNKNOWN)
        whole = np.bincount(run[own], weights=np.add.reduceat(in_ring[self.kind], self.begins)[own])
        runs = np.unique(run[own & (of_kind == self.kinds.index(kind))])
        of_burst = np.where(self.window >= 0, run[self.window], UNKNOWN)
        sent = {}
        for peer in peers:
            seen = (self.destination == peer) & (of_burst != UNKNOWN)
            each = np.bincount(of_burst[seen], weights=self.size[seen], minlength=len(whole))[runs] / whole[runs]
            if 2 * np.count_nonzero(each) >= len(each):
                sent[peer] = float(np.median(each[each > 0])) * self._in_a_ring(kind, kind, len(peers) + 1)
        return sent

    def in_all(self, kind: Kind, peers: Sequence[int]) -> dict[int, float]:
        """What goes to each peer in all, less what is sent directly, in the kind's proportion of what rings carry."""
        size = len(peers) + 1
        in_rings = [self._in_a_ring(one, kind, size) for one in self.kinds]
        rings = sum(each * calls for each, calls in zip(in_rings, np.bincount(self.kind).tolist(), strict=True))
        sends = self.calls.is_op("send") & (self.calls.peer >= 0)
        direct = np.bincount(self.calls.peer[sends], weights=self.calls.payload[sends], minlength=max(peers) + 1)
        share = self._in_a_ring(kind, kind, size) / max(rings, 1)
        volume = {peer: float(self.size[self.destination == peer].sum() - direct[peer]) for peer in peers}
        return {peer: sent * share for peer, sent in volume.items() if sent > 0}

    @staticmethod
    def _in_a_ring(one: Kind, kind: Kind, size: int) -> int:
        """What a call of one kind sends around a ring of the communicator of another, which has ``size`` members."""
        apart = one.communicator != kind.communicator or one.op in DIRECT
        return 0 if apart else ring_bytes(one.op, one.payload, size)


def _alike(calls: Calls) -> list[tuple[Ints, Kind]]:
    """Rows of the collectives of the same kind and root."""
    code, kinds = calls.kinds
    collective = np.array([kind.op not in POINT_TO_POINT for kind in kinds], dtype=np.bool_)
    rows = np.flatnonzero(collective[code])
    if not len(rows):
        return []
    same = joint_codes(code[rows], calls.root[rows])
    order = np.argsort(same, kind="stable")
    groups = np.split(rows[order], np.flatnonzero(np.diff(same[order])) + 1)
    return [(group, kinds[code[group[0]]]) for group in groups]


def _each_peer(
    kind: Kind, root: int, members: Mapping[str, Sequence[int]], inferred: Mapping[Kind, Inference]
) -> dict[int, int]:
    ranks, rank = members.get(kind.communicator, ()), rank_of(kind.rank)
    if kind.op == "all_to_all":
        return dict.fromkeys((peer for peer in ranks if peer != rank), kind.payload)
    inference = inferred.get(kind)
    if inference is None or len(ranks) < 2:  # members may have been taken back since
        return {}
    return inference.expected(kind.op, kind.payload, len(ranks), rank, root if root >= 0 else None)
