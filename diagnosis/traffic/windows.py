"""What is kept of one NIC while its telemetry comes in (Pulse 3.2).

Of the past only what open operators need, so the paper's "most recent iterations" are what is open, not a number of
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.calls import Kind
from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.segmentation import SegmentationRules
from diagnosis.traffic.series import EpochSeries
from diagnosis.traffic.ways import Way


@dataclass(frozen=True, slots=True)
class WindowRules:
    """When an operator is told, and how long one that is not complete is waited for (Pulse 3.2)."""

    unknown_ns: int = 2_000_000_000
    """Silence, in nanoseconds, after which an operator that telemetry has lost is not waited for any longer."""
    overdue_ns: int = 1_000_000_000
    """Silence, in nanoseconds, after which an operator is told while it is open, as it stands; it is over by then if
    its rank has completed a later one, or if it has sent all it had to by an algorithm that nothing else confirms."""
    give_up_ns: int = 600_000_000_000
    """Silence, in nanoseconds, after which any other operator that is still open is closed as it stands."""
    infer_ns: int = 5_000_000_000
    """How long calls of collectives whose algorithm does not show yet are kept, in nanoseconds since the first of their
    kind."""
    sure: float = 0.9
    """Confidence, from 0 to 1, from which on an algorithm that was inferred counts as known for later calls of its
    kind."""
    segmentation: SegmentationRules = field(default_factory=SegmentationRules)

    def settled_ns(self, epoch_ns: int) -> int:
        """Silence after which nothing that comes belongs to an operator that has sent all it had to."""
        return self.segmentation.tail_ns + self.segmentation.delta(epoch_ns)


@dataclass
class NicWindow:
    """What is open on one NIC.

    Of what was told, all since ``from_ns`` is kept (host's clock); ``told``: rank and id of calls among it that were
    told and are context, shape (n, 2). ``inferred``: algorithms that count as known; ``first_called``: when a kind that
    has none was first called. ``mapped`` and ``unmapped``: ways, by rank, all of whose queue pairs are known, or none.
    """

    nic: str
    rules: WindowRules
    polls: list[Poll] = field(default_factory=list)
    from_ns: int = 0
    told: Ints = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    inferred: dict[Kind, Inference] = field(default_factory=dict)
    first_called: dict[Kind, int] = field(default_factory=dict)
    mapped: set[Way] = field(default_factory=set)
    unmapped: set[Way] = field(default_factory=set)

    def series(self, until_ns: int) -> EpochSeries | None:
        """What telemetry tells up to a time; None: nothing that could be anybody's.

        What it told of later times does not count, so that the answer hangs on the time alone. Nor does what an agent
        told in other epochs or units before it began anew, nor a port as a whole where queue pairs are told as well.
        """
        polls = [poll for poll in self.polls if poll.qpn is not None and host_ns(poll, poll.from_ns) < until_ns]
        if not polls:
            return None
        scale = max(polls, key=lambda poll: poll.from_ns).scale
        return EpochSeries.join([poll for poll in polls if poll.scale == scale], (self.from_ns, until_ns))

    def remapped(self, source: int, destination: int) -> None:
        """Forget what is known of queue pairs between two ranks: there are others."""
        for ways in (self.mapped, self.unmapped):
            ways -= {way for way in ways if (way.sender, way.destination) == (source, destination)}

    def forget(self, before_ns: int) -> None:
        """Let go of what lies before a time."""
        self.from_ns = max(self.from_ns, before_ns)
        self.polls = [poll for poll in self.polls if host_ns(poll, poll.to_ns) > self.from_ns]

    def to_state(self) -> dict[str, Any]:
        """All but the polls, in a form that JSON can carry."""
        return {
            "from_ns": self.from_ns,
            "told": self.told.tolist(),
            "inferred": [
                [*kind, one.algorithm, one.trees, one.confidence, list(one.shares.items())]
                for kind, one in self.inferred.items()
            ],
            "first_called": [[*kind, at] for kind, at in self.first_called.items()],
            "mapped": sorted(self.mapped),
            "unmapped": sorted(self.unmapped),
        }

    @classmethod
    def from_state(cls, nic: str, rules: WindowRules, state: Mapping[str, Any]) -> NicWindow:
        """The window that ``to_state`` described; its polls come again."""
        return cls(
            nic,
            rules,
            from_ns=state["from_ns"],
            told=np.array(state["told"], dtype=np.int64).reshape(-1, 2),
            inferred={Kind(*row[:4]): Inference(row[4], row[5], row[6], dict(row[7])) for row in state["inferred"]},
            first_called={Kind(*row[:4]): row[4] for row in state["first_called"]},
            mapped={Way(*row) for row in state["mapped"]},
            unmapped={Way(*row) for row in state["unmapped"]},
        )


def host_ns(poll: Poll, at_ns: int) -> int:
    """A time of a poll by the host's clock, as far as the poll knows it."""
    return at_ns + (poll.host_minus_nic_ns or 0)
