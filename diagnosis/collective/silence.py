"""Which NICs are alive while an operator hangs: one that is down sends nothing, for anyone (a step beyond Pulse).

Storage, checkpoints and other jobs go through the NICs as well, and whoever gets no answer sends again. So a NIC that
has sent anything since its rank's operator should have begun is not down, and of several ends the one whose NIC has
not is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from diagnosis.collective.participation import INCOMPLETE, MISSING_START, UNKNOWN, Participation
from diagnosis.collective.verdict import Verdict

_SETTLED_NS = 100_000_000
"""What is sent for as long after a call may be of the time before the NIC went down."""

_LEAST = 2
"""NICs that must be alive for the silence of another to say anything."""


def alive(table: Participation) -> dict[int, bool]:
    """Whether the NIC of each rank whose operators did not end has sent anything since; empty if none was seen to.

    Who has no such operator is alive if one of its own ended since; else nothing is known of it.
    """
    lacking = np.isin(table.state, (INCOMPLETE, MISSING_START))
    if (table.nic_sent_ns[lacking] == UNKNOWN).all():
        return {}
    sending = {
        rank: bool(table.nic_sent_ns[own].max() >= table.call_ns[own].min() + _SETTLED_NS)
        for rank in np.unique(table.rank[lacking]).tolist()
        for own in (lacking & (table.rank == rank),)
    }
    ended = table.rank[table.end_ns >= table.call_ns[lacking].min() + _SETTLED_NS]
    return dict.fromkeys(np.unique(ended).tolist(), True) | sending


def heard(verdict: Verdict, sending: Mapping[int, bool]) -> Verdict:
    """A verdict on an operator that hangs, beside which NICs are alive (``alive``).

    Of several the only one with a silent NIC is left. Whose NIC is alive did not begin for another reason: it waits for
    the only one that is silent, if there is one. And who alone is on its host did not begin because of its NIC if no
    other is silent.
    """
    silent = [rank for rank in verdict.ranks if not sending.get(rank, True)]
    if verdict.cause == "hang_hardware" and len(verdict.ranks) > len(silent) == 1:
        return replace(verdict, level="device", ranks=tuple(silent), candidates=())
    if verdict.cause == "hang_hardware" and verdict.method == "missing_start":
        if not all(map(sending.get, verdict.ranks)):
            return verdict
        return next(iter(silent_alone(sending)), replace(verdict, cause="hang_not_entered"))
    if verdict.cause == "hang_not_entered" and list(verdict.ranks) == silent == _silent_alone(sending):
        return replace(verdict, cause="hang_hardware", level="device")
    return verdict


def silent_alone(sending: Mapping[int, bool]) -> list[Verdict]:
    """The answer where operators show nobody: the only NIC that is silent."""
    return [
        Verdict("hang_hardware", "device", (rank,), "silence", evidence={"alive": float(sum(sending.values()))})
        for rank in _silent_alone(sending)
    ]


def _silent_alone(sending: Mapping[int, bool]) -> list[int]:
    silent = [rank for rank, sends in sending.items() if not sends]
    return silent if len(silent) == 1 and len(sending) > _LEAST else []
