"""Whether findings can be about one fault, and whom they are about together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from diagnosis.incidents.evidence import Evidence, Incident, Ranks
from diagnosis.topology import are_switches

_NVLINK = "nvlink"
_EITHER_WAY = ({"mixed_slow", "compute_slow"}, {"mixed_slow", "communication_slow"})


class Agreed(NamedTuple):
    """Whom an incident is about with one more finding, what that changes of it, and what doubt there was of them."""

    ranks: Ranks
    changes: dict[str, Any]
    doubt: float


def compatible(one: Evidence | Incident, other: Evidence | Incident) -> bool:
    """Whether two can be about one fault: the same kind, and one's ranks among the other's. What is slow in both ways
    may show as either.

    Two groups that cannot tell their members apart need only overlap: the culprit is where they do. Groups that the
    same devices carry need not even do that: these are the culprit, as the NVLinks of a host with several groups. So is
    the NIC of several ranks, and so is a switch what the ranks below it share with others. A ToR and spines that the
    same ranks show are one fault of which it is not known where it lies.
    NVLinks and what lies beyond a NIC are no one fault.
    """
    if one.cause != other.cause and {one.cause, other.cause} not in _EITHER_WAY:
        return False
    if one.cause == other.cause and _are_nvlinks_and_wires(one, other):
        return False
    if _of_the_same_devices(one, other):
        return True
    here, there = set(one.ranks), set(other.ranks)
    if (one.candidates and other.candidates) or is_switch(one) != is_switch(other) or _are_tor_and_spines(one, other):
        return bool(here & there)
    return bool(here and there) and (here <= there or there <= here)


def agreeing(finding: Evidence, others: Sequence[Evidence]) -> list[Evidence]:
    """The findings that can all be about one fault with this one, the narrowest first."""
    together, common = [finding], set(finding.ranks)
    known_alike = [known for known in others if known.id != finding.id and compatible(known, finding)]
    for known in sorted(known_alike, key=lambda known: (len(known.ranks), -(known.iteration or 0))):
        if _of_the_same_devices(known, finding):
            together.append(known)
        elif common & set(known.ranks):
            together.append(known)
            common &= set(known.ranks)
    return together


def borne_out(ranks: Ranks, told: Sequence[Evidence], agreement: float) -> bool:
    """Whether findings are about these ranks, or some of them, on at least a part of the iterations that one method has
    ``told`` anything of.
    """
    of_these = set(ranks)
    return _often([known for known in told if of_these.issuperset(known.ranks)], told, agreement)


def _often(some: Sequence[Evidence], told: Sequence[Evidence], agreement: float) -> bool:
    """Whether some findings are on at least a part of the iterations that one method has ``told`` anything of."""
    on: defaultdict[str, set[int]] = defaultdict(set)
    of_some: defaultdict[str, set[int]] = defaultdict(set)
    for known in told:
        on[known.method].add(known.at)
    for known in some:
        of_some[known.method].add(known.at)
    return any(len(of_some[method]) >= agreement * len(iterations) for method, iterations in on.items())


def _takes_over(incident: Incident, finding: Evidence, told: Sequence[Evidence], agreement: float) -> bool:
    """Whether a switch takes over an incident about a NIC below it, or the NIC one about the switch; or a ToR one about
    spines, or these one about a ToR: whichever is found more often.
    """
    if is_switch(incident) and is_switch(finding):
        own, others = ([known for known in told if _carriers(known) == _carriers(of)] for of in (finding, incident))
        return _times(own) > _times(others)
    nic, switch = (incident, finding) if is_switch(finding) else (finding, incident)
    by_itself = [known for known in told if known.ranks == nic.ranks and not is_switch(known)]
    others = [known for known in told if known.ranks != nic.ranks]
    if switch is incident:
        return are_spines(switch) and nic.level == "device" and _times(by_itself) > _times(others)
    often = _often([known for known in told if is_switch(known)], told, agreement)
    return often and not (are_spines(switch) and _times(by_itself) >= _times(others))


def are_spines(known: Evidence | Incident) -> bool:
    """Whether it is about spines alone."""
    return {device.kind for device in known.devices} == {"spine"}


def _times(findings: Sequence[Evidence]) -> int:
    """On how many iterations findings are, each method's counted by itself."""
    return len({(known.method, known.at) for known in findings})


