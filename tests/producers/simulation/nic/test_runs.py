"""What agents tell of simulated jobs: whole, bounded, the same for the same seed, and nothing of the truth."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from diagnosis.job import Job
from producers.collectors import poll as polls
from producers.simulation.nic import (
    COMBINATIONS,
    DEFAULT,
    HARD,
    QUIET,
    Combination,
    Fault,
    Hardware,
    HotExperts,
    Injection,
    NicScenario,
    Noise,
    Setup,
    Workload,
    faulty,
    healthy,
)
from producers.simulation.nic.background import bursts
from producers.simulation.nic.names import Names
from producers.simulation.nic.run import simulate_nics
from producers.simulation.nic.training import Routing
from schemas.catalogue import COMM_OPS, JOBS
from schemas.errors import SettingsError
from schemas.message import decode, encode
from tests.producers.simulation.nic.small import EXPERTS, PIPELINE, SMALL, Told, column, told

LOSSLESS = dataclasses.replace(SMALL.hardware, loss_share=0.0)
EXACT = dataclasses.replace(SMALL, hardware=LOSSLESS)


@pytest.mark.parametrize("scenario", [SMALL, PIPELINE, EXPERTS], ids=["data", "pipeline", "experts"])
def test_every_nic_reports_every_epoch_once(scenario: NicScenario) -> None:
    heard = told(scenario)
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for poll in heard.polls:
        spans.setdefault((poll["host"], poll["nic"]), []).append((poll["poll_from_ns"], poll["poll_to_ns"]))
        assert (poll["poll_to_ns"] - poll["poll_from_ns"]) % poll["epoch_ns"] == 0
    assert len(spans) == scenario.world
    for found in spans.values():
        assert all(before[1] == after[0] for before, after in pairwise(found))
    assert {p.rank for p in heard.run.job.places} == {row["source_rank"] for row in heard.map}


def test_no_byte_is_lost_from_the_kernels_to_the_messages() -> None:
    heard = told(EXACT)
    counted = heard.counted
    sent: Counter[int] = Counter()
    numbers: Counter[int] = Counter()
    for row in heard.map:
        _, sizes = counted.get((row["source_rank"], row["qpn"]), (None, np.zeros(1, dtype=np.int64)))
        sent[row["source_rank"]] += int(sizes.sum())
        numbers[row["source_rank"]] += 1
    ranks, sizes = column(heard.run.truth.operators, "rank"), column(heard.run.truth.operators, "bytes")
    event = LOSSLESS.aggregation_bytes
    for rank, total in sent.items():
        expected = int(sizes[ranks == rank].sum())
        offers = 0.01 * expected  # what tells the predecessors of free buffers, and slices that were cut unevenly
        assert expected - numbers[rank] * event < total < expected + offers


def test_units_come_in_whole_events() -> None:
    units = np.concatenate([np.array(poll["units"]) for poll in told(SMALL).polls])
    assert (units * SMALL.hardware.unit_bytes % SMALL.hardware.aggregation_bytes == 0).all()


def test_a_seed_gives_the_same_bytes_and_another_one_does_not() -> None:
    first = told(EXPERTS).messages
    again = tuple(simulate_nics(EXPERTS).messages())
    assert first == again
    assert first != tuple(simulate_nics(dataclasses.replace(EXPERTS, seed=6)).messages())


def test_other_names_of_ranks_and_hosts_change_nothing_else() -> None:
    plain, renamed = told(SMALL), told(dataclasses.replace(SMALL, relabel=3))
    ranks = renamed_ranks(plain, renamed)
    assert sorted(ranks) == sorted(ranks.values()) != [ranks[r] for r in sorted(ranks)]
    other = renamed.counted
    for (rank, number), (times, sizes) in plain.counted.items():
        times_there, sizes_there = other[ranks[rank], number]
        assert np.array_equal(times, times_there)
        assert np.array_equal(sizes, sizes_there)
    calls = Counter((ranks[c["rank"]], c["communicator"], c["seq"], c["call_ns"]) for c in plain.calls)
    assert calls == Counter((c["rank"], c["communicator"], c["seq"], c["call_ns"]) for c in renamed.calls)


def test_other_names_go_to_gpus_and_nics_as_well() -> None:
    of_eight = dataclasses.replace(SMALL, tp=8)
    plain, renamed = Names(of_eight), Names(dataclasses.replace(of_eight, relabel=3))
    assert [plain.place(rank) for rank in range(8)] == list(range(8))
    assert sorted(renamed.place(rank) for rank in range(8)) == list(range(8))
    assert [renamed.nic(rank) for rank in range(8)] != [plain.nic(rank) for rank in range(8)]


def renamed_ranks(plain: Told, renamed: Told) -> dict[int, int]:
    """Each rank's other name, by what its communicators are called and its place in them."""
    places = [
        {(c.communicator, i): rank for c in heard.run.job.communicators for i, rank in enumerate(c.ranks)}
        for heard in (plain, renamed)
    ]
    return {rank: places[1][place] for place, rank in places[0].items()}


