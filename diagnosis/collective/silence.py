"""Which NICs are alive while an operator hangs: one that is down sends nothing, for anyone (a step beyond Pulse).

Storage, checkpoints and other jobs go through the NICs as well, and whoever gets no answer sends again. So a NIC that
has sent anything since its rank's operator should have begun is not down, and of several ends the one whose NIC has
not is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from diagnosis.collective.participation import INCOMPLETE, MISSING_START, UNKNOWN, Participation
from diagnosis.collective.verdict import Verdict

_SETTLED_NS = 100_000_000
"""What is sent for as long after a call may be of the time before the NIC went down."""

_NOT_BY_ITS_NIC = {"missing_start", "own_lateness", "pipeline_order"}
"""Rules whose culprit may be any part of what sends: it is not the NIC if that is alive."""

_LEAST = 2
"""NICs that must be alive for the silence of another to say anything."""


def alive(table: Participation) -> dict[int, bool]:
    """Whether the NIC of each rank whose operators did not end has sent anything since the last of these was called;
    empty if none was seen to.

    Who has no such operator is alive if one of its own ended since the first; else nothing is known of it.
    """
    lacking = np.isin(table.state, (INCOMPLETE, MISSING_START))
    if (table.nic_sent_ns[lacking] == UNKNOWN).all():
        return {}
    calls = table.call_ns[lacking]
    sending = {
        rank: bool(table.nic_sent_ns[lacking & (table.rank == rank)].max() >= calls.max() + _SETTLED_NS)
        for rank in np.unique(table.rank[lacking]).tolist()
    }
    ended = table.rank[table.end_ns >= calls.min() + _SETTLED_NS]
    return dict.fromkeys(np.unique(ended).tolist(), True) | sending


def heard(verdicts: Sequence[Verdict], sending: Mapping[int, bool], ranks: int) -> list[Verdict]:
    """Verdicts on an operator that hangs, beside which NICs of a job of so many ranks are alive (``alive``).

    All wait for the only NIC that is silent: where most are known, or it is of the machine that a verdict names.
    """
    each = [_heard(verdict, sending) for verdict in verdicts]
    down = [only for only in silent_alone(sending) if 2 * len(sending) > ranks or not each]
    by_rule = [v for v in each if v.cause == "hang_hardware" and list(v.ranks) == _silent_alone(sending)]
    return by_rule[:1] or down or each


def _heard(verdict: Verdict, sending: Mapping[int, bool]) -> Verdict:
    """A verdict beside which NICs are alive.

    Of several the only one with a silent NIC is left. Whose NIC is alive did not begin, or get through with a send of a
    pipeline, for another reason: it waits for the only one that is silent, if there is one. A machine whose ranks did
    not begin waits for the NIC of one of them if that alone is silent.
    """
    silent = [rank for rank in verdict.ranks if not sending.get(rank, True)]
    if verdict.cause == "hang_hardware" and len(verdict.ranks) > len(silent) == 1:
        return replace(verdict, level="device", ranks=tuple(silent), candidates=())
    if verdict.cause == "hang_hardware" and verdict.method in _NOT_BY_ITS_NIC:
        if not all(map(sending.get, verdict.ranks)):
            return verdict
        return next(iter(silent_alone(sending)), replace(verdict, cause="hang_not_entered"))
    if verdict.cause == "hang_not_entered" and silent and silent == _silent_alone(sending):
        (down,) = silent_alone(sending)
        return replace(verdict, cause=down.cause, level=down.level) if list(verdict.ranks) == silent else down
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
