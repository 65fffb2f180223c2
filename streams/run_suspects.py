"""Whom the searches of a run named so far: where they name somebody new, the next iteration is searched as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from diagnosis.operator_graph.culprits import Culprit

_STRONG = 0.5
"""Part of the strongest culprit's share from which on another one counts."""


@dataclass
class RunSuspects:
    """Ranks and devices that were named in the run that began with iteration ``run``; ``has_new``: the last search
    named somebody of whom no search before it had named anything. One finding opens no incident, and in a run that has
    lasted for a while the next search may be 16 iterations away.
    """

    run: int | None = None
    named: set[int | str] = field(default_factory=set)
    has_new: bool = False

    def found(self, run: int | None, culprits: Sequence[Culprit]) -> None:
        """Take in what a search of an iteration of a run found."""
        if run != self.run:
            self.run, self.named = run, set()
        least = _STRONG * max((culprit.share for culprit in culprits), default=0.0)
        strong = [_names(culprit) for culprit in culprits if culprit.share >= least]
        self.has_new = bool(self.named) and any(self.named.isdisjoint(names) for names in strong)
        self.named.update(*strong)


def _names(culprit: Culprit) -> set[int | str]:
    return {*culprit.ranks, *(device.device for device in culprit.devices)}
