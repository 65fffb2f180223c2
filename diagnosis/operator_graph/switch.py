"""One switch instead of several NICs below it (a step beyond Holmes 4.3.2).

Devices that share nothing do not become slow in the same iteration. Where a search finds several slow channels without
a common NIC, and all of them lead over one ToR and no other, it is at fault rather than all that it serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from diagnosis.job import Job
from diagnosis.operator_graph.culprit import NETWORK, Culprit
from diagnosis.topology import Device


def behind_one_switch(job: Job, culprits: Sequence[Culprit]) -> list[Culprit]:
    """The culprits, of which those behind one switch are named as it: with all ranks below."""
    over = [culprit for culprit in culprits if culprit.cause == NETWORK and _of_kind(culprit, "nic")]
    nics = [nic for culprit in over for nic in _of_kind(culprit, "nic")]
    tors = {tor for culprit in over for tor in _of_kind(culprit, "tor")}
    if len(over) < 2 or len(set(nics)) < len(nics) or len(tors) != 1:
        return list(culprits)
    [tor] = tors
    largest = max(over, key=lambda culprit: culprit.excess_ns)
    switch = replace(largest, level="device", ranks=job.ranks_below(tor.device), candidates=(), devices=(tor,))
    return [switch, *(culprit for culprit in culprits if culprit not in over)]


def _of_kind(culprit: Culprit, kind: str) -> list[Device]:
    return [device for device in culprit.devices if device.kind == kind]
