"""What calls have to send to whom: the expected volume of each operator, peer by peer (Pulse 5.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diagnosis.columns import joint_codes
from diagnosis.traffic.algorithm import Inference, infer
from diagnosis.traffic.bursts import Bursts
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Bools, Ints
from diagnosis.traffic.volume import POINT_TO_POINT, ring_bytes


class Kind(NamedTuple):
    """Calls that run on the same algorithm: the library chooses it by operator and size."""

    rank: int
    communicator: str
    op: str
    payload: int


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """What one rank sends another for one call; arrays of shape (n,), sorted by source, destination and call.

    ``call``: row of its call. ``expected``: bytes, a lower bound of what a NIC counts.
    """

    call: Ints
    source: Ints
    destination: Ints
    expected: Ints
    launch_ns: Ints

    def __len__(self) -> int:
        return len(self.call)

    @classmethod
    def of(cls, calls: Calls, call: Ints, destination: Ints, expected: Ints) -> Transfers:
        """Build from rows of calls with a peer each."""
        source, launch = calls.rank[call], calls.launch_ns[call]
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
    rest = np.flatnonzero(~calls.point_to_point)
    for rows in _alike(calls, rest):
        first = int(rows[0])
        each = _each_peer(calls, first, members, inferred)
        call.append(np.repeat(rows, len(each)))
        peer.append(np.tile(np.array(list(each), dtype=np.int64), len(rows)))
        expected.append(np.tile(np.array(list(each.values()), dtype=np.int64), len(rows)))
    of_call, destination, size = np.concatenate(call), np.concatenate(peer), np.concatenate(expected)
    kept = (size > 0) & (destination >= 0) & (destination != calls.rank[of_call])
    return Transfers.of(calls, of_call[kept], destination[kept], size[kept])


def infer_algorithms(
    calls: Calls, members: Mapping[str, Sequence[int]], bursts: Bursts, slack_ns: int
) -> dict[Kind, Inference]:
    """The algorithm of each kind of collective calls, told by what its ranks sent after calling.

    What bursts bring to each member from one call of a kind until the rank's next call of another kind counts; the
    median stands against other traffic on the same queue pairs. Where calls run ahead of what they launch, such
    windows hold too little or too much: then all of the traffic between members counts, less what is known to be sent
    directly.
    ``slack_ns``: how far clocks may be off.
    """
    found: dict[Kind, Inference] = {}
    for rank in np.unique(calls.rank).tolist():
        sending = _Sending.of(calls, rank, bursts, slack_ns)
        for code in np.unique(sending.kind[sending.begins]).tolist():
            kind = kind_of(calls, sending.example(code))
            if kind.op in {*POINT_TO_POINT, "all_to_all"}:
                continue
            ranks = [peer for peer in members.get(kind.communicator, ()) if peer != rank]
            about = kind.op, kind.payload, len(ranks) + 1
            inference = infer(*about, sending.after_calls(code, ranks)) or infer(*about, sending.in_all(kind, ranks))
            if inference is not None:
                found[kind] = inference
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Sending:
    """One rank's calls in order of launch, and its bursts. ``kind`` numbers what the calls share an algorithm with;
    ``begins``: where runs of calls of one kind begin; ``window``: the run that each burst falls into."""

    calls: Calls
    kind: Ints
    begins: Ints
    window: Ints
    destination: Ints
    size: Ints

    @classmethod
    def of(cls, calls: Calls, rank: int, bursts: Bursts, slack_ns: int) -> _Sending:
        own = np.flatnonzero(calls.rank == rank)
        calls = calls.take(own[np.argsort(calls.launch_ns[own], kind="stable")])
        kind = joint_codes(calls.communicator, calls.op, calls.payload)
        begins = np.flatnonzero(np.diff(kind, prepend=-1) != 0)
        low, high = np.searchsorted(bursts.source, [rank, rank + 1])
        window = np.searchsorted(calls.launch_ns[begins], bursts.start_ns[low:high] + slack_ns, side="right") - 1
        return cls(calls, kind, begins, window, bursts.destination[low:high], bursts.size[low:high])

    def example(self, kind: int) -> int:
        return int(np.argmax(self.kind == kind))

    def after_calls(self, kind: int, peers: Sequence[int]) -> dict[int, float]:
        """Bytes that one call usually sends to each peer; nothing where most runs are followed by none."""
        runs = np.flatnonzero(self.kind[self.begins] == kind)
        repeats = np.diff(np.append(self.begins, len(self.kind)))[runs]
        sent = {}
        for peer in peers:
            own = (self.destination == peer) & (self.window >= 0)
            each = np.bincount(self.window[own], weights=self.size[own], minlength=len(self.begins))[runs] / repeats
            if 2 * np.count_nonzero(each) >= len(each):
                sent[peer] = float(np.median(each[each > 0]))
        return sent

    def in_all(self, kind: Kind, peers: Sequence[int]) -> dict[int, float]:
        """What goes to each peer in all, less what is sent directly, in the kind's proportion of what rings carry."""
        collective = np.flatnonzero(self.calls.communicator == self.calls.communicators.index(kind.communicator))
        kinds = [kind_of(self.calls, row) for row in collective.tolist()]
        rings = sum(_in_a_ring(one, len(peers) + 1) for one in kinds)
        sends = self.calls.is_op("send")
        direct = np.bincount(self.calls.peer[sends], weights=self.calls.payload[sends], minlength=max(peers) + 1)
        share = _in_a_ring(kind, len(peers) + 1) / max(rings, 1)
        volume = {peer: float(self.size[self.destination == peer].sum() - direct[peer]) for peer in peers}
        return {peer: sent * share for peer, sent in volume.items() if sent > 0}


def _in_a_ring(kind: Kind, size: int) -> int:
    return 0 if kind.op in {*POINT_TO_POINT, "all_to_all"} else ring_bytes(kind.op, kind.payload, size)


def kind_of(calls: Calls, row: int) -> Kind:
    """What a call shares its algorithm with."""
    return Kind(
        int(calls.rank[row]),
        calls.communicators[calls.communicator[row]],
        calls.ops[calls.op[row]],
        int(calls.payload[row]),
    )


def _alike(calls: Calls, rows: Ints) -> list[Ints]:
    """Rows of the same rank, communicator, operator, size and root."""
    if not len(rows):
        return []
    columns = (calls.rank, calls.communicator, calls.op, calls.payload, calls.root)
    code = joint_codes(*(column[rows] for column in columns))
    order = np.argsort(code, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(code[order])) + 1)


def _each_peer(
    calls: Calls, row: int, members: Mapping[str, Sequence[int]], inferred: Mapping[Kind, Inference]
) -> dict[int, int]:
    kind = kind_of(calls, row)
    ranks = members.get(kind.communicator, ())
    if kind.op == "all_to_all":
        return dict.fromkeys((peer for peer in ranks if peer != kind.rank), kind.payload)
    inference = inferred.get(kind)
    if inference is None:
        return {}
    root = int(calls.root[row])
    return inference.expected(kind.op, kind.payload, len(ranks), kind.rank, root if root >= 0 else None)