@pytest.mark.parametrize("setup", Setup)
@pytest.mark.parametrize("seed", range(71, 81))
def test_storage_checkpoints_and_other_tenants_send_in_every_run(setup: Setup, seed: int) -> None:
    """The shortest runs last 0.19 s."""
    flows = {burst.flow for burst in bursts(healthy(setup, seed), 0) if burst.begin_s < 0.18}
    assert 0 in flows
    assert flows & {1, 2, 3}
    assert flows & {4, 5, 6}


def test_flows_of_others_are_in_no_map() -> None:
    heard = told(SMALL)
    known = {(row["source_rank"], row["qpn"]) for row in heard.map}
    strangers = [key for key in heard.counted if key not in known]
    assert len({rank for rank, _ in strangers}) > SMALL.world / 2


def test_calls_are_numbered_without_a_hole_and_lie_within_their_group() -> None:
    for scenario in (PIPELINE, EXPERTS):
        calls = told(scenario).calls
        for rank in range(scenario.world):
            own = [c for c in calls if c["rank"] == rank]
            assert [c["call_id"] for c in own] == list(range(len(own)))
            for communicator in {c["communicator"] for c in own}:
                assert [c["seq"] for c in own if c["communicator"] == communicator] == list(
                    range(sum(c["communicator"] == communicator for c in own))
                )
        grouped = {c["op"] for c in calls if c["group_start_ns"] is not None}
        assert grouped == {"send", "recv"}
        assert {c["op"] for c in calls} >= {"all_reduce", "send", "recv"}


def test_sends_and_receives_of_two_ranks_agree() -> None:
    for scenario in (PIPELINE, EXPERTS):
        pairs: dict[str, list[tuple[int, int, int]]] = {"send": [], "recv": []}
        for call in sorted(told(scenario).calls, key=lambda c: (c["rank"], c["call_id"])):
            if call["op"] == "send":
                pairs["send"].append((call["rank"], call["peer"], call["count"]))
            elif call["op"] == "recv":
                pairs["recv"].append((call["peer"], call["rank"], call["count"]))
        assert Counter(pairs["send"]) == Counter(pairs["recv"])


def test_a_pipeline_runs_one_forward_one_backward() -> None:
    """The last stage answers each microbatch before it takes the next, the first one runs ahead by one."""
    heard = told(PIPELINE)
    group = next(c["communicator"] for c in heard.calls if c["rank"] == 0 and c["peer"] == 4)
    for rank, expected in (
        (4, ["recv", "send+recv", "send+recv", "send"]),
        (0, ["send", "recv+send", "recv+send", "recv"]),
    ):
        own = [c for c in heard.calls if c["rank"] == rank and c["communicator"] == group]
        per_group: dict[int, list[str]] = {}
        for call in own:
            per_group.setdefault(call["group_start_ns"], []).append(call["op"])
        told_groups = ["+".join(ops) for ops in per_group.values()][:4]
        assert Counter(told_groups[0]) == Counter(expected[0])
        assert [sorted(g.split("+")) for g in told_groups[1:3]] == [sorted(g.split("+")) for g in expected[1:3]]


