"""What is above slow NICs: a ToR where its other ranks are slow as well, a spine where nobody is below the ToRs, or
where several channels have nothing else in common.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa
import pytest

from diagnosis.causes import Cause, Level
from diagnosis.job import Job
from diagnosis.operator_graph import switch
from diagnosis.operator_graph.culprits import Culprit, decisive
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.locate import (
    Irregularity,
    LocateSettings,
    Location,
    locate,
)
from diagnosis.operator_graph.logs import Logs
from diagnosis.operator_graph.needs import Answer, Needs
from diagnosis.operator_graph.separation import Separation, SeparationSettings, Tells, Transferred
from diagnosis.operator_graph.switch_settings import SwitchSettings
from diagnosis.topology import Device
from producers.simulation import Fault, Kind, Omissions, Scenario, SimulatedRun, simulate
from producers.simulation.scenario import FabricShape
from tests.diagnosis.answering import answered
from tests.diagnosis.operator_graph.small_jobs import FAULTY, irregularity

RAIL = (0, 2, 4, 6)
"""Ranks below the first ToR: the first GPU of each host of the first pod, which holds the first stage."""

SPINES = ("spine:0", "spine:1", "spine:2", "spine:3")


@cache
def job_with(
    kind: Kind, at: int, *, ends: bool = True, pp: int = 2, dp: int = 4, hosts_per_pod: int = 4, routes: bool = False
) -> SimulatedRun:
    """Stages of ``dp`` replicas, each on a host of its own, with a slow device from iteration 14 on; a pod holds a
    stage of four. ``routes``: it is known which spines its traffic takes."""
    return simulate(
        Scenario(
            5,
            tp=2,
            pp=pp,
            dp=dp,
            microbatches=4,
            layers=4,
            hidden=4096,
            iterations=18,
            gpus_per_host=2,
            compute_ms=200.0,
            fabric=FabricShape(hosts_per_pod=hosts_per_pod, spines=len(SPINES)),
            faults=(Fault(kind, at, FAULTY, slowdown=1.3),),
            omissions=Omissions(ends=not ends, routes=not routes),
        )
    )


def located(
    run: SimulatedRun,
    *,
    job: Job | None = None,
    missing: Collection[int] = (),
    settings: LocateSettings | None = None,
) -> Location:
    asked: Irregularity = irregularity(run)
    return answered(locate(job or run.job, asked, settings), run.table, missing)[0]


def told(location: Location) -> set[tuple[tuple[int, ...], tuple[str, ...]]]:
    """The ranks and devices that are named, without the switches above a NIC."""
    return {
        (culprit.ranks, tuple(d.device for d in culprit.devices if culprit.is_switch or (d.downside_nics or 0) <= 1))
        for culprit in location.culprits
    }


def test_a_slow_tor_is_named_with_the_ranks_below_it() -> None:
    location = located(job_with(Kind.TOR_SLOW, RAIL[1]))
    assert told(location) == {(RAIL, ("tor:pod0/rail0",))}
    assert {(culprit.cause, culprit.level) for culprit in location.culprits} == {("communication_slow", "device")}


@pytest.mark.parametrize("kind", [Kind.NIC_SLOW, Kind.LINK_SLOW])
def test_a_slow_nic_or_cable_is_not_its_tor(kind: Kind) -> None:
    assert told(located(job_with(kind, RAIL[1]))) == {((2,), ("nic:h1/mlx5_0", "link:h1/mlx5_0"))}


def test_of_a_slow_spine_all_that_the_traffic_may_take_are_named() -> None:
    [culprit] = located(job_with(Kind.SPINE_SLOW, 0)).culprits
    assert tuple(device.device for device in culprit.devices) == SPINES
    assert (culprit.cause, culprit.level) == ("communication_slow", "group")
    assert len(culprit.ranks) > 2  # those of several channels


@pytest.mark.parametrize("ends", [True, False])
def test_a_slow_spine_is_told_by_channels_that_have_nothing_else_in_common(ends: bool) -> None:
    """With a host a pod every channel goes over spines, so that none stays below a ToR."""
    run = job_with(Kind.SPINE_SLOW, 0, pp=4, hosts_per_pod=1, ends=ends)
    assert {devices for _, devices in told(located(run))} == {SPINES}
    many = LocateSettings(switch=SwitchSettings(least_apart=9))
    assert not any(devices == SPINES for _, devices in told(located(run, settings=many)))


@pytest.mark.parametrize("spine", [0, 2, 3])
@pytest.mark.parametrize(("pp", "dp", "hosts_per_pod"), [(2, 4, 4), (4, 4, 1), (2, 16, 4)])
def test_where_routes_are_known_the_slow_spine_is_named(spine: int, pp: int, dp: int, hosts_per_pod: int) -> None:
    location = located(job_with(Kind.SPINE_SLOW, spine, pp=pp, dp=dp, hosts_per_pod=hosts_per_pod, routes=True))
    assert [{d.device for d in culprit.devices} for culprit in location.culprits] == [{SPINES[spine]}]
    assert {(culprit.cause, culprit.level) for culprit in location.culprits} == {("communication_slow", "device")}


@pytest.mark.parametrize("kind", [Kind.NIC_SLOW, Kind.LINK_SLOW, Kind.TOR_SLOW])
def test_what_slows_channels_that_share_a_nic_or_a_tor_is_no_spine(kind: Kind) -> None:
    for hosts_per_pod in (1, 4):
        found = told(located(job_with(kind, RAIL[1], hosts_per_pod=hosts_per_pod)))
        assert found
        assert not any(device in SPINES for _, devices in found for device in devices)


@pytest.mark.parametrize(
    ("across_ns", "below", "is_spine"),
    [
        (20.0, Transferred(0.0, 100.0, 1.0), True),
        (20.0, Transferred(10.0, 100.0, 1.0), False),  # half of what a ToR would do that slows the other one by a fifth
        (20.0, Transferred(0.0, 100.0, 20.0), False),  # may be slow
        (20.0, Transferred(0.0, float("nan"), 1.0), False),
        (20.0, None, False),
        (6_000.0, Transferred(2_000.0, 100.0, 1.0), False),  # a third of it, and still 20 times as slow as usual
        (6_000.0, Transferred(50.0, 100.0, 1.0), True),
    ],
)
def test_a_spine_is_told_by_what_is_certainly_as_fast_as_ever_below_the_tor(
    monkeypatch: pytest.MonkeyPatch, across_ns: float, below: Transferred | None, is_spine: bool
) -> None:
    job = job_with(Kind.SPINE_SLOW, 0).job
    across = (0, 8)  # the same rank of both stages, which are in pods of their own

    told_of = [(across, Transferred(across_ns, 100.0, 1.0)), *([(RAIL, below)] if below else [])]
    monkeypatch.setattr(switch, "transfers", Seen(told_of).fetched)
    named = above(job, [across])
    assert named == ([set(SPINES)] if is_spine else [set()])


@pytest.mark.parametrize(("hosts_per_pod", "is_spine"), [(1, True), (4, False)])
def test_channels_two_of_which_share_a_tor_prove_no_spine(
    monkeypatch: pytest.MonkeyPatch, hosts_per_pod: int, is_spine: bool
) -> None:
    """In a pod of four hosts the first two are below one ToR, which may be slow beside a NIC of another rail."""
    monkeypatch.setattr(switch, "transfers", Seen([]).fetched)
    named = above(job_with(Kind.SPINE_SLOW, 0, hosts_per_pod=hosts_per_pod).job, [(0, 8), (2, 10), (1, 9)])
    assert named == [set(SPINES) if is_spine else set()] * 3


@pytest.mark.parametrize(
    ("traced", "is_spine"),
    [
        ({(0, 8): 0, (2, 10): 0, (1, 9): 0, (3, 11): 0}, True),
        ({(0, 8): 0, (2, 10): 0, (1, 9): 0, (3, 11): None}, True),  # it may have taken the same
        ({(0, 8): 0, (2, 10): 0, (1, 9): None, (3, 11): None}, False),  # so may these by chance
        ({(0, 8): 0, (2, 10): 0, (1, 9): 0, (3, 11): 1}, False),
        ({(0, 8): 0, (2, 10): 0, (4, 12): 0, (6, 14): 0}, False),  # all below one ToR of each stage
        ({(0, 8): 0, (1, 9): 0}, False),  # two NICs, or cables, may be slow at once
    ],
)
def test_a_spine_that_explains_all_that_is_slow_is_likelier_than_two_tors(
    monkeypatch: pytest.MonkeyPatch, traced: dict[tuple[int, int], int | None], is_spine: bool
) -> None:
    monkeypatch.setattr(switch, "transfers", Seen([]).fetched)
    taken = [(pair, SPINES[over]) for pair, over in traced.items() if over is not None]
    job = with_routes(job_with(Kind.SPINE_SLOW, 0).job, taken)
    assert above(job, list(traced)) == [{SPINES[0]} if is_spine else set()] * len(traced)


@pytest.mark.parametrize(
    ("below", "is_spine"),
    [
        ([(20.0, 1.0)], False),
        ([(20.0, 20.0)], True),  # may be chance
        ([(6.0, 1.0)], True),  # less than half as slow as over the spine
        ([(20.0, 1.0), (6.0, 1.0)], True),  # not on most
    ],
)
def test_who_is_certainly_slow_below_the_own_tor_is_so_by_no_spine(
    monkeypatch: pytest.MonkeyPatch, below: Sequence[tuple[float, float]], is_spine: bool
) -> None:
    """Of four slow channels over one spine two are of ranks that may be slow below their ToR as well."""
    channels = [(0, 8), (2, 10), (1, 9), (3, 11)]
    told_of: list[tuple[tuple[int, ...], Transferred]] = [(of, Transferred(20.0, 10.0, 1.0)) for of in channels]
    told_of += [(RAIL, Transferred(amount, 10.0, chance)) for amount, chance in below]
    monkeypatch.setattr(switch, "transfers", Seen(told_of).fetched)
    job = with_routes(job_with(Kind.SPINE_SLOW, 0).job, [(pair, SPINES[0]) for pair in channels])
    assert above(job, channels) == [{SPINES[0]} if is_spine else set()] * 4


@pytest.mark.parametrize(("as_fast_as_ever", "is_spine"), [([(4, 12), (6, 14)], True), ([(4, 12)], False)])
def test_a_tor_that_is_fine_does_not_count_as_shared(
    monkeypatch: pytest.MonkeyPatch, as_fast_as_ever: Sequence[tuple[int, int]], is_spine: bool
) -> None:
    """Two slow channels are below one ToR, half of whose channels are fine, or a third."""
    slow = [(0, 8), (2, 10), (1, 9)]
    told_of = [(of, Transferred(20.0, 10.0, 1.0)) for of in slow]
    told_of += [(of, Transferred(0.0, 10.0, 1.0)) for of in as_fast_as_ever]
    monkeypatch.setattr(switch, "transfers", Seen(told_of).fetched)
    assert above(job_with(Kind.SPINE_SLOW, 0).job, slow) == [set(SPINES) if is_spine else set()] * 3


@pytest.mark.parametrize(("at_home_ns", "is_spine"), [(2.0, True), (20.0, False)])
def test_what_is_slow_on_a_host_is_no_switch(
    monkeypatch: pytest.MonkeyPatch, at_home_ns: float, is_spine: bool
) -> None:
    """Two ranks of a host lose little beside the slow channels, or as much: its NVLinks are slow then, or its CPU."""
    monkeypatch.setattr(switch, "transfers", Seen([((0, 1), Transferred(at_home_ns, 100.0, 1.0))]).fetched)
    named = above(job_with(Kind.SPINE_SLOW, 0, hosts_per_pod=1).job, [(0, 8), (2, 10), (1, 9)])
    assert named == [set(SPINES) if is_spine else set()] * 3


@pytest.mark.parametrize(
    ("another", "is_slow", "is_tor"), [("spine:1", False, False), ("spine:1", True, True), ("spine:0", False, True)]
)
def test_what_a_spine_slows_below_a_tor_is_not_the_tor_s(
    monkeypatch: pytest.MonkeyPatch, another: str, is_slow: bool, is_tor: bool
) -> None:
    """All ranks below a ToR are slow over a spine; so the ToR is named, unless what one has over another is fine."""
    job = job_with(Kind.SPINE_SLOW, 0, pp=4).job
    below = [rank for rank in job.ranks if job.tor(rank) == job.tor(8)]
    assert len(below) == 4
    pairs = [pair for rank in below for pair in ((rank - 8, rank), (rank, rank + 8))]
    taken = [(pair, another if pair == pairs[-1] else "spine:0") for pair in pairs]
    told_of = [(of, Transferred(20.0, 10.0, 1.0)) for of in pairs[:-1]]
    told_of.append((pairs[-1], Transferred(20.0 if is_slow else 0.0, 10.0, 1.0)))
    monkeypatch.setattr(switch, "transfers", SeenByRank(told_of).fetched)
    named = above(with_routes(job, taken), [pairs[0]], suspect=8)
    assert (named == [{"tor:pod1/rail0"}]) == is_tor


@pytest.mark.parametrize(("beside_ns", "is_tor"), [(50.0, True), (5.0, False)])
def test_who_waits_a_little_for_a_slow_nic_tells_of_no_tor(
    monkeypatch: pytest.MonkeyPatch, beside_ns: float, is_tor: bool
) -> None:
    """The suspect's channels take eleven times as long as usual, those of the others below its ToR half as long again,
    or six times.
    """
    job = job_with(Kind.SPINE_SLOW, 0, pp=4).job
    below = [rank for rank in job.ranks if job.tor(rank) == job.tor(8)]
    pairs = [pair for rank in below for pair in ((rank - 8, rank), (rank, rank + 8))]
    told_of = [(of, Transferred(100.0 if 8 in of else beside_ns, 10.0, 1.0)) for of in pairs]
    monkeypatch.setattr(switch, "transfers", SeenByRank(told_of).fetched)
    named = above(job, [pairs[0]], suspect=8)
    assert (named == [{"tor:pod1/rail0"}]) == is_tor


def test_a_slow_channel_that_usually_takes_little_does_not_hide_its_tor(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes fifty-one times as long as usual, and what takes more five times."""
    job = job_with(Kind.SPINE_SLOW, 0, pp=4).job
    below = [rank for rank in job.ranks if job.tor(rank) == job.tor(8)]
    pairs = [pair for rank in below for pair in ((rank - 8, rank), (rank, rank + 8))]
    told_of = [(of, Transferred(40.0, 0.8 if of == pairs[0] else 10.0, 0.1)) for of in pairs]
    monkeypatch.setattr(switch, "transfers", SeenByRank(told_of).fetched)
    assert above(job, [pairs[0]], suspect=8) == [{"tor:pod1/rail0"}]


