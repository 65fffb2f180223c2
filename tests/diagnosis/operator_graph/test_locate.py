"""From an irregular iteration to its culprits, on small jobs: who is named, who never is, and what it takes."""

from collections.abc import Generator, Mapping
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.irregularity.monitor import IterationMonitor
from diagnosis.job import Job, Layout
from diagnosis.operator_graph.locate import (
    Irregularity,
    LocateSettings,
    Location,
    locate,
)
from diagnosis.operator_graph.needs import Answer, Needs
from producers.simulation import Fault, Kind, Part
from producers.simulation.relabel import relabelled
from tests.diagnosis.answering import answered
from tests.diagnosis.made_logs import MS, Collective, Compute, Recv, Send, Step, Training
from tests.diagnosis.operator_graph.small_jobs import (
    BASELINE,
    FAULTY,
    gpu_slow,
    irregularity,
    located,
    named,
    nic_slow,
    run,
)

AS_PUBLISHED = LocateSettings(search="algorithm_1")


def of_training(training: Training, *, excess_ms: float, pivots: tuple[int, ...] = (0,)) -> Irregularity:
    return Irregularity(training.irregular, training.baseline, pivots, int(excess_ms * MS))


@pytest.mark.parametrize("iteration", FAULTY)
@pytest.mark.parametrize("rank", [0, 3, 5, 6])
def test_a_slow_gpu(rank: int, iteration: int) -> None:
    location, _ = located(run(gpu_slow(rank)), iteration)
    assert named(location) == {("compute_slow", "device", (rank,))}
    [culprit] = location.culprits
    assert culprit.devices == (run(gpu_slow(rank)).job.gpu(rank),)
    assert culprit.share > 0.7
    assert culprit.path[-1] == rank
    assert 0.998 < location.coverage <= 1.0  # lines are lost


@pytest.mark.parametrize("iteration", FAULTY)
@pytest.mark.parametrize("rank", [2, 6])
def test_a_slow_nic(rank: int, iteration: int) -> None:
    location, _ = located(run(nic_slow(rank)), iteration)
    assert named(location) == {("communication_slow", "device", (rank,))}
    assert [device.kind for device in location.culprits[0].devices] == ["nic"]


def test_both_at_once() -> None:
    location, _ = located(run(gpu_slow(5), nic_slow(2)))
    assert named(location) == {("compute_slow", "device", (5,)), ("communication_slow", "device", (2,))}
    first, second = location.culprits
    assert first.share >= second.share


@pytest.mark.parametrize("fault", [gpu_slow(5), nic_slow(2), gpu_slow(3), nic_slow(6)], ids=str)
def test_logs_without_ends_blame_the_same(fault: Fault) -> None:
    told, _ = located(run(fault))
    bare, _ = located(run(fault, ends=False))
    assert named(told) == named(bare)


def test_a_fault_that_bubbles_hide_is_nothing() -> None:
    """It makes no iteration irregular, and is not blamed for what another device does."""
    hidden = run(gpu_slow(0, 1.004, part=Part.FORWARD))
    monitor = IterationMonitor()
    judged = [monitor.judge(i, duration) for i, duration in enumerate(hidden.truth.durations_ns)]
    assert not any(judgement.irregular for judgement in judged)
    location, _ = located(run(gpu_slow(0, 1.004), nic_slow(6)))
    assert named(location) == {("communication_slow", "device", (6,))}


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_iteration_that_is_long_by_chance_blames_nobody(seed: int) -> None:
    healthy = run(seed=seed)
    longest = max(FAULTY, key=lambda i: healthy.truth.durations_ns[i])
    asked = replace(irregularity(healthy, longest), excess_ns=int(0.1 * healthy.truth.durations_ns[longest]))
    location, _ = answered(locate(healthy.job, asked), healthy.table)
    assert location.culprits == ()


