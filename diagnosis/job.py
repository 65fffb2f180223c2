"""A job: its ranks, hosts, NICs, communicators and layout, as control.jobs carries them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diagnosis.topology import Device, Topology

DEGREES = ("tp", "cp", "ep", "dp", "pp")
MOST_RANKS = 1 << 20
"""No job has more, and no rank a higher number; that of ``schemas.topic``."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism in Megatron rank order: tp fastest, then cp, dp, pp (ep lies within dp).

    ``source`` is "given" or "inferred"; a degree of None is not known.
    """

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = 1
    ep: int | None = 1
    source: str = "inferred"

    @property
    def world(self) -> int | None:
        """Ranks that the layout has; None while a degree is unknown."""
        if self.tp is None or self.pp is None or self.dp is None:
            return None
        return self.tp * self.pp * self.dp * (self.cp or 1)

    def pipeline_stage(self, rank: int) -> int | None:
        """Stage of a rank: the slowest dimension of Megatron's order; None where the layout has no such rank."""
        if self.pp is None or self.world is None or not 0 <= rank < self.world:
            return None
        return rank // (self.world // self.pp)

    def replica(self, rank: int) -> int | None:
        """Replica of the model that a rank is part of, one a place in data and context; all its stages work on the
        same sequences. None where the layout has no such rank.
        """
        if self.tp is None or self.pp is None or self.world is None or not 0 <= rank < self.world:
            return None
        return rank % (self.world // self.pp) // self.tp


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs; None or empty: not known."""

    rank: int
    host: str | None = None
    gpu: int | None = None
    nics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Communicator:
    """A group of ranks that communicate; ``ranks`` in the communicator's own order."""

    communicator: str
    ranks: tuple[int, ...]
    kind: str | None = None


@dataclass(frozen=True)
class Job:
    """One run with one layout.

    ``row`` keeps what control.jobs said beyond the fields below, so that a rewritten record loses nothing.
    """

    job: str
    places: tuple[Place, ...]
    communicators: tuple[Communicator, ...]
    layout: Layout | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    monitoring: bool = True
    row: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks, ascending."""
        return tuple(sorted(place.rank for place in self.places))

    @cached_property
    def place(self) -> dict[int, Place]:
        """Place of each rank."""
        return {place.rank: place for place in self.places}

    @cached_property
    def members(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each communicator, where they are known."""
        return {c.communicator: c.ranks for c in self.communicators if c.ranks}

    @cached_property
    def within_hosts(self) -> frozenset[str]:
        """The communicators that are known to run within one host."""
        return frozenset(name for name, ranks in self.members.items() if self.on_one_host(ranks))

    @cached_property
    def communicators_of(self) -> dict[int, tuple[str, ...]]:
        """Communicators of each rank."""
        of: dict[int, list[str]] = {rank: [] for rank in self.ranks}
        for communicator in self.communicators:
            for rank in communicator.ranks:
                of.setdefault(rank, []).append(communicator.communicator)
        return {rank: tuple(names) for rank, names in of.items()}

    @cached_property
    def ranks_of_host(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each known host."""
        of: dict[str, list[int]] = {}
        for place in self.places:
            if place.host is not None:
                of.setdefault(place.host, []).append(place.rank)
        return {host: tuple(sorted(ranks)) for host, ranks in of.items()}

    @cached_property
    def ranks_of_clock(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each clock, ascending."""
        of: dict[str, list[int]] = {}
        for rank in self.ranks:
            of.setdefault(self.clock(rank), []).append(rank)
        return {clock: tuple(ranks) for clock, ranks in of.items()}

    def clock(self, rank: int) -> str:
        """Name of the clock that a rank's times are read from: its host, or the rank itself where none is known."""
        host = self.place[rank].host if rank in self.place else None
        return host if host is not None else f"rank{rank}"

    def ranks_beside(self, rank: int) -> tuple[int, ...]:
        """All ranks of a rank's host, itself included; it alone where its host is not known."""
        place = self.place.get(rank)
        return (rank,) if place is None or place.host is None else self.ranks_of_host.get(place.host, (rank,))

    def on_one_host(self, ranks: Iterable[int]) -> bool:
        """Whether all ranks are known to run on one host, so that their traffic never meets a NIC."""
        hosts = {self.place[rank].host if rank in self.place else None for rank in ranks}
        return len(hosts) == 1 and None not in hosts

    def one_a_host(self, ranks: Collection[int]) -> bool:
        """Whether no two of the ranks run on one host, so that all that they send each other goes through NICs."""
        return len({self.clock(rank) for rank in ranks}) == len(ranks)

    def gpu(self, rank: int) -> Device:
        """The GPU of a rank: ``gpu:host/index``, or ``gpu:rank5`` where its place is not known."""
        place = self.place.get(rank)
        if place is None or place.host is None or place.gpu is None:
            return Device(f"gpu:rank{rank}", "gpu", 0)
        return Device(f"gpu:{place.host}/{place.gpu}", "gpu", 0)

    def cpu(self, rank: int) -> Device:
        """The CPUs of a rank's host: ``cpu:host``, or ``cpu:rank5`` where that is not known."""
        place = self.place.get(rank)
        return Device(
            f"cpu:{place.host}" if place is not None and place.host is not None else f"cpu:rank{rank}", "cpu", 0
        )

    def nics(self, rank: int) -> tuple[Device, ...]:
        """The NICs of a rank: ``nic:host/name``, or ``nic:rank5`` where none is known."""
        place = self.place.get(rank)
        if place is None or place.host is None or not place.nics:
            return (Device(f"nic:rank{rank}", "nic", 1),)
        return tuple(Device(f"nic:{place.host}/{nic}", "nic", 1) for nic in place.nics)

    @cached_property
    def topology(self) -> Topology | None:
        """The fabric; None where the job's description has none."""
        return Topology.of_row(self.row)

    def tor(self, rank: int) -> Device | None:
        """The only ToR above a rank's NICs; None where there are several, or it is not known."""
        above = self.tors(rank)
        return above[0] if len(above) == 1 else None

    def tors(self, rank: int) -> tuple[Device, ...]:
        """The ToRs above a rank's NICs, as far as they are known."""
        return () if self.topology is None else self.topology.tors(nic.device for nic in self.nics(rank))

    @cached_property
    def spines(self) -> frozenset[str]:
        """All spines that traffic may take; none where the fabric is not described."""
        return frozenset[str]().union(*self.topology.spines.values()) if self.topology else frozenset()

    def spines_between(self, ranks: Iterable[int]) -> tuple[Device, ...]:
        """The spines that traffic between ranks takes, or may take where nobody traced it."""
        if self.topology is None:
            return ()
        nics = [nic.device for rank in ranks for nic in self.nics(rank)]
        return tuple(device for device in self.topology.crossed(nics) if device.kind == "spine")

    @cached_property
    def ranks_below(self) -> dict[str, tuple[int, ...]]:
        """Ranks below each ToR that is the only one of theirs, ascending."""
        of: dict[str, list[int]] = {}
        for rank in self.ranks:
            if (tor := self.tor(rank)) is not None:
                of.setdefault(tor.device, []).append(rank)
        return {tor: tuple(ranks) for tor, ranks in of.items()}

    def carriers(self, members: Sequence[int], suspects: Sequence[int] | None = None) -> tuple[Device, ...]:
        """What carries the traffic between members, or (``suspects``) only what does so on the side of some of them.

        Within a host its NVLinks; between hosts NICs, where a fabric is described cables and switches, and the NVLinks
        of hosts with several members if nobody is suspected.
        """
        suspects = members if suspects is None else suspects
        if self.on_one_host(members):
            return self._nvlinks(members[0])
        nics = tuple(dict.fromkeys(nic for rank in suspects for nic in self.nics(rank)))
        links = self._local_nvlinks(members) if set(suspects) == set(members) else ()
        if self.topology is None:
            return (*nics, *links)
        others = (nic.device for rank in members for nic in self.nics(rank))
        wires = self.topology.crossed([nic.device for nic in nics], others)
        return (*wires, *links)

    def _nvlinks(self, rank: int) -> tuple[Device, ...]:
        host = self.place[rank].host
        named = self.topology.nvlinks.get(host or "") if self.topology else None
        return tuple(Device(name, "nvlink", 0) for name in named or (f"nvlink:{host}",))

    def _local_nvlinks(self, members: Iterable[int]) -> list[Device]:
        """The NVLinks of the hosts on which several of the members run."""
        first: dict[str, int] = {}
        several: dict[str, int] = {}
        for rank in members:
            host = self.place[rank].host if rank in self.place else None
            if host is not None and first.setdefault(host, rank) != rank:
                several[host] = rank
        return [device for rank in several.values() for device in self._nvlinks(rank)]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Job:
        """Build a job from a row of control.jobs.

        Raises ``ValueError`` for ranks, communicators or degrees that cannot be.
        """
        if not row["job"]:
            raise ValueError("a job without a name")
        places = tuple(
            Place(r["rank"], r.get("host"), r.get("gpu"), tuple(r.get("nics") or ())) for r in row["ranks"] or ()
        )
        communicators = tuple(
            Communicator(c["communicator"], tuple(c["ranks"] or ()), c.get("kind")) for c in row["communicators"] or ()
        )
        _check(places, communicators)
        return cls(
            job=row["job"],
            places=places,
            communicators=communicators,
            layout=_layout(row.get("training")),
            started_ns=row.get("started_ns"),
            ended_ns=row.get("ended_ns"),
            monitoring=row.get("monitoring") is not False,
            row=dict(row),
        )

    def to_row(self) -> dict[str, Any]:
        """The row of control.jobs that ``from_row`` reads."""
        own: dict[str, Any] = {
            "job": self.job,
            "ranks": [{"rank": p.rank, "host": p.host, "gpu": p.gpu, "nics": list(p.nics)} for p in self.places],
            "communicators": [
                {"communicator": c.communicator, "kind": c.kind, "ranks": list(c.ranks)} for c in self.communicators
            ],
            "monitoring": self.monitoring,
            "started_ns": self.started_ns,
            "ended_ns": self.ended_ns,
        }
        if self.layout is not None:
            degrees = {name: getattr(self.layout, name) for name in DEGREES}
            given = list(DEGREES) if self.layout.source == "given" else []
            own["training"] = {**(self.row.get("training") or {}), **degrees, "given": given}
        return {**self.row, **own}


def pivots(job: Job, count: int = 4) -> tuple[int, ...]:
    """The ranks whose logs are watched without being asked for (Holmes 4.1): a pure function of the job.

    They are spread over the job's ranks; the offset within each share differs, so that they do not all sit
    at the same place of their tensor group.
    """
    ranks = job.ranks
    count = min(max(count, 1), len(ranks))
    if not count:
        return ()
    share = len(ranks) / count
    return tuple(sorted({ranks[int(i * share) + min(i % max(int(share), 1), 7)] for i in range(count)}))


def _check(places: Sequence[Place], communicators: Sequence[Communicator]) -> None:
    ranks = [place.rank for place in places]
    known = set(ranks)
    if ranks and not 0 <= min(ranks) <= max(ranks) < MOST_RANKS:
        raise ValueError(f"a rank is not one of 0 to {MOST_RANKS - 1}")
    if len(known) != len(ranks):
        raise ValueError("a rank is listed twice")
    names = {c.communicator for c in communicators}
    if len(names) != len(communicators):
        raise ValueError("a communicator is listed twice")
    for communicator in communicators:
        if len(set(communicator.ranks)) != len(communicator.ranks):
            raise ValueError(f"communicator {communicator.communicator} lists a rank twice")
        strangers = set(communicator.ranks) - known
        if strangers:
            raise ValueError(
                f"communicator {communicator.communicator} has rank {min(strangers)}, which the job does not list"
            )


def _layout(training: Mapping[str, Any] | None) -> Layout | None:
    if not training or all(training.get(name) is None for name in DEGREES):
        return None
    for name in DEGREES:
        if (degree := training.get(name)) is not None and degree < 1:
            raise ValueError(f"the degree {name} is {degree}")
    given = set(training.get("given") or ())
    return Layout(
        **{name: training.get(name) for name in DEGREES},
        source="given" if given & set(DEGREES) else "inferred",
    )