def with_routes(job: Job, taken: Sequence[tuple[tuple[int, int], str]]) -> Job:
    """The job with nothing traced but these: pairs of ranks, and the spine between them, both ways."""

    def above_nic(rank: int) -> tuple[str, str]:
        tor = job.tor(rank)
        assert tor is not None
        return job.nics(rank)[0].device, tor.device

    routes = []
    for pair, spine in taken:
        for source, destination in (pair, pair[::-1]):
            (nic, tor), (other_nic, other_tor) = above_nic(source), above_nic(destination)
            routes.append({"source": nic, "destination": other_nic, "switches": [tor, spine, other_tor]})
    return replace(job, row={**job.row, "routes": routes})


@pytest.mark.parametrize(("dual_homed", "is_spine"), [(False, True), (True, False)])
def test_channels_that_share_a_tor_of_two_prove_no_spine(
    monkeypatch: pytest.MonkeyPatch, dual_homed: bool, is_spine: bool
) -> None:
    """Each NIC is cabled to a ToR of its own, or to two that are the same for all."""
    monkeypatch.setattr(switch, "transfers", Seen([]).fetched)
    job = job_with(Kind.SPINE_SLOW, 0, hosts_per_pod=1).job
    row = job.row
    nics = [device["device"] for device in row["devices"] if device["kind"] == "nic"]
    both = [
        {"link": f"{nic}-{tor}", "a": nic, "b": tor} for nic in nics for tor in ("tor:pod0/rail0", "tor:pod1/rail0")
    ]
    trunks = [link for link in row["links"] if link["b"].startswith("spine")]
    job = replace(job, row={**row, "links": [*both, *trunks]}) if dual_homed else job
    assert above(job, [(0, 8), (2, 10), (4, 12)]) == [set(SPINES) if is_spine else set()] * 3


