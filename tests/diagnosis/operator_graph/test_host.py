"""A slow host is told from a slow GPU on it, and from slow NVLinks, whether ends are logged or not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.job import Place
from diagnosis.operator_graph.host import HostSettings, Whose, slow_hosts
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.locate import Irregularity, locate
from diagnosis.operator_graph.logs import Logs
from producers.simulation import Fault, Kind, Omissions, Scenario, simulate
from producers.simulation.noise import PROFILES
from tests.diagnosis.answering import answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Step, Training
from tests.diagnosis.operator_graph.small_jobs import FAULTY, gpu_slow, located, run

HOSTS_OF_FOUR = {"dp": 4, "gpus_per_host": 4}
"""Two tensor parallel groups a host."""


def without_ends(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("end_ns"), "end_ns", pa.nulls(len(table), pa.int64()))


def slow(kind: Kind, rank: int) -> Fault:
    return Fault(kind, rank, FAULTY, slowdown=1.4)


@pytest.mark.parametrize("iteration", FAULTY)
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_all_ranks_of_a_slow_host_are_named_with_its_cpu(ends: bool, iteration: int) -> None:
    location, _ = located(run(slow(Kind.CPU_SLOW, 4), ends=ends, **HOSTS_OF_FOUR), iteration)
    first = location.culprits[0]
    assert (first.cause, first.level, first.ranks) == ("host_slow", "machine", (4, 5, 6, 7))
    assert [(device.device, device.kind) for device in first.devices] == [("cpu:h1", "cpu")]


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_a_slow_gpu_does_not_make_its_host_slow(ends: bool) -> None:
    location, _ = located(run(gpu_slow(5), ends=ends, **HOSTS_OF_FOUR))
    assert [(culprit.cause, culprit.ranks) for culprit in location.culprits] == [("compute_slow", (5,))]


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_slow_nvlinks_do_not_make_their_host_slow(ends: bool) -> None:
    location, _ = located(run(slow(Kind.NVLINK_SLOW, 4), ends=ends, **HOSTS_OF_FOUR))
    assert {culprit.cause for culprit in location.culprits} == {"communication_slow"}


def test_mates_that_do_not_answer_tell_nothing() -> None:
    """The rank alone is known to have computed slowly."""
    simulated = run(slow(Kind.CPU_SLOW, 4), **HOSTS_OF_FOUR)
    told, _ = located(simulated)
    rank = told.culprits[0].operator.rank
    location, _ = located(simulated, missing=sorted({4, 5, 6, 7} - {rank}))
    assert [(culprit.cause, culprit.ranks) for culprit in location.culprits] == [("compute_slow", (rank,))]


@pytest.mark.parametrize("mate", [0, 2, 3])
def test_nor_do_those_whose_log_began_just_before(mate: int) -> None:
    """Of rank 1 its host's other ranks tell; what one of them lost nobody knows, which is not that it lost nothing."""
    groups = {f"g{at}": (at, at + 4, at + 8) for at in range(4)}
    program: dict[int, list[Step]] = {
        rank: [
            Compute(20, extra_ms=50 * (rank < 4)),
            Collective(f"g{rank % 4}"),
            Compute(5),
            Collective(f"g{rank % 4}"),
        ]
        for rank in range(12)
    }
    training = Training(program, groups)
    job = replace(training.job(), places=tuple(Place(rank, f"h{rank // 4}", rank % 4) for rank in range(12)))
    table = training.table()
    before = pc.and_(pc.equal(table.column("rank"), mate), pc.less(table.column("iteration"), training.irregular - 1))
    asked = Irregularity(training.irregular, training.baseline, (5, 9), 50 * MS)
    location, _ = answered(locate(job, asked), table.filter(pc.invert(before)))
    assert [(culprit.cause, culprit.ranks) for culprit in location.culprits] == [("host_slow", (0, 1, 2, 3))]


def test_a_host_of_two_ranks_is_not_judged() -> None:
    location, _ = located(run(slow(Kind.CPU_SLOW, 4)))
    assert all(culprit.cause != "host_slow" for culprit in location.culprits)


@pytest.mark.parametrize(
    ("own_ms", "whose"), [(50, "host"), (20, "device")], ids=["nothing is common", "30 ms are common"]
)
def test_what_all_ranks_compute_longer_is_not_their_hosts_fault(own_ms: int, whose: Whose) -> None:
    """The rank computed 50 ms longer than usual, its mates 30 ms; what of that is its own the walk has told."""
    programs: dict[int, list[Step]] = {
        rank: [Compute(extra_ms=50 if rank == 1 else 30), Collective("g")] for rank in range(4)
    }
    training = Training(programs, {"g": (0, 1, 2, 3)}, jitter=False)
    job = replace(training.job(), places=tuple(Place(rank, "h0", rank) for rank in range(4)))
    operator = OperatorRef(1, "g", 0, "all_reduce")
    leaf = Leaf(1, None, (1,), own_ms * MS, training.irregular, operator, (1,))
    logs = Logs(job, tuple(range(training.iterations)))
    answered(logs.fetch({None: [1]}), training.table())
    told, _ = answered(slow_hosts(logs, [leaf], training.baseline, HostSettings()), training.table())
    assert told == [whose]