def alike(ms: float, *slow: int, more_ms: float = 0) -> Training:
    """Eight ranks in two groups; all compute ``ms`` longer in the last iteration, the slow ones ``more_ms`` on top."""

    def program(rank: int) -> list[Step]:
        extra = ms + (more_ms if rank in slow else 0)
        return [Compute(30, extra_ms=extra), Collective(f"g{rank // 4}"), Compute(10), Collective("all")]

    groups = {"g0": (0, 1, 2, 3), "g1": (4, 5, 6, 7), "all": tuple(range(8))}
    return Training({rank: program(rank) for rank in range(8)}, groups)


@pytest.mark.parametrize("pivots", [(0, 2, 5, 7), (1, 3, 4)])
def test_what_all_ranks_compute_longer_is_nobodys_fault(pivots: tuple[int, ...]) -> None:
    training = alike(40)
    location, _ = answered(locate(training.job(), of_training(training, excess_ms=40, pivots=pivots)), training.table())
    assert location.culprits == ()


def replicas_without_ends(longer: tuple[int, ...], *, fabric_ms: float = 0) -> tuple[Training, Job, pa.Table]:
    """Two replicas of two stages, a tensor group of two on each host; some ranks compute 40 ms longer, or the first
    group's transfers are slow. No ends are logged.
    """
    tensors = {f"t{first // 2}": (first, first + 1) for first in range(0, 8, 2)}

    def program(rank: int) -> list[Step]:
        group, extra = f"t{rank // 2}", 20 if rank in longer else 0
        layer: list[Step] = [Compute(5), Collective(group, extra_ms=fabric_ms if group == "t0" else 0)]
        layers = [*layer, Compute(30, extra_ms=extra), *layer, Compute(30, extra_ms=extra), *layer]
        handed: list[Step] = [Recv(rank - 4)] if rank >= 4 else []
        passed: list[Step] = [Send(rank + 4)] if rank < 4 else []
        return [*handed, *layers, *passed, Collective("all")]

    training = Training({rank: program(rank) for rank in range(8)}, {**tensors, "all": tuple(range(8))})
    places = tuple(replace(place, host=f"h{place.rank // 2}") for place in training.job().places)
    job = replace(training.job(), places=places, layout=Layout(tp=2, pp=2, dp=2))
    table = training.table()
    ends = pa.nulls(len(table), pa.int64())
    return training, job, table.set_column(table.schema.get_field_index("end_ns"), "end_ns", ends)


@pytest.mark.parametrize("pivots", [(0, 3, 5, 6), (0, 4), (1, 5, 7)])
def test_longer_sequences_of_a_replica_are_no_slow_nvlinks_where_ends_are_not_logged(pivots: tuple[int, ...]) -> None:
    training, job, table = replicas_without_ends((0, 1, 4, 5))
    location, _ = answered(locate(job, of_training(training, excess_ms=80, pivots=pivots)), table)
    assert location.culprits == ()


@pytest.mark.parametrize("pivots", [(0, 3, 5, 6), (0, 4), (1, 5, 7)])
def test_slow_nvlinks_are_told_though_ends_are_not_logged(pivots: tuple[int, ...]) -> None:
    training, job, table = replicas_without_ends((), fabric_ms=15)
    location, _ = answered(locate(job, of_training(training, excess_ms=45, pivots=pivots)), table)
    [culprit] = location.culprits
    assert (culprit.cause, culprit.ranks) == ("communication_slow", (0, 1))
    assert "nvlink" in {device.kind for device in culprit.devices}


@pytest.mark.parametrize("culprit", [2, 5, 6])
def test_a_culprit_beside_a_common_slowdown_bears_only_its_own_part(culprit: int) -> None:
    training = alike(20, culprit, more_ms=60)
    asked = of_training(training, excess_ms=80, pivots=(0, 2, 5, 7))
    location, _ = answered(locate(training.job(), asked), training.table())
    assert named(location) == {("compute_slow", "device", (culprit,))}
    assert location.culprits[0].excess_ns == pytest.approx(60 * MS, rel=0.03)