@dataclass(frozen=True)
class Seen:
    """What is known of some channels, by members, whoever is asked."""

    told_of: Sequence[tuple[tuple[int, ...], Transferred]]

    def on_channels(self, _: Job, rank: int, iteration: int, tells: Tells) -> list[Transferred]:
        return [of for members, of in self.told_of if tells(members)]

    def of_rank(self, *_: object) -> list[tuple[tuple[int, ...], Transferred]]:
        return list(self.told_of)

    def slowness(self, _: Job, rank: int, iteration: int, settings: SeparationSettings, tells: Tells) -> list[float]:
        return []

    def fetched(self, *_: object) -> Generator[Needs, Answer, Seen]:
        yield from ()
        return self


class SeenByRank(Seen):
    """The same, of each rank that is asked its own channels."""

    def slowness(self, _: Job, rank: int, iteration: int, settings: SeparationSettings, tells: Tells) -> list[float]:
        of_rank = [of for members, of in self.told_of if rank in members and tells(members)]
        return [of.amount if of.amount > settings.least_slowdown * of.usual else 0.0 for of in of_rank]


def above(job: Job, channels: Sequence[tuple[int, ...]], suspect: int | None = None) -> list[set[str]]:
    """The switches that slow channels are due to, of each of which the suspect was told apart, or the first rank."""
    leaves = [Leaf(of[0], "pipeline", of, 20, 14, OperatorRef(of[0], "pipeline", 0, "send"), of[:1]) for of in channels]
    settings = LocateSettings()
    asked = [(of, Separation(of.members, of.members[:1] if suspect is None else (suspect,))) for of in leaves]
    asking = switch.slow_switches(Logs(job, (14,)), asked, [13], settings.switch, settings.separation)
    named, _ = answered(asking, pa.table({}))
    return [{device.device for device in named.get(leaf, ())} for leaf in leaves]