@pytest.mark.parametrize(("mates_ms", "whose"), [(0.5, "device"), (50, "host")], ids=["one GPU", "the host"])
def test_a_slow_gpu_is_told_from_its_host_though_all_go_on_a_little_late(mates_ms: float, whose: Whose) -> None:
    """Its clock drifts away from the others', and two of its three kernels are not slow: the mean tells, no median."""
    little = min(mates_ms, 0.5)
    assert goes_on_late([50.0, 0.5, 0.5] * 4, [mates_ms, little, little] * 4) == whose


@pytest.mark.parametrize(("operators", "whose"), [(4, "host"), (2, "either")])
def test_hardly_any_operators_with_other_hosts_do_not_tell_of_a_host(operators: int, whose: Whose) -> None:
    """What clocks drift apart would look the same."""
    assert goes_on_late([50.0] * operators, [50.0] * operators) == whose


@pytest.mark.parametrize(("mates_ms", "whose"), [(0.0, "device"), (15.0, "host")], ids=["one GPU", "the host"])
def test_a_slow_gpu_is_told_from_its_host_by_when_both_call_what_stays_on_it(mates_ms: float, whose: Whose) -> None:
    """All go on late after operators with other hosts: their clock has drifted by as much, or they are slow."""
    late = [2.0] * 4
    assert goes_on_late(late, late, within_ms={1: 15.0, **dict.fromkeys((0, 2, 3), mates_ms)}) == whose


