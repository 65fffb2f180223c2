"""Which hardware the traffic between NICs crosses, as a job's description tells it: cables, switches, ECMP sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_SWITCHES = {"tor", "spine"}
_STEPS_UP = {("nic", "tor"), ("tor", "spine")}


@dataclass(frozen=True, slots=True)
class Device:
    """Hardware that can be at fault; ``downside_nics`` is the number of NICs below it in the topology."""

    device: str
    kind: str
    downside_nics: int | None = None


@dataclass(frozen=True)
class Topology:
    """A fabric of NICs below ToRs below spines.

    ``uplinks`` are the (cable, ToR) pairs of each NIC, ``trunks`` those of each ToR to a spine, ``spines`` the ECMP
    set of each ToR, ``below`` the number of NICs below each device, ``nvlinks`` the NVLinks of each host. ``routes``
    are the spines that were seen on the way from a NIC (the outer key) to another, none where it stays below a ToR.
    """

    uplinks: Mapping[str, tuple[tuple[str, str], ...]]
    trunks: Mapping[str, tuple[tuple[str, str], ...]]
    spines: Mapping[str, frozenset[str]]
    below: Mapping[str, int]
    nvlinks: Mapping[str, tuple[str, ...]]
    routes: Mapping[str, Mapping[str, frozenset[str]]]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Topology | None:
        """Read ``devices``, ``links``, ``paths`` and ``routes`` of a row of control.jobs; None where no cable is
        described.

        Ends of cables are names of listed devices; a cable to anything else carries nothing between NICs. A path
        rule names the spines that a ToR's traffic may take; a ToR without one may take those it is cabled to. A route
        names the switches that traffic from a NIC to another was seen to take.
        """
        links = row.get("links") or ()
        if not links:
            return None
        kinds = {device["device"]: device["kind"] for device in row.get("devices") or ()}
        cables: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for link in links:
            for lower, upper in ((link["a"], link["b"]), (link["b"], link["a"])):
                if (kinds.get(lower), kinds.get(upper)) in _STEPS_UP:
                    cables[lower].append((link["link"], upper))
        spines: dict[str, frozenset[str]] = {}
        for rule in row.get("paths") or ():
            if rule["tor"] is not None:
                spines[rule["tor"]] = spines.get(rule["tor"], frozenset()) | frozenset(rule["spines"] or ())
        trunks = {lower: tuple(of) for lower, of in cables.items() if kinds[lower] == "tor"}
        for tor, of in trunks.items():
            spines.setdefault(tor, frozenset(spine for _, spine in of))
        uplinks = {lower: tuple(of) for lower, of in cables.items() if kinds[lower] == "nic"}
        nvlinks: dict[str, list[str]] = defaultdict(list)
        for device in row.get("devices") or ():
            if device["kind"] == "nvlink" and device.get("host") is not None:
                nvlinks[device["host"]].append(device["device"])
        below = _below(uplinks, trunks, spines)
        return cls(
            uplinks=uplinks,
            trunks=trunks,
            spines=spines,
            below=below,
            nvlinks={host: tuple(of) for host, of in nvlinks.items()},
            routes=_routes(row.get("routes") or (), {name for name in below if kinds.get(name) == "spine"}, uplinks),
        )

    def tors(self, nics: Iterable[str]) -> tuple[Device, ...]:
        """The ToRs above some NICs."""
        above = sorted({tor for nic in nics for _, tor in self.uplinks.get(nic, ())})
        return tuple(Device(tor, "tor", self.below.get(tor)) for tor in above)

    def crossed(self, nics: Sequence[str], others: Iterable[str] = ()) -> tuple[Device, ...]:
        """What the traffic of some NICs, among themselves and with others, crosses on their side.

        These are the NICs, their cables and ToRs, and the spines (and cables to them) that lead to another ToR.
        Of an ECMP set those spines count that routes tell, or all where nobody traced which one a NIC's traffic takes.
        """
        cables = [cable for nic in nics for cable in self.uplinks.get(nic, ())]
        tors = list(dict.fromkeys(tor for _, tor in cables))
        met = {*nics, *others}
        reached = {tor for nic in met for _, tor in self.uplinks.get(nic, ())}
        taken: set[str] = set()
        untraced: set[str] = set()
        for nic in nics:
            if (traced := self._traced(nic, met)) is None:
                untraced.update(tor for _, tor in self.uplinks.get(nic, ()))
            else:
                taken |= traced
        for tor in untraced:
            own = self.spines.get(tor, frozenset())
            taken.update(*(own & self.spines.get(other, frozenset()) for other in reached - {tor}))
        trunks = [cable for tor in tors for cable, spine in self.trunks.get(tor, ()) if spine in taken]
        links = dict.fromkeys([*(cable for cable, _ in cables), *trunks])
        kinds = {"nic": dict.fromkeys(nics), "link": links, "tor": tors, "spine": sorted(taken)}
        return tuple(Device(name, kind, self.below.get(name, 1)) for kind, names in kinds.items() for name in names)

    def _traced(self, nic: str, met: Collection[str]) -> frozenset[str] | None:
        """The spines that a NIC's traffic with others takes; None where none of what it sends them, or none of what
        they send it, was traced.
        """
        sent, received = (
            [spines for other, spines in of.get(nic, {}).items() if other in met]
            for of in (self.routes, self._arriving)
        )
        return frozenset[str]().union(*sent, *received) if sent and received else None

    @cached_property
    def _arriving(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """``routes`` by the NIC that they lead to."""
        arriving: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        for source, onward in self.routes.items():
            for destination, spines in onward.items():
                arriving[destination][source] = spines
        return arriving


def are_switches(kinds: Iterable[str]) -> bool:
    """Whether devices of these kinds are switches, all of them, and there is one."""
    found = set(kinds)
    return bool(found) and found <= _SWITCHES


def _routes(
    rows: Iterable[Mapping[str, Any]],
    known: Collection[str],
    uplinks: Mapping[str, Iterable[tuple[str, str]]],
) -> dict[str, dict[str, frozenset[str]]]:
    """Which of the known spines routes take; of several between two NICs all. Two NICs are left out of which one names
    neither a spine nor a ToR of both alone: a switch on it did not answer.
    """
    routes: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    unanswered: set[tuple[str, str]] = set()
    for row in rows:
        source, destination = row["source"], row["destination"]
        switches: Sequence[str] = row["switches"] or ()
        spines = frozenset(name for name in switches if name in known)
        above, beyond = ({tor for _, tor in uplinks.get(nic, ())} for nic in (source, destination))
        if not spines and not (len(switches) == 1 and switches[0] in above & beyond):
            unanswered.add((source, destination))
        routes[source][destination] = routes[source].get(destination, frozenset()) | spines
    for source, destination in unanswered:
        del routes[source][destination]
    return routes


def _below(
    uplinks: Mapping[str, Iterable[tuple[str, str]]],
    trunks: Mapping[str, Iterable[tuple[str, str]]],
    spines: Mapping[str, frozenset[str]],
) -> dict[str, int]:
    """How many NICs are below each device; a cable has as many as its lower end."""
    of_tor: dict[str, set[str]] = defaultdict(set)
    of_spine: dict[str, set[str]] = defaultdict(set)
    counts: dict[str, int] = {}
    for nic, cables in uplinks.items():
        counts[nic] = 1
        for cable, tor in cables:
            counts[cable] = 1
            of_tor[tor].add(nic)
    for tor, above in spines.items():
        for spine in above:
            of_spine[spine] |= of_tor[tor]
    for tor, cables in trunks.items():
        counts |= {cable: len(of_tor[tor]) for cable, _ in cables}
    return counts | {switch: len(nics) for switch, nics in {**of_tor, **of_spine}.items()}
