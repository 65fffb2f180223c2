"""Devices by the evidence of many irregularities (Holmes 4.4, D): rates accumulated, decayed, with a prior.

This is the reference of the view ``device_ranking`` (schemas/views.py), which does the same in SQL.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from diagnosis.ranking.prior import share
from diagnosis.topology import Device, are_switches

_LEAST_EPSILON = 1e-12
_ByIteration = dict[tuple[int, int], list[frozenset[str]]]
"""What each finding of an iteration names; of findings about none in particular, each by itself."""


@dataclass(frozen=True, slots=True)
class RankingSettings:
    """``top`` is the paper's K: places that are told, 0 all.

    ``alpha`` is how many irregularities the prior weighs as much as. ``epsilon`` is the decay's: with Euler's number
    a device above one NIC keeps its evidence whole; the paper prints 1e-6. Raises ``ValueError`` for impossible ones.

    ``coverage`` is a step beyond the paper: what the decay asks, whether a switch is blamed for something below it,
    findings have answered that name ToRs alone, or spines alone, and these count whole. Of the others, whose traffic
    crossed the switch, it counts the branches below (a ToR's NICs, a spine's ToRs) for each that they name, not all
    NICs. A slow switch slows what is below it one after the other, and is blamed as they are seen; as printed, none of
    its NICs ever needs a second finding to stay before it. A ToR of which no single NIC explains half of these
    iterations keeps its evidence whole, and so does a spine most of whose findings, of these, are of iterations that it
    takes three ToRs to explain: two may be slow at once, and of many ToRs a search names but a few.
    """

    alpha: float = 1.0
    epsilon: float = math.e
    prior: bool = True
    decay: bool = True
    coverage: bool = True
    top: int = 2

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(f"alpha is {self.alpha}; give 0 or more")
        if not (math.isfinite(self.epsilon) and self.epsilon >= _LEAST_EPSILON):
            raise ValueError(f"epsilon is {self.epsilon}; give {_LEAST_EPSILON} or more")
        if self.top < 0:
            raise ValueError(f"{self.top} places cannot be told; give 0 for all of them")


@dataclass(frozen=True, slots=True)
class Implication:
    """One finding: its irregularity rate, the devices that it implicates, and the irregular iteration it is about.

    Several may be about one iteration; one whose ``iteration`` is None is about one of its own.
    """

    rate: float
    devices: tuple[Device, ...]
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class RankedDevice:
    """A device with the evidence against it.

    ``findings`` irregularities implicate it, their rates add up to ``irregularity_rate``, of which it keeps the part
    ``decay``. ``prior_a`` and ``prior_b`` are the prior Beta distribution's. ``ambiguity_set`` are the devices, itself
    included, that nothing in the evidence tells from it; they share its place.
    """

    place: int
    device: str
    kind: str
    score: float
    findings: int
    irregularity_rate: float
    downside_nics: int
    decay: float
    prior_a: float
    prior_b: float
    ambiguity_set: tuple[str, ...]


def rank(implications: Iterable[Implication], settings: RankingSettings | None = None) -> list[RankedDevice]:
    """The devices of one job by their score, first the most suspicious.

    The score is the mean of the posterior that the paper calls a maximum: (evidence + a) / (all evidence + a + b).
    A device that no irregularity implicates is not ranked, and one that is implicated by such as explain nothing
    comes after all others: else the prior alone would put it before a switch found slow again and again.
    """
    settings = settings or RankingSettings()
    sets: dict[tuple[tuple[int, ...], int], list[RankedDevice]] = defaultdict(list)
    for gathered, device in _scored(_gathered(implications), settings):
        # as many NICs below, so the same traffic: a NIC and its only cable; a GPU's is that of one NIC
        sets[tuple(gathered.implicating), max(device.downside_nics, 1)].append(device)
    merits = {key: max((device.irregularity_rate > 0, device.score) for device in of) for key, of in sets.items()}
    ascending = sorted(merits.values())
    ranked: list[RankedDevice] = []
    for key, of in sets.items():
        place = 1 + len(ascending) - bisect_right(ascending, merits[key])
        if not settings.top or place <= settings.top:
            alike = tuple(sorted(device.device for device in of))
            ranked += [replace(device, place=place, ambiguity_set=alike) for device in of]
    return sorted(ranked, key=lambda device: (device.place, -device.score, device.device))


@dataclass(slots=True)
class _Gathered:
    """What implicates one device; rates in trillionths, so that sums depend on no order and equal ones tie.

    ``told_apart`` is the part of ``trillionths`` of findings that name switches of one kind alone; what follows is of
    the others: ``nics`` and ``tors`` are named beside it, in ``nics_by_iteration`` and ``tors_by_iteration`` finding by
    finding; ``nics_of_tor`` is how many NICs the largest of these ToRs has.
    """

    kind: str
    implicating: list[int] = field(default_factory=list)
    trillionths: int = 0
    told_apart: int = 0
    downside_nics: int = 0
    nics: set[str] = field(default_factory=set)
    tors: set[str] = field(default_factory=set)
    nics_of_tor: int = 0
    nics_by_iteration: _ByIteration = field(default_factory=dict)
    tors_by_iteration: _ByIteration = field(default_factory=dict)

    @property
    def is_more_than_a_nic(self) -> bool:
        """Whether it is a ToR of which no NIC is in all findings of half of the iterations, though each names some."""
        of_iterations = self.nics_by_iteration.values()
        explained = Counter(nic for of in of_iterations for nic in frozenset.intersection(*of))
        most = max(explained.values(), default=0)
        return self.kind == "tor" and all(map(all, of_iterations)) and 2 * most < len(of_iterations)

    @property
    def is_more_than_two_tors(self) -> bool:
        """Whether it is a spine most of whose findings are of iterations of which no ToR is in over a third of them."""
        spread = 0
        for of in self.tors_by_iteration.values():
            named = Counter(tor for tors in of for tor in tors)
            spread += len(of) if all(of) and 3 * max(named.values()) <= len(of) else 0
        return self.kind == "spine" and 2 * spread > sum(map(len, self.tors_by_iteration.values()))

    @property
    def shared_by(self) -> float:
        """Branches below the device for each that is named; 1: all of them are, or it is more than a few of them."""
        if self.is_more_than_a_nic or self.is_more_than_two_tors:
            return 1.0
        if self.nics_of_tor and self.kind == "spine":
            return max(1.0, self.downside_nics / self.nics_of_tor / len(self.tors))
        return max(1.0, self.downside_nics / max(len(self.nics), 1))


def _gathered(implications: Iterable[Implication]) -> dict[tuple[str, str], _Gathered]:
    gathered: dict[tuple[str, str], _Gathered] = {}
    for number, implication in enumerate(implications):
        if not 0 <= implication.rate <= 1:
            raise ValueError(f"a rate is {implication.rate}; it must be from 0 to 1")
        trillionths = round(implication.rate * 1e12)
        nics = frozenset(device.device for device in implication.devices if device.kind == "nic")
        iteration = (-1, number) if implication.iteration is None else (implication.iteration, -1)
        tors = [device for device in implication.devices if device.kind == "tor"]
        names_of_tors = frozenset(tor.device for tor in tors)
        nics_of_tor = max((tor.downside_nics or 0 for tor in tors), default=0)
        kinds = {device.kind for device in implication.devices}
        told_apart = len(kinds) == 1 and are_switches(kinds)
        for device in dict.fromkeys(implication.devices):
            own = gathered.setdefault((device.device, device.kind), _Gathered(device.kind))
            own.implicating.append(number)
            own.trillionths += trillionths
            own.downside_nics = max(own.downside_nics, device.downside_nics or 0)
            if told_apart:
                own.told_apart += trillionths
                continue
            own.nics |= nics
            own.nics_by_iteration.setdefault(iteration, []).append(nics)
            own.tors_by_iteration.setdefault(iteration, []).append(names_of_tors)
            own.tors |= names_of_tors
            own.nics_of_tor = max(own.nics_of_tor, nics_of_tor)
    return gathered


def _scored(
    gathered: Mapping[tuple[str, str], _Gathered], settings: RankingSettings
) -> list[tuple[_Gathered, RankedDevice]]:
    """The devices with their scores, not placed yet."""
    decayed = {key: own.trillionths / 1e12 * _decay(own, settings) for key, own in gathered.items()}
    total = math.fsum(decayed.values())
    scored = []
    for (name, kind), own in gathered.items():
        a = settings.alpha * share(kind) if settings.prior else 0.0
        b = settings.alpha * (1 - share(kind)) if settings.prior else 0.0
        weight = total + a + b
        device = RankedDevice(
            place=0,
            device=name,
            kind=kind,
            score=(decayed[name, kind] + a) / weight if weight else 0.0,
            findings=len(own.implicating),
            irregularity_rate=own.trillionths / 1e12,
            downside_nics=own.downside_nics,
            decay=_decay(own, settings),
            prior_a=a,
            prior_b=b,
            ambiguity_set=(),
        )
        scored.append((own, device))
    return scored


def _decay(own: _Gathered, settings: RankingSettings) -> float:
    """What a device keeps of its evidence (H in the paper); all of it where it is above no NIC."""
    if not settings.decay or not own.downside_nics:
        return 1.0
    shared_by = own.shared_by if settings.coverage else own.downside_nics
    crossing = math.log(shared_by + settings.epsilon - 1) / shared_by
    whole = own.told_apart / own.trillionths if settings.coverage and own.trillionths else 0.0
    return whole + (1 - whole) * crossing
