"""Who is slow where nothing is usual yet: whoever is slower than those like it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.irregularity.like_ranks import LikeRanksSettings, Slow, compare
from diagnosis.irregularity.summaries import Summaries
from diagnosis.job import Job
from schemas.catalogue import ITERATION_SUMMARIES
from tests.diagnosis.irregularity.made_iterations import EQUAL, GROUPS, MS, RANKS, SLOW_GPU, Made, job

SETTINGS = LikeRanksSettings()


def found(
    told: Made, of: Job | None = None, settings: LikeRanksSettings = SETTINGS, *, ended: bool = True
) -> tuple[Slow, ...]:
    of = of or job()
    taken = Summaries()
    taken.take(told.summaries(ended=ended), of)
    return slow_of(taken, of, settings)


def slow_of(taken: Summaries, of: Job, settings: LikeRanksSettings = SETTINGS) -> tuple[Slow, ...]:
    compared = compare(taken, of, settings)
    return compared.slow if compared else ()


def test_equal_ranks_are_not_slow() -> None:
    assert found(EQUAL) == ()


@given(st.sampled_from(RANKS), st.floats(95, 400), st.booleans())
def test_the_gpu_that_computes_for_longer_is_named_and_none_that_waits(rank: int, ms: float, hosts: bool) -> None:
    of = job(hosts=hosts)
    [slow] = found(Made(compute_ms={rank: ms}), of)
    assert (slow.cause, slow.level, slow.ranks, slow.candidates) == ("compute_slow", "device", (rank,), ())
    assert slow.devices == (of.gpu(rank),)
    assert slow.excess_ns == pytest.approx((ms - 80) * MS, abs=10)


def test_what_makes_the_iteration_hardly_longer_is_not_told() -> None:
    assert found(Made(compute_ms={5: 86.0})) == ()
    assert len(found(Made(compute_ms={5: 86.0}), settings=replace(SETTINGS, delta=1.05))) == 1


def test_all_ranks_of_a_host_are_its_cpu() -> None:
    [slow] = found(Made(compute_ms={4: 121.0, 5: 120.0}))
    assert (slow.cause, slow.level, slow.ranks) == ("host_slow", "machine", (4, 5))
    assert [device.device for device in slow.devices] == ["cpu:h2"]


def test_what_many_share_is_nobodys_fault() -> None:
    assert found(Made(compute_ms={0: 120.0, 3: 120.0, 5: 120.0})) == ()


def test_who_waits_for_its_pipelines_neighbour_is_not_slow() -> None:
    """A late stage keeps the stages after it: these are in no collective meanwhile, but in a receive."""
    assert found(Made(late_ms={4: 40.0})) == ()
    assert found(Made(compute_ms={4: 120.0}, late_ms={5: 40.0}))[0].ranks == (4,)


def test_a_channel_that_is_slow_alone_names_its_members() -> None:
    [slow] = found(Made(transfer_ms={"dp1": 42.0}))
    assert (slow.cause, slow.level, slow.ranks) == ("communication_slow", "group", GROUPS["dp1"])
    assert slow.candidates == tuple((rank,) for rank in GROUPS["dp1"])
    assert slow.communicator == "dp1"
    assert slow.excess_ns == 40 * MS
    assert {device.kind for device in slow.devices} == {"nic"}


def test_the_member_whose_other_channels_are_slow_as_well_is_named() -> None:
    [slow] = found(Made(transfer_ms={"dp1": 42.0, "cp11": 22.0}))
    assert (slow.cause, slow.ranks) == ("communication_slow", GROUPS["dp1"]), "both members of cp11 are in dp1"
    [slow] = found(Made(transfer_ms={"cp11": 42.0, "dp1": 30.0}))
    assert slow.ranks == GROUPS["cp11"], "what all of them share tells nobody apart"
    [slow] = found(Made(transfer_ms={"dp1": 42.0, "cp11": 22.0, "ep56": 30.0}))
    assert (slow.level, slow.ranks, slow.candidates) == ("device", (5,), ())


def test_slow_transfers_within_a_host_are_its_nvlinks() -> None:
    [slow] = found(Made(transfer_ms={"tp2": 42.0}))
    assert (slow.cause, slow.ranks) == ("communication_slow", (4, 5))
    assert [device.device for device in slow.devices] == ["nvlink:h2"]


def test_beside_the_slowest_only_who_loses_as_much_counts() -> None:
    both = Made(compute_ms={5: 180.0}, transfer_ms={"dp1": 22.0})
    assert [slow.ranks for slow in found(both)] == [(5,)]
    assert [slow.cause for slow in found(Made(compute_ms={5: 120.0}, transfer_ms={"dp1": 41.0}))] == [
        "compute_slow",
        "communication_slow",
    ]


def test_who_did_not_tell_is_unknown() -> None:
    assert found(SLOW_GPU, ended=False) == ()
    taken = Summaries()
    taken.take(SLOW_GPU.summaries(lost=[5]), job())
    assert 5 not in taken.ranks
    assert slow_of(taken, job()) == ()
    few = Summaries()
    few.take(SLOW_GPU.summaries(ranks=(4, 5, 6)), job())
    assert slow_of(few, job()) == ()
    assert slow_of(few, job(), replace(SETTINGS, least_told=0.3))[0].ranks == (5,)
    assert slow_of(Summaries(), job()) == ()


def test_whose_operators_lasted_for_years_is_unknown() -> None:
    """As by a clock that was set amid them; the sum of several is beyond 64 bits."""
    taken, rows = Summaries(), SLOW_GPU.summaries().to_pylist()
    for one in rows[5]["by_operator"]:
        one["duration_sum_ns"] = 1 << 62
    taken.take(ITERATION_SUMMARIES.from_rows(rows), job())
    assert taken.unknown == {rows[5]["rank"]} == {5}
    assert slow_of(taken, job()) == ()


def test_a_few_lost_lines_took_as_long_as_the_others() -> None:
    """With a line lost rank 5 runs the same program still, and was as long in its operators as the others say."""
    of, taken = job(), Summaries()
    rows = SLOW_GPU.summaries().to_pylist()
    for row in rows:
        row["operators"] = 100 - (row["rank"] == 5)
        row["lost_lines"] = int(row["rank"] == 5)
    taken.take(ITERATION_SUMMARIES.from_rows(rows), of)
    [slow] = slow_of(taken, of)
    assert slow.ranks == (5,)
    assert slow.excess_ns == pytest.approx(40 * MS, rel=0.02)


def test_a_rank_that_is_not_the_jobs_tells_nothing() -> None:
    taken, of = Summaries(), job()
    taken.take(SLOW_GPU.summaries(), replace(of, places=of.places[:4]))
    assert sorted(taken.ranks) == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 200), st.lists(st.integers(0, 300), min_size=5, max_size=5)), min_size=8))
def test_whatever_is_told_no_more_than_the_iteration_is_lost(told: list[tuple[int, list[int]]]) -> None:
    """Operators may overlap, and clocks may be set amid them."""
    of, taken, rows = job(), Summaries(), EQUAL.summaries().to_pylist()
    for row, (span, durations) in zip(rows, told, strict=False):
        row["end_ns"] = row["start_ns"] + span
        for one, ns in zip(row["by_operator"], durations, strict=True):
            one["duration_sum_ns"] = ns
    taken.take(ITERATION_SUMMARIES.from_rows(rows), of)
    for slow in slow_of(taken, of, SETTINGS):
        assert 0 < slow.excess_ns <= max(rank.span_ns for rank in taken.ranks.values())
        assert set(slow.ranks) <= set(RANKS)


def test_ranks_of_another_program_are_not_compared() -> None:
    """One that alone takes part in more has nobody like it."""
    of = job()
    taken = Summaries()
    taken.take(SLOW_GPU.summaries(), of)
    taken.ranks[5] = taken.ranks[5]._replace(program=taken.programs.setdefault("another", len(taken.programs)))
    assert slow_of(taken, of) == ()


@given(st.permutations([(rank,) for rank in RANKS]))
def test_the_order_in_which_ranks_tell_does_not_matter(order: list[tuple[int]]) -> None:
    of, taken = job(), Summaries()
    for ranks in order:
        taken.take(SLOW_GPU.summaries(ranks=ranks), of)
        taken.take(EQUAL.summaries(ranks=ranks), of)  # what is told again is not taken in
    assert slow_of(taken, of) == found(SLOW_GPU)
    assert Summaries.from_state(taken.to_state()) == taken


def test_a_channel_beside_another_one_of_the_same_members_is_like_none() -> None:
    """Embedding and model parallel groups of a pipeline both add up once an iteration, 9 ms against nothing."""
    of = job()
    twins = tuple(replace(one, communicator=f"mp{one.communicator}") for one in of.communicators[:6])
    told = Made(transfer_ms={"dp1": 42.0}).summaries().to_pylist()
    for row in told:
        row["by_operator"] += [
            {**one, "communicator": f"mp{one['communicator']}", "duration_sum_ns": 0}
            for one in row["by_operator"]
            if f"mp{one['communicator']}" in {twin.communicator for twin in twins}
        ]
    taken = Summaries()
    of = replace(of, communicators=(*of.communicators, *twins))
    taken.take(ITERATION_SUMMARIES.from_rows(told), of)
    compared = compare(taken, of, SETTINGS)
    assert compared is not None
    assert not {twin.communicator for twin in twins} & compared.communicators


def test_channels_that_are_slow_in_number_are_nobodys_fault() -> None:
    assert found(Made(transfer_ms={"ep03": 42.0, "ep12": 42.0})) == ()


def test_several_ranks_of_one_host_are_not_named_one_by_one() -> None:
    of = job()
    one = replace(of, places=tuple(replace(place, host="h0") for place in of.places))
    assert found(Made(compute_ms={0: 120.0, 1: 120.0, 4: 120.0, 5: 120.0}), one) == ()
    assert found(SLOW_GPU, one)[0].ranks == (5,)


def test_pipelines_without_known_stages_are_not_compared() -> None:
    """One stage has more to compute than another."""
    of = replace(job(), layout=None)
    late = Made(compute_ms={5: 120.0}, late_ms=dict.fromkeys(RANKS, 1.0))
    assert found(late)[0].ranks == (5,)
    assert found(late, of) == ()
    assert found(SLOW_GPU, of)[0].ranks == (5,)


def test_a_rank_that_is_told_twice_at_once_counts_once() -> None:
    of, taken = job(), Summaries()
    rows = SLOW_GPU.summaries(ranks=(0, 1, 2, 3, 4, 4, 6, 7))
    taken.take(rows, of)
    assert taken.channels["tp2"].members == 1
    assert slow_of(taken, of) == ()