def agreed(
    incident: Incident, finding: Evidence, told: Sequence[Evidence], comparable: float, agreement: float
) -> Agreed:
    """What both say, where they are compatible: they name the culprit together.

    But where one of them explains less than a comparable part of what the other does, it does not narrow that one: of
    what slows several ranks, each of them alone sometimes shows a part. Nor do too few of what was ``told`` of the
    incident, this finding included: a member that has a hiccup does not make the others fine, of whom all other
    searches say as much. Nor is a ToR narrowed to one of its NICs, of which not each finding shows that others are
    slow as well. Spines are told by what is not slow: a NIC below them that is found by itself on more iterations than
    all else takes over, and they from a NIC that all else is found more often than. A ToR takes over once it is found
    often enough. Of a ToR and spines whichever is found on more iterations does, however many ranks show it.
    """
    here, there = set(incident.ranks), set(finding.ranks)
    if _of_the_same_devices(incident, finding):
        ranks = tuple(sorted(here | there))
        if is_switch(incident):
            return Agreed(ranks, {"ranks": ranks}, incident.doubt)
        more = {"level": "group", "ranks": ranks, "candidates": tuple((rank,) for rank in ranks)}
        return Agreed(ranks, more if there - here else {}, incident.doubt)
    weak = finding.share < comparable * incident.share
    if is_switch(incident) != is_switch(finding) or _are_tor_and_spines(incident, finding):
        if weak or not _takes_over(incident, finding, told, agreement):
            return Agreed(incident.ranks, {}, incident.doubt)
        left = incident.doubt ** min(1.0, len(there) / len(here))
        return Agreed(finding.ranks, _about(finding.ranks, incident, finding), left)
    if there < here and (weak or not borne_out(finding.ranks, told, agreement)):
        return Agreed(incident.ranks, {}, incident.doubt)
    if here < there and 0 < incident.share < comparable * finding.share:
        return Agreed(finding.ranks, _about(finding.ranks, incident, finding), incident.doubt)
    ranks = tuple(rank for rank in incident.ranks if rank in there)
    changes = _about(ranks, incident, finding) if len(ranks) < len(here) else {}
    # what was said of the wider group says less of each of its members
    return Agreed(ranks, changes, incident.doubt ** (len(ranks) / len(here)))


def doubt(finding: Evidence, about: Ranks) -> float:
    """What a finding leaves open about some ranks: one about a wider group says less of each of its members."""
    narrowness = min(1.0, len(about) / len(finding.ranks))
    return max(0.05, 1.0 - finding.share * finding.coverage * narrowness)


def _of_the_same_devices(one: Evidence | Incident, other: Evidence | Incident) -> bool:
    """Whether both are about groups, or different ranks, that the same devices carry; of NVLinks whoever shows it."""
    here, there = _carriers(one), _carriers(other)
    if not here or here != there:
        return False
    ranks, others = set(one.ranks), set(other.ranks)
    different = one.level == other.level == "group" or not (ranks <= others or others <= ranks)
    return different or set(here.values()) == {_NVLINK}


def _are_nvlinks_and_wires(one: Evidence | Incident, other: Evidence | Incident) -> bool:
    """Whether one is about NVLinks alone, and the other about devices none of which is an NVLink."""
    here, there = (set(_carriers(of).values()) for of in (one, other))
    return bool(here and there) and here.isdisjoint(there) and {_NVLINK} in (here, there)


def is_switch(known: Evidence | Incident) -> bool:
    """Whether it is about a switch, with the ranks below it."""
    return are_switches(device.kind for device in known.devices)


def _are_tor_and_spines(one: Evidence | Incident, other: Evidence | Incident) -> bool:
    """Whether both are about switches, and only one of them about spines."""
    return is_switch(one) and is_switch(other) and are_spines(one) != are_spines(other)


def _carriers(known: Evidence | Incident) -> dict[str, str]:
    """The devices that carry a channel, with their kinds. A host's CPU that is named with its NVLinks, as it may be
    slow instead, carries nothing.
    """
    return {device.device: device.kind for device in known.devices if device.kind != "cpu"}


def _about(ranks: Ranks, incident: Incident, finding: Evidence) -> dict[str, Any]:
    """What an incident says once it is about other ranks: what the finding says of its own, else what both name."""
    if ranks == finding.ranks:
        names = ("cause", "level", "ranks", "candidates", "devices", "stage")
        return {name: getattr(finding, name) for name in names}
    sets = tuple(own for own in incident.candidates if set(own) <= set(ranks))
    if {rank for own in sets for rank in own} != set(ranks):
        sets = tuple((rank,) for rank in ranks)
    alone = len(sets) == 1
    return {
        "level": "group" if not alone else "device" if len(ranks) == 1 else "machine",
        "ranks": ranks,
        "candidates": () if alone else sets,
        "devices": tuple(device for device in incident.devices if device in finding.devices),
    }