def test_the_job_is_described_as_other_simulations_describe_it() -> None:
    job = told(SMALL).run.job
    message = encode(JOBS, JOBS.from_rows([job.to_row()]), job=job.job)
    [row] = decode(message, JOBS).to_pylist()
    again = Job.from_row(row)
    assert again.ranks == job.ranks
    assert again.layout == job.layout
    assert again.members == job.members
    assert again.nics(3)[0].device == job.nics(3)[0].device
    assert told(dataclasses.replace(SMALL, relabel=3)).run.job.layout is None


def test_clocks_of_nics_are_known_as_well_as_agents_say() -> None:
    exact = dataclasses.replace(SMALL, noise=dataclasses.replace(SMALL.noise, nic_clock_error_s=0.0))
    measured = {(p["host"], p["nic"], p["poll_from_ns"]): p for p in told(SMALL).polls}
    compared = 0
    for poll in told(exact).polls:
        other = measured.get((poll["host"], poll["nic"], poll["poll_from_ns"]))
        if other is not None:
            compared += 1
            assert abs(other["host_minus_nic_ns"] - poll["host_minus_nic_ns"]) <= other["clock_error_ns"]
    assert compared >= SMALL.world


def losing(scenario: NicScenario = SMALL, **shares: float) -> Told:
    return told(dataclasses.replace(scenario, noise=dataclasses.replace(scenario.noise, **shares)))


def test_lost_polls_leave_a_hole_that_is_seen() -> None:
    lossy = losing(lost_polls=0.5)
    assert len(lossy.polls) < len(told(SMALL).polls)
    assert lossy.calls == told(SMALL).calls
    assert lossy.map == told(SMALL).map


def test_lines_of_calls_are_lost_of_all_ranks_and_a_gap_of_one() -> None:
    whole = {(call["rank"], call["call_id"]): call for call in told(SMALL).calls}
    some, gap = losing(lost_calls=0.2), losing(call_gap=1.0)
    assert all(call == whole[call["rank"], call["call_id"]] for call in (*some.calls, *gap.calls))
    gone = [whole.keys() - {(call["rank"], call["call_id"]) for call in lossy.calls} for lossy in (some, gap)]
    assert {rank for rank, _ in gone[0]} == {call["rank"] for call in told(SMALL).calls}
    assert 0.1 * len(whole) < len(gone[0]) < 0.3 * len(whole)
    [rank] = {rank for rank, _ in gone[1]}
    ids = sorted(call_id for _, call_id in gone[1])
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert 0.01 <= len(ids) / sum(own == rank for own, _ in whole) <= 0.05


def test_records_of_queue_pairs_are_lost() -> None:
    whole, some = (
        {(row["nic"], row["host"], row["qpn"]) for row in one.map} for one in (told(SMALL), losing(lost_pairs=0.2))
    )
    assert some < whole
    assert 0.1 * len(whole) < len(whole - some) < 0.3 * len(whole)


def test_a_nic_that_loses_counts_says_how_many() -> None:
    lossy, whole = losing(dropping_polls=0.5), told(SMALL)
    dropped = 0
    for poll, all_of_it in zip(lossy.polls, whole.polls, strict=True):
        unit = poll["aggregation_bytes"] // poll["unit_bytes"]
        assert sum(all_of_it["units"]) - sum(poll["units"]) == poll["events_dropped"] * unit
        dropped += poll["events_dropped"] > 0
    assert 0 < dropped < len(whole.polls)


