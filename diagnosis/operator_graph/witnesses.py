"""What most ranks lose alike in an iteration, which is nobody's fault."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from diagnosis.job import Layout
from diagnosis.robust import of_most

LEAST_WITNESSES = 2
"""Fewer ranks than this do not show what is common."""


@dataclass
class Witnesses:
    """What each rank whose log was read computed and transferred beyond the usual over the iteration, in ns."""

    compute: dict[int, float] = field(default_factory=dict)
    transfer: dict[int, float] = field(default_factory=dict)

    def common(self, kind: Literal["compute", "transfer"], members: Collection[int]) -> float:
        """What three in four of the ranks that are no members computed or transferred longer than usual.

        Longer sequences slow every GPU's compute, a congested fabric or a busy host every transfer. The members of
        the channel in question are no witnesses: they share its transfers. Few others tell nothing.
        """
        known = self.compute if kind == "compute" else self.transfer
        return _in_common([amount for rank, amount in known.items() if rank not in members])

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
                amount
                for rank, amount in self.transfer.items()
                if layout.replica(rank) in replicas and layout.pipeline_stage(rank) not in stages
            ]
        )


def _in_common(amounts: Sequence[float]) -> float:
    """What most of the amounts (ns) reach; 0 where they are few, or it is less than nothing."""
    return max(0.0, of_most(amounts)) if len(amounts) >= LEAST_WITNESSES else 0.0
