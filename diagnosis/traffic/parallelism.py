"""Which parallelism a communicator serves, told by what is called on it (Pulse 5.2, figure 5).

Collectives serve data or tensor parallelism, sends serve pipelines or experts. Gradients are synchronised in few large
operators an iteration, activations at every layer; what is small gathers losses and the like and serves none. Sends
that go to one neighbour after the other are a pipeline's, a mesh of them is the experts'.

The tree has no leaf for context parallelism: rings of sends that all begin together, and a second family of
collectives at every layer, are ``unknown``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Ints

Parallelism = Literal["dp", "tp", "pp", "ep", "none", "unknown"]


@dataclass(frozen=True, slots=True)
class ParallelismRules:
    """``small_bytes``: collectives with less serve no parallelism. ``layer_calls``: calls of one size, an iteration and
    rank, from which on they are made at every layer. ``mesh``: share of the other members that a group of sends has to
    reach to be part of a full mesh, since experts that nobody chooses get none.
    """

    small_bytes: int = 1 << 20
    layer_calls: float = 8.0
    mesh: float = 0.7


@dataclass(frozen=True, slots=True)
class Sends:
    """Sends and receives of one rank on one communicator, group by group.

    ``begins``: the first group sends and receives nothing. ``first_peer``: whom the first send goes to.
    ``reach``: mean number of other ranks that a group with sends sends to. ``mutual``: every group that sends also
    receives. ``uneven``: sizes differ, or something is sent to the rank itself, as in an all-to-all of tokens.
    """

    begins: bool
    first_peer: int
    reach: float
    mutual: bool
    uneven: bool


@dataclass(frozen=True, slots=True)
class Use:
    """What is called on one communicator: ``repeated`` calls of the commonest size that is not small, an iteration and
    rank (0: all are small); ``exchanges``: whether all-to-alls are called; ``sends`` of each rank seen."""

    communicator: str
    members: tuple[int, ...]
    one_host: bool
    repeated: float
    collective: bool
    exchanges: bool
    sends: Mapping[int, Sends]


def identify(
    calls: Calls,
    members: Mapping[str, Sequence[int]],
    same_host: Callable[[int, int], bool],
    iterations: int = 1,
    rules: ParallelismRules | None = None,
) -> dict[str, Parallelism]:
    """What each communicator serves.

    ``calls`` are those of all its ranks, in ``iterations`` iterations. ``members``: ranks of each communicator.
    """
    rules = rules or ParallelismRules()
    uses = [_use(calls, code, members, same_host, iterations, rules) for code in np.unique(calls.communicator).tolist()]
    most: dict[int, float] = {}
    for use in uses:
        if use.repeated >= rules.layer_calls:
            for rank in use.members:
                most[rank] = max(most.get(rank, 0.0), use.repeated)
    return {use.communicator: _leaf(use, most, rules) for use in uses}


def pipeline(calls: Calls, communicator: str, members: Sequence[int]) -> tuple[int, ...] | None:
    """The members in order of stages; None if their sends are no sequence.

    The first stage alone begins with a send. Each one's first send goes to the next stage, but for that of the last,
    which goes back.
    """
    code = calls.communicators.index(communicator)
    sends = {rank: own for rank in members if (own := _sends(calls, code, rank)) is not None}
    return _sequence(sends, members)


def _leaf(use: Use, most: Mapping[int, float], rules: ParallelismRules) -> Parallelism:
    """The decision tree of figure 5."""
    if use.exchanges:
        return "ep"
    if use.sends:
        if _sequence(use.sends, use.members) is not None:
            return "pp"
        return "ep" if _mesh(use, rules) else "unknown"
    if not use.collective or use.repeated == 0:
        return "none"
    if use.repeated < rules.layer_calls:
        return "dp"
    if use.repeated >= max(most[rank] for rank in use.members):
        return "tp" if use.one_host or len(set(most.values())) > 1 else "dp"
    return "unknown"


def _mesh(use: Use, rules: ParallelismRules) -> bool:
    others = len(use.members) - 1
    reached = all(own.mutual and own.reach >= rules.mesh * others for own in use.sends.values())
    # between two ranks a ring reaches all others as well
    return reached and (others > 1 or any(own.uneven for own in use.sends.values()))


def _sequence(sends: Mapping[int, Sends], members: Sequence[int]) -> tuple[int, ...] | None:
    first = [rank for rank, own in sends.items() if own.begins]
    if len(first) != 1 or set(sends) != set(members) or any(own.reach > 1 for own in sends.values()):
        return None
    order = [first[0]]
    while (following := sends[order[-1]].first_peer) not in order and following in sends:
        order.append(following)
    return tuple(order) if len(order) == len(members) else None


def _use(
    calls: Calls,
    code: int,
    members: Mapping[str, Sequence[int]],
    same_host: Callable[[int, int], bool],
    iterations: int,
    rules: ParallelismRules,
) -> Use:
    name = calls.communicators[code]
    ranks = tuple(members.get(name, ()))
    own = (calls.communicator == code) & ~calls.point_to_point
    large = own & (calls.payload >= rules.small_bytes)
    seen = max(len(np.unique(calls.rank[own])), 1)
    _, counts = np.unique(calls.payload[large], return_counts=True)
    sends = {rank: told for rank in ranks if (told := _sends(calls, code, rank)) is not None}
    return Use(
        communicator=name,
        members=ranks,
        one_host=all(same_host(ranks[0], rank) for rank in ranks[1:]),
        repeated=float(counts.max(initial=0)) / seen / max(iterations, 1),
        collective=bool(own.any()),
        exchanges=bool((own & calls.is_op("all_to_all")).any()),
        sends=sends,
    )


def _sends(calls: Calls, code: int, rank: int) -> Sends | None:
    """What one rank sends and receives; None where it does neither."""
    rows = np.flatnonzero((calls.communicator == code) & (calls.rank == rank) & calls.point_to_point)
    sending = calls.is_op("send")[rows]
    if not sending.any():
        return None
    unit, peer = calls.unit[rows], calls.peer[rows]
    sends, receives = unit[sending], unit[~sending]
    to_others = sending & (peer != rank)
    first = rows[np.argmax(to_others)]
    return Sends(
        begins=bool(sending[0]) and not bool((receives == unit[0]).any()),
        first_peer=int(calls.peer[first]),
        reach=_reach(unit[to_others], peer[to_others]),
        mutual=bool(np.isin(np.unique(sends), receives).all()),
        uneven=bool((peer == rank).any()) or len(np.unique(calls.payload[rows][to_others])) > 2,
    )


def _reach(unit: Ints, peer: Ints) -> float:
    if not len(unit):
        return 0.0
    pairs = np.unique(np.stack((unit, peer)), axis=1)
    return int(pairs.shape[1]) / len(np.unique(unit))
