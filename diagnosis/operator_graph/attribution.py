"""Delay attribution: the operator-graph search with amounts instead of a yes or no (a step beyond Holmes 4.3.2).

Algorithm 1 asks of each operator whether it is abnormal. Over thousands of operators a few always are, by
chance, and the walk follows them. Here the walk follows time: an iteration lost E; on the rank at hand E is
the sum of what it computed, waited and transferred beyond the usual (``delays``). Computing or transferring a
material share of E is a cause; waiting is somebody else's delay, and the walk goes to the rank that entered last,
back before the moment at which it entered. The amount must also exceed three standard deviations of the
same sum over the baseline, Holmes' simplest detector applied to sums. What most
ranks at hand compute or transfer longer than usual is subtracted: longer sequences are no device's fault.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, field

from diagnosis.operator_graph.attribution_settings import AttributionSettings
from diagnosis.operator_graph.leaf import Leaf, Wait
from diagnosis.operator_graph.ledger import Ledger, Stand
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.witnesses import Witnesses


@dataclass
class Walk:
    """What a walk found: the leaves, who waited for whom, the ranks it stood on, and how far their clocks may be off.

    ``shared`` are channels that are slow as most others are.
    ``bounded``: it stopped at ``most_ranks`` or ``most_channels`` with waits left to follow, so that culprits may be
    missing.
    """

    leaves: list[Leaf] = field(default_factory=list)
    shared: list[Leaf] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    visited: list[int] = field(default_factory=list)
    clock_error_ns: int = 0
    bounded: bool = False


def walk(
    logs: Logs,
    iteration: int,
    baseline: Sequence[int],
    pivots: Sequence[int],
    excess_ns: int,
    settings: AttributionSettings,
) -> Generator[Needs, Answer, Walk]:
    """Follow an iteration's excess from the pivots to where it arose; yields the logs that it needs.

    It goes in waves, as far as each wait leads, so that the logs of a whole wave are asked for at once.
    """
    found, witnesses = Walk(), Witnesses()
    asked: set[int] = set()

    def opened(ranks: Collection[int], names: Collection[str] = ()) -> Ledger:
        whole = ranks if logs.narrow else logs.whole
        part = logs.part(ranks, names)
        return Ledger(part, iteration, baseline, excess_ns, settings, witnesses, whole, logs.stood_for)

    wave = [Stand(rank, None, excess_ns, ()) for rank in pivots]
    while wave:
        seen_wide = _apart(found.leaves) >= settings.most_channels
        room = 0 if seen_wide else settings.most_ranks - len(asked)
        ahead = _largest_by_rank(stand for stand in wave if stand.rank not in asked)
        stands = ahead[:room]
        found.bounded |= len(ahead) > room
        asked.update(stand.rank for stand in stands)
        yield from logs.fetch_whole([stand.rank for stand in stands])
        stands = [stand for stand in stands if stand.rank not in logs.missing]
        found.visited.extend(stand.rank for stand in stands)
        if not stands:
            break
        ranks = [stand.rank for stand in stands]
        ledger = opened(ranks)
        wanted = ledger.unsplit(stands)
        if wanted.ranks:
            yield from logs.fetch_as_room_allows(wanted)
            ledger = opened(ranks, wanted.names)
        ledger.witness()
        found.clock_error_ns = max(found.clock_error_ns, ledger.clock_error_ns(ranks))
        wave = []
        for stand in stands:
            rows = ledger.rows(stand)
            for leaf in ledger.leaves(stand, rows):
                (found.shared if leaf.shared else found.leaves).append(leaf)
            for wait, until in ledger.waits(stand, rows):
                found.waits.append(wait)
                wave.append(Stand(wait.awaited_rank, until, wait.ns, (*stand.path, stand.rank)))
    return found


def _apart(leaves: Iterable[Leaf]) -> int:
    """How many slow channels have no member in common with another one that counts."""
    members: set[int] = set()
    count = 0
    for leaf in leaves:
        if len(leaf.members) > 1 and members.isdisjoint(leaf.members):
            members.update(leaf.members)
            count += 1
    return count


def _largest_by_rank(stands: Iterable[Stand]) -> list[Stand]:
    largest: dict[int, Stand] = {}
    for stand in sorted(stands, key=lambda stand: (-stand.amount, stand.rank)):
        largest.setdefault(stand.rank, stand)
    return list(largest.values())