@pytest.mark.parametrize("injection", [Injection.GPU_THROTTLING, Injection.GPU_ERROR])
def test_what_is_lost_does_not_hang_on_where_the_fault_is(injection: Injection) -> None:
    """What is told of both runs, up to where the one with a fault ends."""
    fault = Fault(injection, 5, 0.1, 250.0)
    losses = {"lost_polls": 0.3, "lost_calls": 0.05, "lost_pairs": 0.05}
    quiet, faulty = losing(SMALL, **losses), losing(dataclasses.replace(SMALL, faults=(fault,)), **losses)
    of_rank = Counter(call["rank"] for call in told(dataclasses.replace(SMALL, faults=(fault,))).calls)
    made = Counter(call["rank"] for call in told(SMALL).calls)
    lost = [
        {
            (rank, call_id)
            for rank in made
            for call_id in range(min(made[rank], of_rank[rank]))
            if not any((call["rank"], call["call_id"]) == (rank, call_id) for call in heard.calls)
        }
        for heard in (quiet, faulty)
    ]
    assert lost[0] == lost[1] != set()
    assert [row["qpn"] for row in quiet.map] == [row["qpn"] for row in faulty.map]
    polls = [{(poll["host"], poll["nic"], poll["poll_from_ns"]) for poll in heard.polls} for heard in (quiet, faulty)]
    ends = {(poll["host"], poll["nic"]): poll["poll_from_ns"] for poll in told(SMALL).polls}
    until_ns = min(ends.values())  # up to there every NIC of both runs is polled
    assert len(polls[0]) < len(told(SMALL).polls)
    first, second = ({poll for poll in each if poll[2] <= until_ns} for each in polls)
    assert first == second


def lasting_s(scenario: NicScenario) -> list[float]:
    """How long iterations take, but the first."""
    ends = simulate_nics(scenario).truth.iteration_ends_ns.max(axis=1)
    return [float(ns) / 1e9 for ns in np.diff(ends)]


def test_the_last_stage_of_a_pipeline_computes_more_and_paces_the_others() -> None:
    even, uneven = (dataclasses.replace(PIPELINE, noise=QUIET, head_layers=layers) for layers in (0.0, 2.0))
    more_s = PIPELINE.microbatches * 3 * PIPELINE.forward_s * 2.0 / PIPELINE.layers
    assert np.subtract(lasting_s(uneven), lasting_s(even)).tolist() == [pytest.approx(more_s, rel=0.1)]


@pytest.mark.parametrize(("noise", "least", "most"), [(DEFAULT, 0.004, 0.03), (HARD, 0.03, 0.1)])
def test_iterations_of_healthy_jobs_vary(noise: Noise, least: float, most: float) -> None:
    lasting = lasting_s(dataclasses.replace(PIPELINE, noise=noise, iterations=16))
    assert least < np.std(lasting) / np.mean(lasting) < most


def test_operators_of_the_truth_lie_in_order_and_within_the_run() -> None:
    for scenario in (SMALL, PIPELINE, EXPERTS):
        truth = told(scenario).run.truth
        start, end, size = (column(truth.operators, name) for name in ("start_ns", "end_ns", "bytes"))
        assert ((start < 0) == (size == 0)).all()
        assert (end[size > 0] > start[size > 0]).all()
        assert not truth.hung
        assert (truth.iteration_ends_ns > 0).all()
        assert (np.diff(truth.iteration_ends_ns, axis=0) > 0).all()
        assert truth.to_json()["hung"] is False


def test_without_noise_all_data_parallel_ranks_send_alike() -> None:
    quiet = dataclasses.replace(SMALL, noise=QUIET, hardware=LOSSLESS)
    operators = told(quiet).run.truth.operators
    of_rank = {rank: column(operators, "bytes")[column(operators, "rank") == rank].sum() for rank in range(SMALL.world)}
    assert max(of_rank.values()) < 1.02 * min(of_rank.values())