@pytest.mark.parametrize("phase", [0, 3, 6])
@pytest.mark.parametrize("common_ms", [0, 5, 10])
def test_so_does_one_that_the_walk_comes_to_amid_the_iteration(phase: int, common_ms: float) -> None:
    """Of what all lose in common as much is its own as of the iteration lies before it was awaited."""

    def program(rank: int) -> list[Step]:
        own = [60 if (rank, at) == (2, phase) else 0 for at in range(7)]
        return [step for more in own for step in (Compute(10, extra_ms=common_ms + more), Collective("g"))]

    training = Training({rank: program(rank) for rank in range(5)}, {"g": tuple(range(5))})
    asked = of_training(training, excess_ms=60 + 7 * common_ms, pivots=(0, 1, 3))
    location, _ = answered(locate(training.job(), asked), training.table())
    assert named(location) == {("compute_slow", "device", (2,))}
    assert location.culprits[0].excess_ns == pytest.approx(60 * MS, rel=0.05)


def lost(table: pa.Table, rank: int, **where: object) -> pa.Table:
    """The log without some lines of a rank."""
    gone = pc.equal(table.column("rank"), rank)
    for name, value in where.items():
        gone = pc.and_(gone, pc.equal(table.column(name).cast(pa.string()), str(value)))
    return table.filter(pc.invert(gone))


def test_who_does_not_know_what_it_lost_is_no_witness_that_it_lost_nothing() -> None:
    """A congested fabric slows all transfers alike: one lost line of one rank makes it nobody's fault no less."""
    pairs = {f"p{i}": (2 * i, 2 * i + 1) for i in range(4)}
    program: dict[int, list[Step]] = {
        rank: [Compute(), Collective(f"p{rank // 2}", extra_ms=50), Collective("all")] for rank in range(8)
    }
    training = Training(program, {**pairs, "all": tuple(range(8))})
    asked = of_training(training, excess_ms=50, pivots=(0, 2, 4, 6))
    table = training.table()
    line = lost(table, 7, iteration=training.irregular, communicator="p3")
    before = pc.less(table.column("iteration"), training.irregular - 1)
    late = table.filter(pc.invert(pc.and_(pc.equal(table.column("rank"), 6), before)))
    for told, missing in ((table, ()), (line, ()), (late, ()), (table, (7,))):
        location, _ = answered(locate(training.job(), asked), told, missing)
        assert location.culprits == ()


def test_nor_is_one_whose_log_began_just_before() -> None:
    """Longer sequences: all compute longer alike."""
    program: dict[int, list[Step]] = {rank: [Compute(30, extra_ms=40), Collective("all")] for rank in range(5)}
    training = Training(program, {"all": tuple(range(5))})
    asked = of_training(training, excess_ms=40, pivots=(0, 1, 2, 3))
    table = training.table()
    late = table.filter(
        pc.invert(
            pc.and_(pc.equal(table.column("rank"), 3), pc.less(table.column("iteration"), training.irregular - 1))
        )
    )
    location, _ = answered(locate(training.job(), asked), late)
    assert location.culprits == ()


@pytest.mark.parametrize(("first_ms", "second_ms", "both"), [(50, 20, False), (50, 30, True), (40, 20, True)])
def test_who_lost_little_beside_one_who_explains_all_changed_nothing(
    first_ms: float, second_ms: float, both: bool
) -> None:
    """Rank 5 is late as well, but everybody waits for rank 3 anyway; unless 50 ms are not all explained by it."""

    def program(rank: int) -> list[Step]:
        extra = {3: first_ms, 5: second_ms}.get(rank, 0.0)
        return [Compute(30, extra_ms=extra), Collective("all"), Compute(), Collective("all")]

    training = Training({rank: program(rank) for rank in range(8)}, {"all": tuple(range(8))})
    asked = of_training(training, excess_ms=50, pivots=(0, 2, 5, 7))
    location, _ = answered(locate(training.job(), asked), training.table())
    assert named(location) == {("compute_slow", "device", (rank,)) for rank in ((3, 5) if both else (3,))}


def test_a_single_pivot_that_is_the_culprit_itself() -> None:
    location, _ = located(run(gpu_slow(5)), starts=(5,))
    assert named(location) == {("compute_slow", "device", (5,))}


