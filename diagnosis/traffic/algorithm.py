"""Which algorithm a collective runs, told by the peers that a rank sends to (Pulse 5.1).

Around a ring a rank sends to its successor, along a tree to its parent and children. The paper looks at who the peers
are; here how much goes to each of them decides as well, since a ring may run in several orders at once, a rank may
have one neighbour in a tree, and the rank before it in a ring gets small messages too, of which only a floor of volume
tells that they are no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Floats
from diagnosis.traffic.volume import (
    LARGE_BYTES,
    POINT_TO_POINT,
    TREE_OPS,
    Algorithm,
    ends_chain,
    ring_bytes,
    tree_bytes,
)

MOST_TREES = 2
"""The library builds at most two trees, in which a rank that is inside one is a leaf of the other."""


@dataclass(frozen=True, slots=True)
class InferenceRules:
    """``peer_floor``: a peer is active from that share of the largest one's bytes on. ``inflation``: usual deviation of
    the volume above what is expected, as a logarithm (headers 0.02, LL128 0.07, LL 0.7), of payloads from
    ``large_bytes`` on ``large_inflation``, as LL is for small ones; ``shortfall``: below it, which is next to
    impossible. ``implausible``: logarithm of a likelihood below which it was something else that was seen.
    ``unevenness``: deviation between peers. ``second_successor``: how likely rings in different orders are, per
    successor beyond the first. ``tree_neighbours``: parent and children of one tree. ``least`` and ``most``: volume
    over what is expected, beyond which it is not that of the operators looked at.
    """

    peer_floor: float = 0.1
    inflation: float = 0.15
    large_inflation: float = 0.03
    large_bytes: int = LARGE_BYTES
    implausible: float = -12.5
    shortfall: float = 0.02
    unevenness: float = 0.1
    second_successor: float = 0.1
    tree_neighbours: int = 3
    least: float = 0.9
    most: float = 2.5


@dataclass(frozen=True, slots=True)
class Inference:
    """What a rank's collectives of one communicator run on.

    ``shares``: part of what the algorithm's rank sends around the ring, or along one edge of one tree, that goes to
    each peer: 1.0 for a ring's only successor, 2.0 for a neighbour in both trees. ``confidence`` is 0 to 1.
    """

    algorithm: Algorithm
    trees: int
    confidence: float
    shares: Mapping[int, float]

    def expected(
        self, op: str, payload: int, size: int, rank: int | None = None, root: int | None = None
    ) -> dict[int, int]:
        """Bytes for each peer of an operator with ``payload`` bytes among ``size`` ranks; 0 where it ends a chain."""
        if self.algorithm == "tree" and op in TREE_OPS:
            edge = tree_bytes(op, payload, size, self.trees)
            return {peer: round(edge * share) for peer, share in self.shares.items()}
        whole = ring_bytes(op, payload, size)
        return {
            peer: 0 if rank is not None and ends_chain(op, rank, root, peer) else round(whole * share)
            for peer, share in self.shares.items()
        }


def infer(
    op: str, payload: float, size: int, sent: Mapping[int, float], rules: InferenceRules | None = None
) -> Inference | None:
    """The algorithm of operators of one communicator; None where what is sent tells none.

    ``payload``: mean bytes of an operator as passed; ``sent``: mean bytes an operator to each peer. Operators of a
    training job repeat, so means over a period tell it, and what is found holds for the period.
    """
    rules = rules or InferenceRules()
    active = active_peers(sent, rules.peer_floor)
    if not active or payload <= 0 or size < 2:
        return None
    if op in POINT_TO_POINT or op == "all_to_all":
        return Inference("point_to_point", 0, 1.0, dict.fromkeys(active, 1.0))
    volume = np.array(list(active.values()))
    rated = [_as_ring(op, payload, size, active, volume, rules)]
    if op in TREE_OPS and size > 2:  # two send each other as much either way
        rated += [_as_trees(op, payload, size, active, volume, trees, rules) for trees in range(1, MOST_TREES + 1)]
    scores = np.array([score for score, *_ in rated])
    likelihood = np.exp(scores - scores.max())
    best = int(np.argmax(likelihood))
    algorithm = rated[best][1].algorithm
    # where nothing is to be told apart, calls that have not ended yet may be among those that were looked at
    least = rules.least if len(rated) > 1 else rules.least / 3
    if not least <= rated[best][2] <= rules.most or (len(rated) > 1 and scores[best] < rules.implausible):
        return None
    # one tree or two is no other algorithm
    agreeing = sum(float(likelihood[i]) for i, (_, one, _) in enumerate(rated) if one.algorithm == algorithm)
    return Inference(algorithm, rated[best][1].trees, agreeing / float(likelihood.sum()), rated[best][1].shares)


def active_peers(sent: Mapping[int, float], floor: float) -> dict[int, float]:
    """The peers that get more than small messages, with what they get."""
    most = max(sent.values(), default=0.0)
    return {peer: volume for peer, volume in sorted(sent.items()) if volume > 0 and volume >= floor * most}


Rated = tuple[float, Inference, float]
"""A logarithm of a likelihood, what it is the likelihood of, and the volume over what is expected by it."""


def _as_ring(
    op: str, payload: float, size: int, active: Mapping[int, float], volume: Floats, rules: InferenceRules
) -> Rated:
    whole = max(ring_bytes(op, round(payload), size), 1)
    shares = volume / volume.sum()
    inflation = float(volume.sum()) / whole
    score = _inflated(inflation, payload, rules) + (len(active) - 1) * float(np.log(rules.second_successor))
    return score, Inference("ring", 0, 0.0, dict(zip(active, shares.tolist(), strict=True))), inflation


def _as_trees(
    op: str,
    payload: float,
    size: int,
    active: Mapping[int, float],
    volume: Floats,
    trees: int,
    rules: InferenceRules,
) -> Rated:
    edge = max(tree_bytes(op, round(payload), size, trees), 1)
    # nearest on a ratio scale: a neighbour in both trees gets both halves
    edges = np.where(volume / edge > 1.5, float(trees), 1.0)
    expected = edges * edge
    inflation = float(volume.sum() / expected.sum())
    uneven = np.log(volume / (expected * inflation))
    score = _inflated(inflation, payload, rules) - 0.5 * float(np.sum((uneven / rules.unevenness) ** 2))
    too_many = int(edges.sum()) - rules.tree_neighbours * trees
    if too_many > 0:
        score += too_many * float(np.log(rules.second_successor))
    if len(active) == 1:
        score += float(np.log(0.5))  # of a tree's ranks about half have one neighbour, of a ring's all
    return score, Inference("tree", trees, 0.0, dict(zip(active, edges.tolist(), strict=True))), inflation


def _inflated(ratio: float, payload: float, rules: InferenceRules) -> float:
    """How likely volume exceeds what is expected by a ratio; what is expected is a lower bound."""
    deviation = float(np.log(ratio))
    above = rules.large_inflation if payload >= rules.large_bytes else rules.inflation
    return -0.5 * (deviation / (above if deviation > 0 else rules.shortfall)) ** 2