def test_experts_that_are_chosen_more_often_answer_later() -> None:
    """Their host computes longer, so its kernel of the second all-to-all starts later; nothing else says so."""
    heard = told(dataclasses.replace(EXPERTS, noise=dataclasses.replace(QUIET, routing_cv=0.5)))
    operators = heard.run.truth.operators
    column_0 = range(0, EXPERTS.world, EXPERTS.tp)
    received, starts = [], []
    for rank in column_0:
        calls = [c for c in heard.calls if c["rank"] == rank and c["peer"] is not None]
        first = calls[0]["group_start_ns"]
        received.append(sum(c["count"] for c in calls if c["op"] == "recv" and c["group_start_ns"] == first))
        own = operators.filter((column(operators, "rank") == rank) & (column(operators, "op") == "custom"))
        starts.append(own["start_ns"][1].as_py())
    assert max(received) > 1.2 * min(received)
    assert np.argsort(starts)[-1] == np.argsort(received)[-1]
    assert max(starts) - min(starts) > 500_000


def test_the_table_has_58_combinations_and_healthy_runs_none() -> None:
    kinds = Counter(str(faulty(case, 1).faults[0].kind) for case in COMBINATIONS)
    assert kinds == {
        "computation_stop": 4,
        "computation_slow": 14,
        "communication_stop": 3,
        "communication_slow": 37,
    }
    assert len({str(case) for case in COMBINATIONS}) == len(COMBINATIONS) == 58
    assert all(not healthy(setup, 1, HARD).faults for setup in Setup)
    assert len({faulty(COMBINATIONS[0], seed).faults[0].rank for seed in range(40)}) > 20


def test_hot_experts_get_more_tokens_from_their_iteration_on() -> None:
    scenario = healthy(Setup.HOT_EXPERTS, 4)
    hot = scenario.hot
    assert hot is not None
    drawn = [one for seed in range(40) if (one := healthy(Setup.HOT_EXPERTS, seed).hot)]
    assert {one.host for one in drawn} == set(range(scenario.hosts))
    assert len({one.iteration for one in drawn}) > 4
    routing, even = Routing(scenario), Routing(dataclasses.replace(scenario, hot=None))
    for iteration in range(scenario.iterations):
        more = routing.tokens(iteration) / even.tokens(iteration)
        if iteration < hot.iteration:
            assert more == pytest.approx(np.ones(scenario.hosts))
        else:
            assert int(np.argmax(more)) == hot.host
            assert 1.2 < more[hot.host] < hot.times
    assert routing.tokens(0).mean() == pytest.approx(1.0)