@pytest.mark.parametrize("fault", [gpu_slow(5), nic_slow(6)], ids=["gpu", "nic"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
def test_a_culprit_whose_logs_are_missing_is_unknown(fault: Fault, ends: bool) -> None:
    faulty = run(fault, ends=ends)
    away = faulty.job.ranks_of_host[faulty.job.place[faulty.truth.faults[0].rank].host or ""]
    pivots = tuple(rank for rank in faulty.job.ranks if rank not in away)[::2]
    location, asked = located(faulty, missing=away, starts=pivots)
    assert location.culprits == ()
    assert location.coverage < 1
    assert asked.ranks & set(away)


@pytest.mark.parametrize("away", [(0, 1), (4, 5), (6, 7)])
def test_a_culprit_is_found_though_a_pivot_does_not_answer(away: tuple[int, ...]) -> None:
    """Not even the first one, whose clock the others would be read on."""
    location, _ = located(run(gpu_slow(3)), missing=away, starts=(away[0], 2, 3))
    assert named(location) == {("compute_slow", "device", (3,))}
    assert location.coverage < 1


def test_nobody_answers() -> None:
    faulty = run(gpu_slow(5))
    location, asked = located(faulty, missing=faulty.job.ranks)
    assert (location.culprits, location.coverage, asked.rows) == ((), 0.0, 0)


@pytest.mark.parametrize("fault", [gpu_slow(5), nic_slow(6)], ids=["gpu", "nic"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
@pytest.mark.parametrize("rows", [200, 2_000, 5_000, 10_000])
def test_a_search_that_holds_few_rows_names_the_culprit_or_says_that_it_was_bounded(
    fault: Fault, ends: bool, rows: int
) -> None:
    faulty = run(fault, ends=ends)
    asked = irregularity(faulty, FAULTY[0])
    location, _ = answered(locate(faulty.job, asked, LocateSettings(most_rows=rows)), faulty.table)
    culprit = faulty.truth.faults[0].rank
    assert {rank for _, _, ranks in named(location) for rank in ranks} <= {culprit}
    assert location.bounded or location.culprits


def test_mixed_slowness_of_one_rank() -> None:
    """Rank 1 computes and sends slowly: one culprit, both devices."""
    training = Training(
        {
            0: [Compute(10), Recv(1), Compute(), Collective("all")],
            1: [Compute(10, extra_ms=40), Send(0), Compute(), Send(2, extra_ms=40), Collective("all")],
            2: [Compute(10), Recv(1), Compute(), Collective("all")],
            3: [Compute(), Send(4), Compute(), Collective("all")],
            4: [Compute(), Recv(3), Compute(), Collective("all")],
        },
        {"all": tuple(range(5))},
    )
    asked = of_training(training, excess_ms=80, pivots=(0, 2, 3))
    location, _ = answered(locate(training.job(), asked), training.table())
    [culprit] = [c for c in location.culprits if 1 in c.ranks and c.level == "device"]
    assert culprit.ranks == (1,)
    assert culprit.cause in {"compute_slow", "mixed_slow"}
    assert {c.cause for c in location.culprits} & {"mixed_slow", "communication_slow"}


@pytest.mark.parametrize(("fault", "rank"), [(gpu_slow(5), 5), (nic_slow(2), 2)], ids=["gpu", "nic"])
def test_the_irregularity_rate_is_of_the_operator_that_lasted_long(fault: Fault, rank: int) -> None:
    """A straggler's own operator is short: what is asked for is the series of one that waited for it."""
    location, asked = located(run(fault), 16)
    [culprit] = location.culprits
    [need] = [need for need in asked.needs if need.what == "series"]
    assert (need.iterations, need.communicator) == (tuple(range(5, 17)), culprit.operator.communicator)
    assert len(need.ranks) == 1
    assert fault.kind is Kind.NIC_SLOW or need.ranks != (rank,)
    assert culprit.irregularity_rate == pytest.approx(
        float(np.corrcoef(culprit.operator_ns, culprit.iteration_ns)[0, 1]), abs=1e-6
    )
    assert culprit.irregularity_rate > 0.9
    durations = run(fault).truth.durations_ns
    assert len(culprit.iteration_ns) == len(culprit.operator_ns) > 9
    if len(culprit.iteration_ns) == 12:
        assert np.corrcoef(culprit.iteration_ns, durations[5:17])[0, 1] > 0.98


def test_a_series_that_does_not_come_leaves_the_time_that_the_culprit_lost() -> None:
    slow = run(gpu_slow(5))
    without, _ = located(slow, 16, settings=LocateSettings(series_iterations=0))
    silent, asked = answered(_without_series(locate(slow.job, irregularity(slow, 16))), slow.table)
    assert silent == without
    assert not [need for need in asked.needs if need.what == "series"]


def _without_series(search: Generator[Needs, Answer, Location]) -> Generator[Needs, Answer, Location]:
    """A search whose series nobody answers."""
    needs = next(search)
    while True:
        nobody = all(need.what == "series" for need in needs)
        answer = Answer(pa.table({})) if nobody else (yield needs)
        try:
            needs = search.send(answer)
        except StopIteration as ended:
            found: Location = ended.value
            return found


def test_the_time_that_a_culprit_lost_correlates_with_the_iterations() -> None:
    location, _ = located(run(gpu_slow(5)), 16, settings=LocateSettings(series_iterations=0))
    [culprit] = location.culprits
    assert len(culprit.operator_ns) == len(culprit.iteration_ns) == len(BASELINE) + 1
    assert culprit.irregularity_rate == pytest.approx(
        float(np.corrcoef(culprit.operator_ns, culprit.iteration_ns)[0, 1]), abs=1e-6
    )
    assert culprit.irregularity_rate > 0.9
    durations = run(gpu_slow(5)).truth.durations_ns
    assert np.corrcoef(culprit.iteration_ns, [durations[i] for i in (*BASELINE, 16)])[0, 1] > 0.98


def test_an_iterations_duration_reaches_to_its_last_end() -> None:
    """The slow transfer is the iteration's last operator: its calls alone would not show it."""
    training = Training(
        {rank: [Compute(), Collective("g"), Compute(), Collective("g", extra_ms=50)] for rank in range(2)},
        {"g": (0, 1)},
    )
    location, _ = answered(locate(training.job(), of_training(training, excess_ms=50)), training.table())
    [culprit] = location.culprits
    assert culprit.iteration_ns[-1] - np.mean(culprit.iteration_ns[:-1]) == pytest.approx(50 * MS, rel=0.05)
    assert culprit.irregularity_rate > 0.95


def test_iterations_that_the_log_lost_are_left_out_of_the_series() -> None:
    faulty = run(gpu_slow(5))
    [pivot] = {located(faulty)[0].culprits[0].path[0]}
    gone = pc.and_(pc.equal(faulty.table.column("rank"), pivot), pc.equal(faulty.table.column("iteration"), 9))
    location, _ = located(faulty, table=faulty.table.filter(pc.invert(gone)))
    [culprit] = location.culprits
    assert culprit.ranks == (5,)
    assert 0 not in culprit.iteration_ns


def test_so_are_those_of_which_nobody_knows_what_the_culprit_lost() -> None:
    faulty = run(gpu_slow(5))
    gone = pc.and_(pc.equal(faulty.table.column("rank"), 5), pc.equal(faulty.table.column("iteration"), 9))
    without_series = LocateSettings(series_iterations=0)
    location, _ = located(faulty, table=faulty.table.filter(pc.invert(gone)), settings=without_series)
    [culprit] = location.culprits
    assert culprit.ranks == (5,)
    assert len(culprit.operator_ns) == len(culprit.iteration_ns) == len(BASELINE)


@pytest.mark.parametrize("fault", [gpu_slow(37), nic_slow(37)], ids=["gpu", "nic"])
def test_only_the_logs_that_are_needed_are_asked_for(fault: Fault) -> None:
    faulty = run(fault, dp=16, gpus_per_host=8)
    location, asked = located(faulty)
    assert [culprit.ranks for culprit in location.culprits] == [(37,)]
    iterations = {iteration for need in asked.needs if need.what == "rows" for iteration in need.iterations}
    assert iterations == {*BASELINE, 13, 14}
    everything = pc.is_in(faulty.table.column("iteration"), pa.array(sorted(iterations), pa.int32()))
    assert asked.rows < 0.45 * pc.sum(everything).as_py()
    whole = {rank for need in asked.needs if need.communicator is None for rank in need.ranks}
    assert len(whole) <= 16  # of 64
    assert asked.rounds <= 8


def test_the_order_of_rows_and_of_pivots_does_not_matter() -> None:
    faulty = run(gpu_slow(5), nic_slow(2))
    expected, _ = located(faulty)
    order = np.random.default_rng(1).permutation(len(faulty.table))
    shuffled, _ = located(faulty, table=faulty.table.take(pa.array(order)))
    assert shuffled == expected
    backwards, _ = located(faulty, starts=irregularity(faulty).pivots[::-1])
    assert named(backwards) == named(expected)


def test_the_same_again_gives_the_same() -> None:
    assert located(run(nic_slow(2))) == located(run(nic_slow(2)))


def summary(location: Location, ranks: Mapping[int, int], hosts: Mapping[str, str]) -> list[tuple[object, ...]]:
    """What is said of the culprits, under other names."""

    def device(name: str) -> str:
        kind, _, place = name.partition(":")
        host, _, index = place.partition("/")
        return f"{kind}:{hosts[host]}/{index}"

    return sorted(
        (
            culprit.cause,
            culprit.level,
            sorted(ranks[rank] for rank in culprit.ranks),
            sorted(sorted(ranks[rank] for rank in candidate) for candidate in culprit.candidates),
            sorted(device(d.device) for d in culprit.devices),
            ranks[culprit.operator.rank],
            (culprit.operator.position, culprit.operator.op, culprit.operator.phase, culprit.operator.microbatch),
            round(culprit.share, 4),
            [ranks[rank] for rank in culprit.path],
        )
        for culprit in location.culprits
    )


@settings(max_examples=6)
@given(
    st.sampled_from([(gpu_slow(5),), (nic_slow(2),), (gpu_slow(6), nic_slow(2))]),
    st.permutations(range(8)),
    st.permutations(["h0", "h1", "h2", "h3"]),
)
def test_other_names_change_the_names_in_the_answer_and_nothing_else(
    faults: tuple[Fault, ...], ranks: list[int], hosts: list[str]
) -> None:
    plain = run(*faults)
    of_rank, of_host = dict(enumerate(ranks)), {f"h{i}": f"machine-{host}" for i, host in enumerate(hosts)}
    renamed = relabelled(plain, of_rank, of_host, lambda name: f"c{name[::-1]}")
    starts = irregularity(plain).pivots
    expected, asked = located(plain, starts=starts)
    found, asked_under_other_names = located(renamed, starts=[of_rank[rank] for rank in starts])
    same = {rank: rank for rank in range(8)}
    assert summary(found, same, {name: name for name in of_host.values()}) == summary(expected, of_rank, of_host)
    assert {of_rank[rank] for rank in asked.ranks} == asked_under_other_names.ranks


def test_the_published_search_names_gpus_and_whole_groups() -> None:
    slow = Training(
        {
            rank: [Compute(), Collective("g"), Compute(extra_ms=50 if rank == 3 else 0), Collective("g")]
            for rank in range(4)
        },
        {"g": (0, 1, 2, 3)},
    )
    asked = of_training(slow, excess_ms=50, pivots=(0, 2))
    location, _ = answered(locate(slow.job(), asked, AS_PUBLISHED), slow.table())
    assert named(location) == {("compute_slow", "device", (3,))}
    assert location.culprits[0].irregularity_rate > 0.9
    link = replace(slow, programs={rank: [Compute(), Collective("g", extra_ms=50)] for rank in range(4)})
    location, _ = answered(locate(link.job(), asked, AS_PUBLISHED), link.table())
    assert named(location) == {("communication_slow", "group", (0, 1, 2, 3))}
    assert location.culprits[0].candidates == ((0,), (1,), (2,), (3,))


def test_every_setting_has_a_default() -> None:
    assert LocateSettings().search == "attribution"
    assert all(getattr(LocateSettings(), field.name) is not None for field in fields(LocateSettings))
