"""Settings of the walk that follows amounts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AttributionSettings:
    """What the walk that follows the lost time takes for a cause, and how far it goes (a step beyond Holmes 4.3.2).

    It follows waits of less than makes a cause, since a rank can await one and the same delay of several others.
    """

    material_share: float = 0.25
    """Part of the iteration's excess that a rank's computing, or a channel's transfers, must lose to be a cause; a
    lower value names smaller causes."""
    follow_share: float = 0.15
    """Part of the iteration's excess that a rank must have waited longer than usual for another one, or for the ranks
    of one host together, for the walk to go there; a lower value reads the logs of more ranks."""
    sigmas: float = 3.0
    """Number of standard deviations over the baseline that a loss must exceed to be a cause; a lower value takes more
    chance for one."""
    follow_sigmas: float = 1.0
    """Number of standard deviations that the time lost in the operators of a communicator must exceed for the walk to
    look at its other members; few are enough, since waits scatter with the noise of all members, and looking accuses
    nobody."""
    explained_share: float = 0.5
    """Part of a rank's delay that must be found in the iteration itself; else the walk looks at the iteration before as
    well."""
    most_ranks: int = field(default=64, metadata={"least": 1})
    """Number of ranks whose logs a walk may read; culprits beyond them are missing."""
    most_channels: int = field(default=6, metadata={"least": 1})
    """Number of slow channels without a common member at which the walk stops: what is slow is above them, and more of
    them say nothing new."""
    most_operators: int = field(default=256, metadata={"least": 1})
    """Number of a rank's operators on a communicator that are looked at on the other members, half of them the slowest
    and half spread evenly, to stand for all; where ends are not logged, all are unless there is no room for
    them."""
    straggler_share: float = 0.75
    """Where calls are queued, part of a slow channel's delay that must be in operators after which the same member went
    on last, for that member to be blamed instead of the channel."""
    straggler_least: float = 0.1
    """Operators that lost less than this part of what the slowest one on the channel did are left out of that."""