def test_what_is_everywhere_begins_on_every_rank_or_host_at_once() -> None:
    for injection, count in ((Injection.PCIE_DOWNGRADE, 64), (Injection.CPU_THROTTLING, 8)):
        faults = faulty(Combination(Setup.GPT2_70B, injection, 0.5, everywhere=True), 3).faults
        assert len(faults) == len({fault.rank for fault in faults}) == count
        assert len({fault.at_s for fault in faults}) == 1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dp": 1, "pp": 1}, "one host alone"),
        ({"hot": HotExperts(0, 0, 2.0)}, "has no experts"),
        ({"workload": Workload.EXPERTS, "pp": 1, "hot": HotExperts(4, 0, 2.0)}, "cannot be"),
        ({"workload": Workload.EXPERTS, "pp": 1, "hot": HotExperts(0, -1, 2.0)}, "cannot be"),
        ({"workload": Workload.EXPERTS, "pp": 1, "hot": HotExperts(0, 0, float("nan"))}, "cannot be"),
        ({"workload": Workload.EXPERTS, "pp": 2}, "has no pipeline"),
        ({"workload": Workload.NEIGHBOURS, "dp": 3, "pp": 1}, "even dp"),
        ({"tp": 0}, "tp is 0"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        NicScenario(1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gbps", "channels", "slice_kib", "slots"), [(800, 8, 128, 4), (200, 1, 1024, 16), (400, 1, 128, 4)]
)
def test_other_machines_run_the_same_job(gbps: float, channels: int, slice_kib: int, slots: int) -> None:
    hardware = Hardware(line_gbps=gbps, channels=channels, slice_bytes=slice_kib << 10, slots=slots)
    truth = simulate_nics(dataclasses.replace(healthy(Setup.NEIGHBOURS, 1), iterations=2, hardware=hardware)).truth
    assert not truth.hung


@pytest.mark.parametrize("scenario", [SMALL, PIPELINE, EXPERTS], ids=["data", "pipeline", "experts"])
def test_the_log_of_operators_tells_of_the_same_calls(scenario: NicScenario) -> None:
    run = told(scenario).run
    rows = run.operators.to_pylist()
    calls = {(c["rank"], c["communicator"], c["seq"]): c for c in told(scenario).calls}
    assert {(r["rank"], r["communicator"], r["seq"]) for r in rows} == set(calls)
    for row in rows:
        call = calls[row["rank"], row["communicator"], row["seq"]]
        assert (row["op"], row["peer"]) == (call["op"], call["peer"])
        assert call["call_ns"] - 50_000 < row["call_ns"] == row["start_ns"] <= row["end_ns"]
    encoded = encode(COMM_OPS, run.operators.to_batches()[0], job="j")
    assert decode(encoded, COMM_OPS).num_rows == len(rows)


def test_tensor_parallel_operators_end_together_and_start_when_each_gpu_is_there() -> None:
    slow = dataclasses.replace(SMALL, noise=QUIET, faults=(Fault(Injection.GPU_THROTTLING, 4, 0.0, 200.0),))
    rows = told(slow).run.operators.to_pylist()
    name = next(c.communicator for c in told(slow).run.job.communicators if c.ranks == (4, 5))
    own, other = ([r for r in rows if r["rank"] == rank and r["communicator"] == name] for rank in (4, 5))
    assert len(own) == len(other) > 0
    assert all(abs(a["end_ns"] - b["end_ns"]) < 1_000 for a, b in zip(own, other, strict=True))
    late = np.array([a["start_ns"] - b["start_ns"] for a, b in zip(own, other, strict=True)])
    assert (late[SMALL.layers * 2 :] > 0).mean() > 0.9


def test_longer_epochs_hold_the_same_bytes() -> None:
    base = dataclasses.replace(healthy(Setup.NEIGHBOURS, 3), iterations=2)
    sums = set()
    for epoch_ns in (32_000, 64_000, 1_000_000):
        heard = told(dataclasses.replace(base, hardware=Hardware(epoch_ns=epoch_ns)))
        assert {poll["epoch_ns"] for poll in heard.polls} == {epoch_ns}
        sums.add(sum(sum(poll["units"]) for poll in heard.polls))
    assert len(sums) == 1


def test_a_large_poll_comes_in_parts_by_queue_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = told(SMALL)
    monkeypatch.setattr(polls, "MOST_VALUES", 300)
    parted = Told(whole.run, tuple(whole.run.messages()))
    several = [poll for poll in parted.polls if poll["parts"] > 1]
    assert several
    assert {(p["host"], p["nic"], p["poll_from_ns"], p["part"]) for p in several} == {
        (p["host"], p["nic"], p["poll_from_ns"], part) for p in several for part in range(p["parts"])
    }
    assert whole.counted.keys() == parted.counted.keys()
    for key, (times, sizes) in whole.counted.items():
        assert np.array_equal(times, parted.counted[key][0])
        assert np.array_equal(sizes, parted.counted[key][1])
    numbers: dict[tuple[str, str, int], Counter[int]] = {}
    for poll in several:
        numbers.setdefault((poll["host"], poll["nic"], poll["poll_from_ns"]), Counter()).update(set(poll["qpn"]))
    assert all(max(count.values()) == 1 for count in numbers.values())