@pytest.mark.parametrize("share", [1, 2])
def test_lines_that_a_mate_lost_do_not_make_it_early(share: int) -> None:
    """The rank usually calls long before its mates, and one of these lost all lines of the iteration, or half."""

    def lost(table: pa.Table) -> pa.ChunkedArray:
        of_mate = pc.and_(pc.equal(table.column("rank"), 0), pc.equal(table.column("communicator"), "tp"))
        early = pc.less(table.column("position"), 12 // share)
        return pc.and_(pc.and_(of_mate, early), pc.equal(table.column("iteration"), 12))

    late = [50.0] * 4
    assert goes_on_late(late, late, dict.fromkeys(range(4), 15.0), lost, usually_ms=30.0) == "host"


def goes_on_late(
    own_ms: Sequence[float],
    mates_ms: Sequence[float],
    within_ms: Mapping[int, float] | None = None,
    lost: Callable[[pa.Table], pa.ChunkedArray] | None = None,
    usually_ms: float = 10.0,
) -> Whose:
    """What is said of a rank that computes longer than usual by so much before each operator with another host, and
    its three mates too; and before each of twelve that these four alone take part in, before which mates compute for
    ``usually_ms``. Some lines may be ``lost``.
    """
    a_host, elsewhere = (0, 1, 2, 3), (4, 5, 6, 7)

    def steps(extra: Sequence[float]) -> list[Step]:
        return [step for ms in extra for step in (Compute(extra_ms=ms), Collective("g"))]

    late = {1: own_ms, **dict.fromkeys((0, 2, 3), mates_ms)}
    programs = {rank: steps(late.get(rank, [0.0] * len(own_ms))) for rank in (*a_host, *elsewhere)}
    for rank, ms in (within_ms or {}).items():
        before: list[Step] = [Compute(10.0 if rank == 1 else usually_ms, extra_ms=ms), Collective("tp")]
        programs[rank] = 12 * before + programs[rank]
    training = Training(programs, {"g": (*a_host, *elsewhere), "tp": a_host})
    places = tuple(Place(rank, f"h{rank // 4}", rank % 4) for rank in (*a_host, *elsewhere))
    job = replace(training.job(), places=places)
    leaf = Leaf(1, None, (1,), 200 * MS, training.irregular, OperatorRef(1, "g", 0, "all_reduce"), (1,))
    logs = Logs(job, tuple(range(training.iterations)))
    table = without_ends(training.table())
    table = table if lost is None else table.filter(pc.invert(lost(table)))
    answered(logs.fetch({None: [1], "tp": a_host if within_ms else ()}), table)  # as the walk that came from there has
    [told], _ = answered(slow_hosts(logs, [leaf], training.baseline, HostSettings()), table)
    return told


def calls_apart(
    extra: Callable[[int, int], float],
    transfer_ms: float = 0.0,
    parts: Sequence[tuple[int, ...]] = (),
    *,
    lost_ms: float = 12.0,
    ends: bool = False,
) -> Whose:
    """What is said of a host whose ranks' NVLinks seem slow, and that no rank elsewhere tells of.

    ``extra`` ms are computed by a rank before an operator of the group, ``transfer_ms`` longer than usual it takes, and
    ``lost_ms`` what the walk says of each. ``parts``: ranks that are groups of their own.
    """
    ranks = (0, 1, 2, 3)
    programs: dict[int, Sequence[Step]] = {
        rank: [
            step
            for number in range(24)
            for step in (Compute(extra_ms=extra(rank, number)), Collective("tp", extra_ms=transfer_ms))
        ]
        for rank in ranks
    }
    training = Training(programs, {"tp": ranks, **{f"part{part[0]}": part for part in parts}})
    job = replace(training.job(), places=tuple(Place(rank, "h0", rank) for rank in ranks))
    operator = OperatorRef(0, "tp", 0, "all_reduce")
    leaf = Leaf(0, "tp", ranks, int(24 * lost_ms * MS), training.irregular, operator, (0,))
    logs = Logs(job, tuple(range(training.iterations)))
    table = training.table() if ends else without_ends(training.table())
    answered(logs.fetch({None: ranks} if ends else {None: [0]}), table)
    [told], _ = answered(slow_hosts(logs, [leaf], training.baseline, HostSettings()), table)
    return told


def test_who_comes_from_slow_nvlinks_does_not_tell_of_the_host() -> None:
    """Tensor groups of a host, each slowed by its NVLinks, meet in pairs afterwards: these call further apart."""
    groups = {"tp0": (0, 1), "tp1": (2, 3), "cp0": (0, 2), "cp1": (1, 3)}

    def steps(rank: int) -> list[Step]:
        tp, cp = rank // 2, rank % 2
        return [
            step
            for number in range(24)
            for step in (Collective(f"tp{tp}", extra_ms=6.0 + 4.0 * ((tp + number) % 2)), Collective(f"cp{cp}"))
        ]

    training = Training({rank: steps(rank) for rank in range(4)}, groups)
    job = replace(training.job(), places=tuple(Place(rank, "h0", rank) for rank in range(4)))
    tensor, pair = (
        Leaf(0, name, groups[name], int(24 * ms * MS), 12, OperatorRef(0, name, 0, "all_reduce"), (0,))
        for name, ms in (("tp0", 8.0), ("cp0", 4.0))
    )
    logs = Logs(job, tuple(range(training.iterations)))
    answered(logs.fetch({None: range(4)}), training.table())
    for leaves, whose in (([pair], ["host"]), ([pair, tensor], ["device"] * 2), ([tensor, pair], ["device"] * 2)):
        told, _ = answered(slow_hosts(logs, leaves, training.baseline, HostSettings()), training.table())
        assert told == whose


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_a_host_that_delays_each_process_by_itself_is_slow(ends: bool) -> None:
    assert calls_apart(lambda rank, number: 4.0 * ((rank + number) % 4), ends=ends) == "host"


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_members_that_call_further_apart_than_was_lost_came_late_from_elsewhere(ends: bool) -> None:
    assert calls_apart(lambda rank, number: 4.0 * ((rank + number) % 4), lost_ms=4.0, ends=ends) != "host"


def test_members_that_met_in_parts_before_call_apart_by_slow_links_as_well() -> None:
    def extra(rank: int, number: int) -> float:
        return 4.0 * ((rank // 2 + number) % 2)

    assert calls_apart(extra) == "host"
    assert calls_apart(extra, parts=[(0, 1), (2, 3)]) == "either"


@pytest.mark.parametrize(
    ("extra", "transfer_ms"),
    [
        (lambda rank, number: 0.0, 12.0),
        (lambda rank, number: 12.0, 0.0),
        (lambda rank, number: 12.0 * (rank == 1), 0.0),
    ],
    ids=["slow links", "all are delayed alike", "one GPU"],
)
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_members_that_call_as_far_apart_as_usual_or_for_one_of_them_do_not_tell_of_their_host(
    extra: Callable[[int, int], float], transfer_ms: float, ends: bool
) -> None:
    assert calls_apart(extra, transfer_ms, ends=ends) == ("device" if ends else "either")


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
@pytest.mark.parametrize("tp", [2, 4])
def test_a_busy_cpu_is_told_from_nvlinks_in_hard_noise(tp: int, ends: bool) -> None:
    """It launches what the tensor parallel groups send late as well; of what its ranks lose nothing else is named."""
    scenario = Scenario(
        seed=41,
        tp=tp,
        pp=2,
        dp=8 // tp,
        microbatches=4,
        layers=4,
        iterations=18,
        gpus_per_host=8,
        noise=PROFILES["hard"],
        faults=(slow(Kind.CPU_SLOW, 3),),
        omissions=Omissions(ends=not ends),
    )
    for iteration in FAULTY:
        location, _ = located(simulate(scenario), iteration)
        assert [(culprit.cause, culprit.ranks) for culprit in location.culprits] == [("host_slow", tuple(range(8)))]


def test_a_gpu_that_loses_far_more_than_its_slow_host_is_named_beside_it() -> None:
    faults = Fault(Kind.CPU_SLOW, 4, FAULTY, slowdown=1.15), gpu_slow(5, slowdown=1.7)
    location, _ = located(run(*faults, **HOSTS_OF_FOUR))
    assert ("compute_slow", (5,)) in {(culprit.cause, culprit.ranks) for culprit in location.culprits}
