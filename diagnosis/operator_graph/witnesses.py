"""What most ranks lose alike in an iteration, which is nobody's fault."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from diagnosis.job import Layout
from diagnosis.robust import of_most

LEAST_WITNESSES = 2
"""Fewer ranks than this do not show what is common."""


@dataclass(frozen=True, slots=True)
class Transferred:
    """What a rank transferred beyond the usual, in ns: on channels within its host, and across hosts."""

    within: float
    across: float


@dataclass
class Witnesses:
    """What each rank whose log was read computed and transferred beyond the usual over the iteration, in ns."""

    compute: dict[int, float] = field(default_factory=dict)
    transfer: dict[int, Transferred] = field(default_factory=dict)

    def computed(self, rank: int) -> float:
        """What three in four of the other ranks computed longer than usual: longer sequences slow every GPU."""
        return _in_common([amount for other, amount in self.compute.items() if other != rank])

    def transferred(self, members: Collection[int], *, within: bool) -> float:
        """What three in four of the ranks that are no members transferred longer than usual over the same medium.

        A congested fabric slows every transfer across hosts; what all lose there is no part of what NVLinks lose. The
        members of the channel in question are no witnesses: they share its transfers. Few others tell nothing.
        """
        others = [seen for rank, seen in self.transfer.items() if rank not in members]
        return _in_common([seen.within if within else seen.across for seen in others])

    def common_to_replica(self, layout: Layout | None, members: Collection[int]) -> float:
        """What three in four of the ranks transferred longer than usual on the other stages of the members' replica.

        Without ends what is computed until the next call counts as a tensor group's transfers, and sequences that are
        longer in one replica slow all of its stages, and no other's.
        """
        if layout is None:
            return 0.0
        replicas = {layout.replica(rank) for rank in members}
        stages = {layout.pipeline_stage(rank) for rank in members}
        if len(replicas) > 1 or None in replicas:
            return 0.0
        return _in_common(
            [
                seen.within + seen.across
                for rank, seen in self.transfer.items()
                if layout.replica(rank) in replicas and layout.pipeline_stage(rank) not in stages
            ]
        )


def _in_common(amounts: Sequence[float]) -> float:
    """What most of the amounts (ns) reach; 0 where they are few, or it is less than nothing."""
    return max(0.0, of_most(amounts)) if len(amounts) >= LEAST_WITNESSES else 0.0
