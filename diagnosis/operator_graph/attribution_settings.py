"""Settings of the walk that follows amounts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """``material_share`` of the iteration's excess makes a loss a cause, ``follow_share`` a wait worth following (a
    rank can await one and the same delay of several others). ``sigmas`` makes a loss no chance; ``follow_sigmas`` are
    enough to follow a wait, which accuses nobody: a group's waits scatter with the noise of all of its members.

    ``most_ranks`` bounds a walk, and so do ``most_channels`` slow ones that share no member: what is slow is above
    them, and more of them say nothing new. Of a communicator's operators at most ``most_operators`` are looked at on
    its other members, and stand for the rest; ``explained_share`` of a delay must be found in the iteration itself,
    else the walk looks into the iteration before. ``straggler_share`` of a queued channel's delay must end with one
    member to be that one's; operators with less than ``straggler_least`` of its longest one are left out.
    """

    material_share: float = 0.25
    follow_share: float = 0.15
    sigmas: float = 3.0
    follow_sigmas: float = 1.0
    explained_share: float = 0.5
    most_ranks: int = field(default=64, metadata={"least": 1})
    most_channels: int = field(default=6, metadata={"least": 1})
    most_operators: int = field(default=256, metadata={"least": 1})
    straggler_share: float = 0.75
    straggler_least: float = 0.1