def over_one_spine(job: Job) -> dict[str, list[tuple[int, int]]]:
    """Pairs of ranks of two stages, no two on a host, by the only spine that they were traced over."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for rank in (*range(0, 8, 2), *range(16, 24, 2)):
        if len(spines := job.spines_between((rank, rank + 8))) == 1:
            pairs.setdefault(spines[0].device, []).append((rank, rank + 8))
    return pairs


def slowing_most(
    job: Job, slow: Collection[str], pairs: dict[str, list[tuple[int, int]]], *, ring: bool = True
) -> list[set[str]]:
    """The spines that pairs are put down to that are slow as most channels are; those over ``slow`` are, and (``ring``)
    a ring of everybody.
    """
    told_of = [
        (of, Transferred(20.0 if spine in slow else 0.0, 10.0, 1.0)) for spine, each in pairs.items() for of in each
    ]
    leaves = [
        Leaf(of[0], "pipeline", of, 20, 14, OperatorRef(of[0], "pipeline", 0, "send"), of[:1], shared=True)
        for spine in slow
        for of in pairs[spine]
    ]
    everybody = tuple(job.ranks)
    around = Leaf(0, "data", everybody, 20, 14, OperatorRef(0, "data", 0, "reduce_scatter"), (0,), shared=True)
    leaves += [around] * ring
    settings = LocateSettings(switch=SwitchSettings(least_apart=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(switch, "transfers", Seen(told_of).fetched)
        asking = switch.slow_spines(Logs(job, (14,)), leaves, [13], settings.switch, settings.separation)
        named, _ = answered(asking, pa.table({}))
    return [{device.device for device in devices} for devices in named.values()]


def test_a_spine_that_slows_most_of_a_job_is_told_by_those_who_do_not_cross_it() -> None:
    job = job_with(Kind.SPINE_SLOW, 0, pp=4, hosts_per_pod=1, routes=True).job
    pairs = over_one_spine(job)
    assert len(pairs) > 2
    for spine, own in pairs.items():
        assert slowing_most(job, [spine], pairs) == [{spine}] * (len(own) + 1)  # the ring lost by it as well
        assert slowing_most(job, [spine], pairs, ring=False) == [{spine}] * len(own)


def test_of_a_congested_fabric_no_spine_is_named() -> None:
    job = job_with(Kind.SPINE_SLOW, 0, pp=4, hosts_per_pod=1, routes=True).job
    pairs = over_one_spine(job)
    assert slowing_most(job, list(pairs), pairs) == []


def test_what_is_not_known_of_others_names_no_switch() -> None:
    run = job_with(Kind.TOR_SLOW, RAIL[1])
    alone = located(run, missing=[rank for rank in RAIL if rank not in {0, 2}])
    assert not any(culprit.is_switch for culprit in alone.culprits)
    many = LocateSettings(switch=SwitchSettings(least_hosts=5))
    assert not any(culprit.is_switch for culprit in located(run, settings=many).culprits)


def test_where_no_fabric_is_described_nics_are_named() -> None:
    run = job_with(Kind.TOR_SLOW, RAIL[1])
    plain = Job(run.job.job, run.job.places, run.job.communicators, run.job.layout, run.job.started_ns)
    location = located(run, job=plain)
    assert location.culprits
    assert {device.kind for culprit in location.culprits for device in culprit.devices} == {"nic"}


def test_logs_without_ends_tell_a_tor_from_a_nic() -> None:
    assert told(located(job_with(Kind.TOR_SLOW, RAIL[1], ends=False))) == {(RAIL, ("tor:pod0/rail0",))}
    nic = located(job_with(Kind.NIC_SLOW, RAIL[1], ends=False))
    assert told(nic) == {((2,), ("nic:h1/mlx5_0", "link:h1/mlx5_0"))}


def culprit(cause: Cause, level: Level, ranks: tuple[int, ...], share: float, *devices: str) -> Culprit:
    operator = OperatorRef(ranks[0], "dp", 0, "all_reduce")
    named = tuple(Device(name, name.partition(":")[0]) for name in devices)
    return Culprit(cause, level, ranks, (), named, operator, int(share * 10**9), share, (0,))


def counting(*culprits: Culprit) -> list[Culprit]:
    counted = decisive(culprits, mixed_share=0.5, comparable_share=0.5, whole_share=1.0)
    return sorted(counted, key=lambda culprit: culprit.cause != "host_slow")


def test_what_ranks_of_a_slow_host_share_with_others_tells_of_no_spine() -> None:
    host = culprit("host_slow", "machine", (0, 1), 0.4, "cpu:h0")
    spines = culprit("communication_slow", "group", (0, 1, 2, 3), 0.35, *SPINES)
    tor = culprit("communication_slow", "device", (0, 2), 0.35, "tor:pod0/rail0")
    elsewhere = culprit("communication_slow", "group", (4, 6), 0.35, *SPINES)
    assert counting(host, spines, tor, elsewhere) == [host, tor, elsewhere]
    assert counting(host, spines, spines, elsewhere) == [host], "most of what tells of them is of the host's ranks"
    one = culprit("communication_slow", "device", (0, 2), 0.35, "spine:0")
    assert counting(host, one) == [host]
    much = culprit("communication_slow", "group", (0, 1, 2, 3), 0.9, *SPINES)
    assert counting(host, much) == [host, much], "a busy CPU explains little of it"
