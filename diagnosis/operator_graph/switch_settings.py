"""Settings of what tells a slow switch from the NICs below it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """When a ToR or a spine is slow, and not the NICs below it (a step beyond Holmes 4.3.2).

    It is told by channels of other ranks below the suspects' ToR, by those that stay below the ToR, and by those that
    stay on a host, whose NVLinks and CPU serve the slow channel as well.
    """

    most_mates: int = 3
    """Number of ranks of other hosts below the suspects' ToR whose channels are looked at, spread over them."""
    most_communicators: int = 2
    """Number of communicators that are looked at of each of these ranks, the smallest ones."""
    least_hosts: int = field(default=3, metadata={"least": 2})
    """Number of hosts below a ToR, the suspects' own included, that must be heard of, each with slow channels, for the
    ToR to be named."""
    slow_share: float = 0.6
    """Part of all channels looked at below a ToR that must be slow for it to be named; a lower value takes a slow
    spine, which slows some of them, for a ToR. The same part of those traced over a spine, for them to tell of it."""
    least_share: float = 0.1
    """Part of the slow channel's slowdown by which other channels below its ToR must be slowed, each in proportion to
    its usual time, for them to be slow with it (``fine_at_most`` is enough): what waits a little for a slow NIC tells
    of no ToR."""
    least_apart: int = field(default=3, metadata={"least": 1})
    """Number of slow channels over the same spines, no two of which share a NIC, or a ToR that may be slow as well,
    from which on these spines are named. Of a spine that alone may carry all that is slow it is enough that not all of
    these share a ToR."""
    fine_share: float = 0.5
    """Spines are named if most channels that stay below the suspects' own ToRs are fine, and all that stay on a host:
    slowed, chance included, by less than this part of what the slow channel is, each in proportion to its usual
    time. Of channels over spines those slowed by more than this part of it are slow as well."""
    comparable_spines: float = field(default=0.75, metadata={"most": 1})
    """Part of the slow channels that the likeliest spine carries, and of the share of its channels that are slow, that
    another spine must have to be named beside it; a lower value names more of them."""
    least_usual: float = 0.1
    """Part of the usual time of the slow channel that has least to transfer, that another one must usually take for it
    to count as fine: where little passes, a slow switch does not show."""
    fine_at_most: float = 1.0
    """A fine channel takes longer by less than this times its usual time as well, however slow the slow channel is."""
