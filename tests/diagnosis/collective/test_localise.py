"""From what ranks did in an iteration to who is at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.collective.chronological import computing, first_anomaly, late_members, not_entered, on_grid
from diagnosis.collective.grid import ComparisonRules, Usual, grids
from diagnosis.collective.hangs import localise_hang
from diagnosis.collective.localise import localise_slow
from diagnosis.collective.moments import common_moment
from diagnosis.collective.own_lateness import missing_of_itself
from diagnosis.collective.participation import Participation
from diagnosis.collective.pipelines import Pipelines
from diagnosis.collective.stages import of_layout, of_traffic
from diagnosis.collective.traffic_map import TrafficMap, combines
from diagnosis.collective.verdict import Verdict, by_machine, either
from diagnosis.job import Communicator, Job, Layout
from tests.diagnosis.collective.made_metrics import MB, MS, SECOND, Told, job
from tests.diagnosis.collective.one_f_one_b import replica

RULES = ComparisonRules()
HOSTS = 4
RANKS = 2 * HOSTS
DP = {0: (0, 2, 4, 6), 1: (1, 3, 5, 7)}


def iterations(
    slow: Mapping[int, float] | None = None,
    actual: Mapping[int, float] | None = None,
    duration: float = 10.0,
    count: int = 6,
    noise: int = 0,
) -> Told:
    """Two groups of one GPU of each host compute and reduce; hosts in ``slow`` compute for so many times longer, ranks
    in ``actual`` really send for such a share of the duration."""
    told, random = Told(), np.random.default_rng(noise)
    at = 50 * MS
    for seq in range(count):
        computed = 40 * MS * (1 + 0.01 * random.standard_normal(HOSTS))
        for host, factor in (slow or {}).items():
            computed[host] *= factor
        for group, ranks in DP.items():
            for rank in ranks:
                start = at + int(computed[rank // 2])
                length = int(duration * MS + computed.max() - computed[rank // 2])
                share = (actual or {}).get(rank, 0.8)
                told.tell(f"dp{group}", seq, rank, start, length, int(share * duration * MS))
        at += int(computed.max() + duration * MS)
    return told


@settings(max_examples=20)
@given(host=st.integers(0, HOSTS - 1), factor=st.floats(1.4, 3.0), noise=st.integers(0, 50))
def test_a_host_that_computes_slowly_is_the_last_to_begin(host: int, factor: float, noise: int) -> None:
    (found,) = localise_slow(iterations({host: factor}, noise=noise).table, job())
    assert (found.cause, found.level, found.method) == ("compute_slow", "machine", "late_start")
    assert found.ranks == (2 * host, 2 * host + 1)
    assert found.evidence["late_ns"] == pytest.approx(5 * 40 * MS * (factor - 1), rel=0.2)  # but before the first


@settings(max_examples=20)
@given(noise=st.integers(0, 99))
def test_a_healthy_job_has_nobody_at_fault(noise: int) -> None:
    told = iterations(noise=noise)
    assert localise_slow(told.table, job()) == []
    assert localise_slow(told.table, job(), usual=Usual.of(grids(told.table))) == []


def test_one_rank_of_a_host_that_is_late_hides_no_host_that_is() -> None:
    told = iterations({1: 2.0})
    for rank in range(1, RANKS, 2):
        told.tell("odd", 0, rank, (1000 + 500 * (rank == 5)) * MS)
    (found,) = localise_slow(told.table, job())
    assert (found.cause, found.ranks) == ("compute_slow", (2, 3))


def test_a_straggler_of_communication_is_found_after_computing_is_ruled_out() -> None:
    (found,) = localise_slow(iterations(actual={3: 1.0}).table, job())
    assert (found.cause, found.ranks) == ("communication_slow", (3,))


def test_a_deviation_that_is_far_smaller_is_the_larger_ones_consequence() -> None:
    (found,) = localise_slow(iterations(actual={3: 0.99, 4: 0.83}).table, job())
    assert found.ranks == (3,)


def test_a_slow_host_shows_in_groups_that_last_longer_than_usual() -> None:
    usual = Usual.of(grids(iterations().table))
    (found,) = localise_slow(
        iterations(duration=15.0, actual=dict.fromkeys(range(RANKS), 0.53)).table, job(), usual=usual
    )
    assert (found.cause, found.level, found.ranks) == ("host_slow", "group", tuple(range(RANKS)))
    assert found.candidates == tuple(sorted(job().ranks_of_host.values()))


def test_a_group_that_is_seen_in_part_belongs_to_those_that_are_slow() -> None:
    usual = Usual.of(grids(iterations().table))
    told = iterations(duration=15.0, actual=dict.fromkeys(range(RANKS), 0.53))
    told.rows = [row for row in told.rows if row["rank"] != 5]
    (found,) = localise_slow(told.table, job(), usual=usual)
    assert (found.cause, found.ranks) == ("host_slow", tuple(range(RANKS)))
    told.rows = [row for row in told.rows if row["rank"] != 2]
    assert localise_slow(told.table, job(), usual=usual) == [], "none is seen whole: who is not seen may be slow"


def test_devices_of_one_machine_that_are_slow_share_what_is_slow() -> None:
    """Both NICs of the second host, each in a group of its own."""
    (found,) = localise_slow(iterations(actual={2: 9.9, 3: 9.7}).table, job())
    assert (found.cause, found.level, found.ranks) == ("communication_slow", "machine", (2, 3))
    assert len(found.weaker) == 1


def test_groups_that_span_machines_are_not_taken_together() -> None:
    verdicts = [Verdict("hang_hardware", "group", ranks, "volume") for ranks in ((0, 2, 4), (1, 3, 5))]
    device = Verdict("hang_hardware", "device", (1,), "volume")
    assert by_machine([*verdicts, device], job()) == [*verdicts, device]


def experts(received: Sequence[int], computed_ms: Sequence[float], count: int = 6, per_host: int = 1) -> Told:
    """Dispatch and combine among GPUs: what each gets in the dispatch, in MB, and how long it computes."""
    told, at, ranks = Told(per_host), 50 * MS, range(len(received))
    for i in range(count):
        longest = 5 * MS
        for rank in ranks:
            away = [peer for peer in ranks if peer // per_host != rank // per_host]
            peers = {peer: received[peer] * MB // len(away) for peer in away}
            told.tell("ep", 6 * i, rank, at, longest, 4 * MS, sum(peers.values()), op="custom", peers=peers)
        for rank in ranks:
            away = [peer for peer in ranks if peer // per_host != rank // per_host]
            back = {peer: received[rank] * MB // len(away) for peer in away}
            start = at + longest + int(computed_ms[rank] * MS)
            length = int((max(computed_ms) - computed_ms[rank]) * MS) + longest
            told.tell("ep", 6 * i + 3, rank, start, length, 4 * MS, sum(back.values()), op="custom", peers=back)
        at += 2 * longest + int((max(computed_ms) + 10) * MS)
    return told


def test_an_expert_that_is_chosen_more_often_is_no_slow_device() -> None:
    told = experts(received=(30, 30, 60, 30), computed_ms=(10, 10, 20, 10))
    found = localise_slow(told.table, job(4, 1))
    assert [(one.cause, one.ranks) for one in found] == [("imbalance", (2,))]


def test_experts_of_one_host_that_are_chosen_more_often_are_one_answer() -> None:
    told = experts(received=(30,) * 6 + (60, 60), computed_ms=(10,) * 6 + (20, 20), per_host=2)
    found = localise_slow(told.table, job(4, 2))
    assert [(one.cause, one.level, one.ranks) for one in found] == [("imbalance", "machine", (6, 7))]


def test_who_computes_for_longer_than_one_that_got_more_is_slow() -> None:
    told = experts(received=(30, 40, 60, 30), computed_ms=(10, 30, 20, 10))
    found = localise_slow(told.table, job(4, 1))
    assert [(one.cause, one.ranks) for one in found] == [("compute_slow", (1,)), ("imbalance", (2,))]


def test_who_is_late_by_less_than_sends_were_prolonged_is_not_named_though_no_straggler_shows() -> None:
    """Rank 2 sends at half its rate. Rates of the others differ by as much, so that it does not stand out; rank 1 waits
    for it, and seems to compute."""

    def exchanges(slow: bool) -> Told:
        told = Told(per_host=1)
        for rank in range(4):
            told.tell("dp0", 0, rank, -50 * MS, 40 * MS)
        for seq in range(6):
            for rank in range(4):
                waits = 18 * MS if slow and (rank, seq % 3) == (1, 2) else 0
                lasts = {2: 20, 3: 4}.get(rank, 10) * MS if slow else 10 * MS
                peers = {peer: 10 * MB for peer in range(4) if peer != rank}
                told.tell("ep", seq, rank, 40 * seq * MS + waits, lasts, expected=30 * MB, op="custom", peers=peers)
        return told

    usual = Usual.of(grids(exchanges(slow=False).table))
    assert localise_slow(exchanges(slow=True).table, job(4, 1), usual=usual) == []
    late = exchanges(slow=False)
    for row in late.rows:
        moved = 25 * MS if (row["rank"], row["seq"] % 3) == (1, 2) else 0
        row.update({name: row[name] + moved for name in ("call_ns", "start_ns", "end_ns")})
    (found,) = localise_slow(late.table, job(4, 1), usual=usual)
    assert (found.cause, found.ranks) == ("compute_slow", (1,))
    late.rows = [row for row in late.rows if row["op"] == "custom"]
    assert localise_slow(late.table, job(4, 1), usual=usual) == [], "nothing tells how far clocks are apart"


def test_without_anything_usual_a_straggler_that_costs_more_than_what_is_late_is_named() -> None:
    """The first iterations: a stage is late by 3 ms, and an all-reduce takes 20 ms for its straggler."""
    told = pipelined(late_ms={(1, 2): 3.0})
    for rank in range(RANKS):
        told.rows = [row for row in told.rows if row["op"] == "custom" or row["rank"] != rank]
        told.tell(f"dp{rank % 2}{rank // 4}", 9, rank, 120 * MS, 20 * MS, (19 if rank == 2 else 8) * MS)
        told.tell(f"dp{rank % 2}{rank // 4}", 0, rank, 0, 10 * MS)
    (found,) = localise_slow(told.table, job(), PIPELINES)
    assert (found.cause, found.ranks) == ("communication_slow", (2,))
    for row in told.rows:
        row.update({"actual_time_ns": 8 * MS, "duration_ns": 8 * MS} if row["op"] != "custom" else {})
    (found,) = localise_slow(told.table, job(), PIPELINES)
    assert (found.cause, found.ranks) == ("compute_slow", (2, 3))


def test_members_that_wait_for_one_that_was_not_seen_do_not_hide_that_its_host_is_late() -> None:
    """All members of a group that were seen wait for the one that was not: its operators take longer because of it."""

    def collectives(late_ms: int) -> Participation:
        told = Told(per_host=4)
        for seq in range(6):
            for rank in (rank for rank in range(16) if rank != 7):
                waits = 0 if rank // 4 == 1 else late_ms
                start = (100 * seq + late_ms - waits) * MS
                told.tell(f"dp{rank % 4}", seq, rank, start, (10 + waits) * MS, 9 * MS)
        return told.table

    usual = Usual.of(grids(collectives(late_ms=0)))
    (found,) = localise_slow(collectives(late_ms=30), job(4, 4), usual=usual)
    assert (found.cause, found.ranks) == ("compute_slow", (4, 5, 6, 7))


def test_who_is_hardly_seen_hides_nobody_that_got_less_and_computed_for_longer() -> None:
    told = experts(received=(30, 40, 60, 30), computed_ms=(10, 30, 20, 10))
    told.rows = [row for row in told.rows if row["rank"] != 3 or row["seq"] <= 3]
    found = localise_slow(told.table, job(4, 1))
    assert ("compute_slow", (1,)) in [(one.cause, one.ranks) for one in found]


def test_a_traffic_map_says_who_got_what() -> None:
    table = experts(received=(30, 40, 60, 30), computed_ms=(10, 10, 10, 10)).table
    (grid,) = grids(table)
    dispatch = TrafficMap.of(grid, table, 0)
    assert (dispatch.received / MB).round().tolist() == [30, 40, 60, 30]
    assert np.array_equal(TrafficMap.of(grid, table, 1).sent, dispatch.sent.T)
    assert combines(grid, table).tolist()[:4] == [False, True, False, True]


PIPELINES = ((0, 4), (1, 5), (2, 6), (3, 7))
"""Two stages; ranks of one host belong to one stage."""


def pipelined(
    late_ms: Mapping[tuple[int, int], float] | None = None,
    stop: Mapping[tuple[int, int], bool] | None = None,
    apart_ms: float = 9.5,
) -> Told:
    """Microbatches of 1F1B on two stages and two replicas of two GPUs. ``late_ms``: by host and send, added to the
    start and to all that follow; ``stop``: first send of a host that does not start. The second stage sends
    ``apart_ms`` after the first."""
    told = Told()
    for pipeline in PIPELINES:
        for stage, rank in enumerate(pipeline):
            host, late, dead = rank // 2, 0.0, False
            for send in range(6):
                late += (late_ms or {}).get((host, send), 0.0)
                dead = dead or bool((stop or {}).get((host, send)))
                at = int((20 + 10 * send + (apart_ms if stage else 0) + late) * MS)
                peer = pipeline[1 - stage]
                told.tell(
                    f"pp{pipeline[0]}",
                    send,
                    rank,
                    at,
                    MS,
                    expected=8 * MB,
                    op="custom",
                    peers={peer: 8 * MB},
                    state="missing_start" if dead else "complete",
                    incomplete=(peer,) if dead else (),
                    call_ns=at - 10_000,
                )
    for rank in range(RANKS):
        told.tell(f"dp{rank % 2}{rank // 4}", 9, rank, 120 * MS, 10 * MS, state="missing_start" if stop else "complete")
    return told


PUBLISHED = replace(RULES, pipeline_order="first_late")


@pytest.mark.parametrize("rules", [RULES, PUBLISHED])
def test_the_first_send_that_starts_late_names_its_machine(rules: ComparisonRules) -> None:
    (found,) = localise_slow(pipelined({(1, 2): 8.0}).table, job(), PIPELINES, rules=rules)
    assert (found.cause, found.level, found.ranks, found.candidates) == ("compute_slow", "machine", (2, 3), ())
    assert (found.evidence["stage"], found.evidence["send"]) == (0, 2)
    assert found.evidence["late_ns"] == pytest.approx(8 * MS, rel=0.01)


def test_ends_of_an_exchange_that_are_late_together_are_candidates() -> None:
    """Either may have kept the other waiting. A microbatch comes back while the next one goes out."""
    (found,) = localise_slow(pipelined({(1, 3): 8.0, (3, 2): 8.0}).table, job(), PIPELINES)
    assert found.candidates == ((2, 3), (6, 7))
    (found,) = localise_slow(
        pipelined({(1, 2): 8.0, (3, 2): 8.0}, apart_ms=0.5).table, job(), PIPELINES, rules=PUBLISHED
    )
    assert found.ranks == (2, 3, 6, 7)
    assert found.candidates == ((2, 3), (6, 7))


def test_who_is_late_for_what_it_waits_for_is_not_late_of_itself() -> None:
    """The second stage is late by what the first one is, and its clock tells nothing: all of it is an hour behind."""
    told = pipelined({(1, 2): 8.0, (3, 2): 8.0})
    told.rows = [
        row | {name: row[name] - 3600 * SECOND for name in ("call_ns", "start_ns", "end_ns") if row["rank"] >= 4}
        for row in told.rows
    ]
    (found,) = localise_slow(told.table, job(), PIPELINES)
    assert (found.ranks, found.candidates) == ((2, 3), ())


@pytest.mark.parametrize("rules", [RULES, PUBLISHED])
def test_the_first_send_that_does_not_start_names_its_machine(rules: ComparisonRules) -> None:
    table = pipelined(stop={(2, 3): True, (0, 5): True}).table
    (found,) = localise_hang(table, job(), PIPELINES, rules)
    assert (found.cause, found.ranks, found.evidence["send"]) == ("hang_not_entered", (4, 5), 3)
    together = pipelined(stop={(2, 3): True, (0, 4): True}, apart_ms=9.5).table
    (found,) = localise_hang(together, job(), PIPELINES, rules)
    assert found.candidates == ((0, 1), (4, 5))


def unanswered(starts_ms: float | None, usually_ms: float = 0.0, alive: int | None = None) -> Told:
    """Two stages of two hosts of four GPUs, whose fourth sends are missing. Of host 2 the third are as well, but that
    of rank 11, to rank 3, begins ``starts_ms`` after its call (None: it does not), others ``usually_ms``. The NIC of
    rank ``alive`` sends something else meanwhile."""
    told = Told(per_host=4)
    for rank in range(16):
        for send in range(4):
            at, host = (20 + 10 * send + (5 if rank >= 8 else 0)) * MS, rank // 4
            begins = at + int(((starts_ms or 0.0) if (rank, send) == (11, 2) else usually_ms) * MS)
            silent = host in {0, 2} and (send == 3 or (host, send) == (2, 2)) and (rank, send) != (11, 2)
            silent = silent or (starts_ms is None and (rank, send) == (11, 2))
            told.tell(
                f"pp{rank % 8}", send, rank, begins, MS, expected=8 * MB, op="custom", peers={(rank + 8) % 16: 8 * MB},
                state="missing_start" if silent else "complete", call_ns=at - 10_000,
            )  # fmt: skip
            if silent:
                told.rows[-1]["nic_sent_ns"] = told.rows[-1]["call_ns"] + (300 * MS if rank == alive else MS)
    return told


def test_whom_a_rank_sends_again_to_while_the_others_of_its_host_wait_has_a_nic_that_is_down() -> None:
    """What was on its way when the NIC went down comes again after a time-out, and looks like the next send."""
    pipelines = [(rank, rank + 8) for rank in range(8)]
    (found,) = localise_hang(unanswered(60.0).table, job(4, 4), pipelines)
    assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (3,))
    for otherwise in (unanswered(None), unanswered(1.0), unanswered(60.0, usually_ms=50.0), unanswered(60.0, alive=3)):
        (found,) = localise_hang(otherwise.table, job(4, 4), pipelines)
        assert found.cause == "hang_not_entered"


@pytest.mark.parametrize(
    ("again_to", "lasts_ms", "more", "amid"),
    [(4, 90, 1.2, 3), (4, 90, 1.2, 2), (4, 90, 1.2, 1), (4, 90, 1.0, 3), (4, 2, 1.2, 3), (None, 90, 1.2, 3)],
)
def test_a_machine_that_waits_for_a_nic_which_takes_nothing_is_not_named(
    again_to: int | None, lasts_ms: int, more: float, amid: int
) -> None:
    """The NIC of rank 4 is down, so that no rank of its host begins the next exchange. What was on its way to it is
    sent again after a time-out, amid that exchange or, where that shows in how much was sent, the one before."""
    told = Told(per_host=2)
    for rank in range(8):
        peers = {peer: 10 * MB for peer in range(rank % 2, 8, 2) if peer != rank}
        for seq in range(4):
            again = seq == amid and rank not in {4, 5} and (again_to in peers or (again_to is None and rank >= 6))
            if seq == 3 and rank in {4, 5}:
                continue
            told.tell(
                f"ep{rank % 2}", seq, rank, 10 * seq * MS, (lasts_ms if again else 2) * MS, 2 * MS,
                30 * MB, int(30 * MB * (more if again else 1.0)), op="custom", peers=peers,
                state="complete" if again else "incomplete" if seq == 3 else "complete",
                incomplete=() if again or seq < 3 else (5,),
            )  # fmt: skip
    (found,) = localise_hang(told.table, job())
    if (again_to, lasts_ms) == (4, 90) and (more > 1 or amid == 3) and amid >= 2:
        assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (4,))
        assert (found.communicator, found.instance) == ("ep0", amid)
    else:
        assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "machine", (4, 5))


def test_a_rank_of_whose_collectives_nothing_was_seen_leaves_the_clocks_of_others_alone() -> None:
    """Machines begin together by a collective before, their clocks are 4 ms apart, and the third send of one is late by
    as much. Of some ranks the collective was not seen: of the other stage of the late one's pipeline all, at last."""
    told = pipelined(late_ms={(1, 2): 4.0})
    for rank in range(RANKS):
        told.tell(f"dp{rank % 2}{rank // 4}", 0, rank, 0, 10 * MS)
    (found,) = localise_slow(told.table, job(), PIPELINES)
    assert (found.cause, found.ranks) == ("compute_slow", (2, 3))
    for unseen, named in (({5}, [(2, 3)]), ({0, 5}, [(2, 3)]), ({6, 7}, [])):
        rows = [row | {"state": "unknown", "start_ns": None, "end_ns": None} for row in told.rows]
        part = Told()
        part.rows = [
            hidden if row["op"] != "custom" and row["rank"] in unseen else row
            for row, hidden in zip(told.rows, rows, strict=True)
        ]
        assert [one.ranks for one in localise_slow(part.table, job(), PIPELINES)] == named


def test_a_single_send_is_stuck_because_its_receiver_computes_no_more() -> None:
    """The GPU of rank 6 has stopped: neither can it take what rank 2 sends, nor does its host send anything back. Had
    its NIC stopped, the other rank of its host would have."""

    def stuck(computes: bool) -> Told:
        told = pipelined(stop={} if computes else {(3, 2): True}, apart_ms=9.5)
        for row in told.rows:
            single = (row["rank"], row["seq"]) in {(2, 3), *({(6, 2)} if computes else ())}
            row.update({"state": "incomplete", "incomplete_peers": row["peers"]} if single else {})
            later = row["rank"] in {2, 3, 6, 7} and row["seq"] > (3 if row["rank"] < 4 else 2)
            row.update({"state": "missing_start", "start_ns": None} if later else {})
        return told

    (found,) = localise_hang(stuck(computes=False).table, job(), PIPELINES)
    assert (found.cause, found.ranks) == ("hang_not_entered", (6, 7))
    (found,) = localise_hang(stuck(computes=True).table, job(), PIPELINES)
    assert (found.cause, found.candidates) == ("hang_hardware", ((2,), (6,)))

    ended = stuck(computes=True)  # rank 6 alone: it never calls what the other ranks of its stage begin
    ended.rows = [row for row in ended.rows if row["seq"] != 9 or row["rank"] in {4, 5, 7}]
    for row in ended.rows:
        row.update({"state": "incomplete", "start_ns": row["call_ns"]} if row["seq"] == 9 else {})
    for rank in (4, 6):
        ended.tell("dp01", 8, rank, 5 * MS)
    (found,) = localise_hang(ended.table, job(), PIPELINES)
    assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "device", (6,))

    for row in ended.rows:  # rank 2 sends nothing to anybody, so that rank 6 may wait for it
        row["nic_sent_ns"] = row["call_ns"] + (0 if row["rank"] == 2 else 900 * MS)
    assert all(found.ranks != (6,) for found in localise_hang(ended.table, job(), PIPELINES))


def test_what_follows_a_loss_of_telemetry_has_not_stopped() -> None:
    told = pipelined(stop={(2, 3): True})
    told.rows = [
        row | ({"state": "unknown"} if row["state"] == "missing_start" and row["rank"] in {4, 5} else {})
        for row in told.rows
    ]
    table = told.table
    lines = Pipelines.of(table, job(), PIPELINES, common_moment(grids(table), table, job()))
    assert first_anomaly(lines, job(), RULES, hang=True) is None
    assert missing_of_itself(lines, job()) is None


@pytest.mark.parametrize("lost", [range(6), range(2, 4)], ids=["all", "some"])
def test_sends_of_which_nothing_was_seen_are_not_missing(lost: range) -> None:
    """A poll of a host was lost: nothing tells what its ranks sent, nor to whom."""
    told = pipelined(stop={(2, 3): True, (0, 5): True})
    for row in told.rows:
        if row["rank"] in {2, 3} and row["communicator"].startswith("pp") and row["seq"] in lost:
            row |= {"state": "unknown", "start_ns": None, "end_ns": None, "coverage": 0.0}
            row |= {"peers": [], "peer_sent_bytes": [], "peer_actual_time_ns": []}
    table = told.table
    lines = Pipelines.of(table, job(), PIPELINES, common_moment(grids(table), table, job()))
    own = [at for at, host in enumerate(lines.host) if host == "h1"]
    assert not lines.lacking[own].any()
    assert np.isnan(lines.start[own][:, lost.start :]).all()
    (found,) = localise_hang(table, job(), PIPELINES)
    assert found.ranks == (4, 5)


def test_who_was_seen_to_send_after_a_loss_and_then_no_more_has_stopped() -> None:
    told = pipelined(stop={(2, 3): True, (0, 5): True})
    for row in told.rows:
        if row["rank"] in {4, 5} and row["communicator"].startswith("pp") and row["seq"] == 1:
            row |= {"state": "unknown", "start_ns": None, "end_ns": None, "coverage": 0.0}
    (found,) = localise_hang(told.table, job(), PIPELINES)
    assert (found.cause, found.ranks) == ("hang_not_entered", (4, 5))


def test_pipelines_in_step_have_no_anomaly() -> None:
    assert localise_slow(pipelined().table, job(), PIPELINES) == []


def test_traffic_shows_the_pipelines_of_a_job_that_does_not_tell_its_layout() -> None:
    table = pipelined().table
    groups = tuple(Communicator(f"pp{ranks[0]}", ranks, "pp") for ranks in PIPELINES)
    told = replace(job(), communicators=groups)
    assert sorted(of_traffic(grids(table), table, told)) == sorted(PIPELINES)
    assert of_traffic(grids(table), table, job()) == []  # who belongs to them is not known
    told_of_one = pipelined()
    told_of_one.rows = [row for row in told_of_one.rows if (row["communicator"], row["rank"]) != ("pp1", 1)]
    part = told_of_one.table
    assert sorted(of_traffic(grids(part), part, told)) == sorted(PIPELINES), "by the other GPUs of the same hosts"


def test_a_pipeline_whose_first_sends_are_lost_has_the_order_of_the_others_of_its_hosts() -> None:
    """Of two stages the one that sends first is taken for the first."""
    told, shown = Told(per_host=4), [(gpu, gpu + 4) for gpu in range(4)]
    for first, second in shown:
        for seq in range(4):
            if (first, seq) != (1, 0):
                told.tell(f"pp{first}", seq, first, 20 * seq * MS, MS, op="custom", peers={second: MB}, expected=MB)
            told.tell(f"pp{first}", seq, second, (20 * seq + 5) * MS, MS, op="custom", peers={first: MB}, expected=MB)
    groups = tuple(Communicator(f"pp{ranks[0]}", ranks, "pp") for ranks in shown)
    found = of_traffic(told.grids, told.table, replace(job(2, 4), communicators=groups))
    assert sorted(found) == shown


def test_a_pipeline_whose_first_stage_is_seen_later_has_the_order_of_the_replicas_of_its_stages() -> None:
    """Of host 1 the first send of all ranks is lost. Its ranks reduce gradients with first stages."""
    told, shown = Told(per_host=2), [(first, first + 6) for first in range(6)]
    for first, second in shown:
        for seq in range(4):
            if (first // 2, seq) != (1, 0):
                told.tell(f"pp{first}", seq, first, 20 * seq * MS, MS, op="custom", peers={second: MB}, expected=MB)
            told.tell(f"pp{first}", seq, second, (20 * seq + 5) * MS, MS, op="custom", peers={first: MB}, expected=MB)
        for rank in (first, second):
            told.tell(f"dp{rank // 6}{rank % 2}", 9, rank, 100 * MS, 10 * MS)
            told.tell(f"embedding{first}", 0, rank, 120 * MS, 10 * MS, expected=MB)
    groups = tuple(Communicator(f"pp{ranks[0]}", ranks, "pp") for ranks in shown)
    found = of_traffic(told.grids, told.table, replace(job(6, 2), communicators=groups))
    assert sorted(found) == shown


@pytest.mark.parametrize("stages", [3, 4, 5])
def test_traffic_shows_the_order_of_stages_whose_clocks_differ_by_more_than_what_lies_between_them(stages: int) -> None:
    ranks = tuple(range(stages))
    told = Told(per_host=1)
    for stage, sends in replica(stages, 6, {}).items():
        for seq, (peer, at, _) in enumerate(sends):
            told.tell("pp0", seq, stage, int(at * MS / 100), 1000, op="custom", peers={peer: MB}, expected=MB)
    pipeline = replace(job(stages, 1), communicators=(Communicator("pp0", ranks, "pp"),))
    assert of_traffic(told.grids, told.table, pipeline) == [ranks]


def test_a_layout_that_was_inferred_tells_no_stages() -> None:
    layout = Layout(tp=1, pp=2, dp=2, source="given")
    assert of_layout(replace(job(4, 1), layout=layout)) == [(0, 2), (1, 3)]
    assert of_layout(replace(job(4, 1), layout=replace(layout, pp=1))) == []
    assert of_layout(replace(job(4, 1), layout=replace(layout, source="inferred"))) is None
    assert of_layout(job(4, 1)) is None


def test_stages_of_a_pipeline_that_the_job_does_not_tell_of_are_not_compared() -> None:
    told = pipelined()
    for pipeline in PIPELINES:
        for stage, rank in enumerate(pipeline):
            told.tell(f"embedding{pipeline[0]}", 0, rank, (100 + 20 * stage) * MS, expected=MB)
    assert localise_slow(told.table, job()) == []


def entering(missing: Mapping[int, str]) -> Told:
    """An operator that ranks in ``missing`` have not begun, in two groups of a GPU of each host."""
    told = Told()
    for group, ranks in DP.items():
        for at, rank in enumerate(ranks):
            peer = ranks[(at + 1) % len(ranks)]
            told.tell(
                f"dp{group}",
                3,
                rank,
                50 * MS,
                state=missing.get(rank, "incomplete"),
                sent=60 * MB,
                peers={peer: 60 * MB},
                incomplete=(peer,),
            )
    return told


@pytest.mark.parametrize(
    ("op", "late_ms", "called", "again"),
    [("all_reduce", 60, (), True), ("broadcast", 60, (), False), ("all_reduce", 5, (), False),
     ("all_reduce", 60, (4, 5), False)],
)  # fmt: skip
def test_who_never_called_what_another_has_completed_was_sent_something_again(
    op: str, late_ms: int, called: tuple[int, ...], again: bool
) -> None:
    """The host of ranks 4 and 5 goes no further, as the NIC of rank 5 is down, which rank 3 sends to. A broadcast may
    be over for who began it, and what others have called they may take before they begin."""
    told = entering(dict.fromkeys(called, "missing_start"))
    told.rows = [row | {"op": op} for row in told.rows if row["rank"] not in {4, 5} - set(called)]
    for row in told.rows:
        row.update({"state": "complete", "start_ns": row["call_ns"] + late_ms * MS} if row["rank"] == 3 else {})
    for group, ranks in DP.items():
        for rank in ranks:
            told.tell(f"dp{group}", 2, rank, 20 * MS, op=op, call_ns=18 * MS)
    found = [(one.cause, one.ranks) for one in localise_hang(told.table, job()) if one.method == "sent_again"]
    assert found == ([("hang_hardware", (5,))] if again else [])


def test_a_host_none_of_whose_ranks_begins_does_not_compute() -> None:
    (found,) = localise_hang(entering({4: "missing_start", 5: "missing_start"}).table, job())
    assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "machine", (4, 5))


def test_who_only_waits_for_a_receiver_has_not_stopped() -> None:
    """Ranks 2 and 3 send to 4 and 5, which are not ready."""
    told = entering(dict.fromkeys((2, 3, 4, 5), "missing_start"))
    table = told.table
    assert [not_entered(grid, table) for grid in grids(table)] == [(0, (4,)), (0, (5,))]
    (found,) = localise_hang(table, job())
    assert found.ranks == (4, 5)


@pytest.mark.parametrize("others", ["incomplete", "missing_start"])
def test_a_host_whose_ranks_never_call_what_others_wait_in_does_not_compute(others: str) -> None:
    told = entering(dict.fromkeys(range(8), others))
    told.rows = [row for row in told.rows if row["rank"] not in {4, 5}]
    for rank in (4, 5):
        told.tell(f"dp{rank % 2}", 2, rank, 10 * MS)
    (found,) = localise_hang(told.table, job())
    assert (found.cause, found.level, found.ranks, found.coverage) == ("hang_not_entered", "machine", (4, 5), 1.0)


def test_a_rank_that_alone_never_calls_what_others_begin_has_stopped() -> None:
    """Its NIC would not keep it from calling."""
    told = entering({})
    told.rows = [row for row in told.rows if row["rank"] != 4]
    told.tell("dp0", 2, 4, 10 * MS)
    (found,) = localise_hang(told.table, job())
    assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "device", (4,))
    for row in told.rows:
        row.update({"state": "complete"})
    assert localise_hang(told.table, job()) == [], "others are through with it: telemetry has lost the call"


def test_machines_that_alike_have_not_begun_are_candidates() -> None:
    """A page has to come of what hangs: it says which two it may be."""
    told = Told(per_host=2)
    for rank in range(8):
        state = "missing_start" if rank // 2 in {1, 3} else "incomplete"
        told.tell(f"dp{rank % 2}", 0, rank, 10 * MS, state=state, sent=60 * MB, peers={(rank + 2) % 8: 60 * MB})
    (found,) = localise_hang(told.table, job())
    assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "machine", (2, 3, 6, 7))
    assert found.candidates == ((2, 3), (6, 7))


def test_verdicts_of_several_kinds_are_no_candidates_of_one() -> None:
    machine = Verdict("hang_not_entered", "machine", (2, 3), "missing_start", coverage=0.5)
    assert either([]) == []
    assert either([machine]) == [machine]
    nic = Verdict("hang_hardware", "device", (5,), "missing_start")
    assert either([machine, nic]) == [machine, nic]
    (found,) = either([replace(nic, candidates=((5,), (7,)), ranks=(5, 7)), replace(machine, cause="hang_hardware")])
    assert (found.level, found.ranks, found.coverage) == ("group", (2, 3, 5, 7), 0.5)
    assert found.candidates == ((2, 3), (5,), (7,))


def test_a_host_of_one_rank_whose_last_call_is_lost_has_not_stopped() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        told.tell("dp0", 2, rank, 10 * MS)
        if rank != 2:
            told.tell("dp0", 3, rank, 50 * MS)
    assert localise_hang(told.table, job(4, 1)) == []


def test_a_host_all_of_whose_ranks_get_nothing_does_not_compute() -> None:
    """Its NICs do not go down together. Since the last iteration none of its ranks was told of."""
    told = Told()
    for group, ranks in DP.items():
        for rank in (rank for rank in ranks if rank // 2 != 2):
            to, lacking = [peer for peer in ranks if peer != rank], [4 + group]
            told.tell(f"ep{group}", rank, rank, 10 * MS, op="custom", state="incomplete",
                      peers=dict.fromkeys(to, MB), incomplete=lacking)  # fmt: skip
    (found,) = localise_hang(told.table, job())
    assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "machine", (4, 5))


def test_lost_telemetry_of_a_rank_is_not_its_absence() -> None:
    found = localise_hang(entering({4: "unknown", 5: "unknown"}).table, job())
    assert all(not {4, 5} & set(one.ranks) for one in found)


def test_a_nic_is_down_where_the_other_ranks_of_its_host_go_on() -> None:
    """All of a host's ranks would wait for a GPU that does not compute."""
    told = Told(per_host=4)
    for gpu in range(4):
        for host in range(4):
            rank, state = 4 * host + gpu, "missing_start" if (host, gpu) == (2, 1) else "incomplete"
            told.tell(f"dp{gpu}", 3, rank, 50 * MS, state=state, sent=60 * MB, peers={(rank + 4) % 16: 60 * MB})
    (found,) = localise_hang(told.table, job(4, 4))
    assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (9,))


def test_operators_that_overlap_leave_nothing_to_compute_in_between() -> None:
    told = Told(per_host=1)
    for rank in range(2):
        told.tell("a", 0, rank, 10 * MS, 20 * MS)
        told.tell("b", 0, rank, (12 + rank) * MS, 5 * MS)
        told.tell("b", 1, rank, (40 + 5 * rank) * MS, 5 * MS)
    table = told.table
    computed = computing(table, grids(table), job(2, 1))
    assert computed[table.communicators.index("b") == table.communicator].tolist()[1::2] == [10 * MS, 15 * MS]
    (late,) = [one for grid in grids(table) for one in late_members(grid, computed, RULES)]
    assert (late.rank, late.late_ns) == (1, 5 * MS)


def test_what_is_computed_after_what_was_not_seen_is_unknown() -> None:
    """When it was over is not known: what passes since the one before it holds more than computing."""
    told = Told(per_host=1)
    for rank in range(2):
        for seq, start in enumerate((10, 30, 50, 70)):
            unseen = (rank, seq) == (1, 1)
            seen = (None, "unknown") if unseen else (start * MS, "complete")
            told.tell("dp0", seq, rank, seen[0], state=seen[1], call_ns=start * MS)
    table = told.table
    (grid,) = grids(table)
    computed = on_grid(grid, computing(table, [grid], job(2, 1)))
    assert np.array_equal(computed / MS, [[np.nan, 10, 10, 10], [np.nan, np.nan, np.nan, 10]], equal_nan=True)


def test_what_a_rank_computes_of_which_hardly_anything_was_seen_is_unknown() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        told.tell("dp0", 0, rank, 10 * MS)
        for seq in range(10 if rank != 2 else 1):
            told.tell("ep", seq, rank, (30 + 20 * seq) * MS, op="custom")
        told.tell("dp0", 1, rank, 230 * MS)
    own = grids(told.table)
    computed = on_grid(own[0], computing(told.table, own, job(4, 1)))[:, 1]
    assert own[0].communicator == "dp0"
    assert np.array_equal(computed / MS, [10, 10, np.nan, 10], equal_nan=True)


def test_a_rank_of_which_nothing_is_known_hides_no_other() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        for seq in range(6):
            start = (10 + 30 * seq + (10 * seq if rank == 1 else 0)) * MS
            told.tell("dp0", seq, rank, start, 20 * MS if rank != 1 else 15 * MS)
    for row in told.rows:
        row.update({"state": "unknown", "start_ns": None, "end_ns": None} if row["rank"] == 3 else {})
    own = grids(told.table)
    late = late_members(own[0], computing(told.table, own, job(4, 1)), RULES)
    assert [one.rank for one in late] == [1]


def test_who_sends_nothing_through_a_nic_on_one_communicator_is_known_by_another() -> None:
    """A ring of two GPUs of each host: one of them sends to the other."""
    told = Told(per_host=2)
    for rank in range(8):
        for seq in range(3):
            told.tell("ring" if rank % 2 else "dp0", seq, rank, (10 + 30 * seq) * MS)
    groups = (Communicator("ring", tuple(range(8)), "dp"), Communicator("dp0", (0, 2, 4, 6), "dp"))
    own = grids(told.table)
    computed = computing(told.table, own, Job("j", job().places, groups))
    assert all((on_grid(grid, computed)[:, 1:] == 20 * MS).all() for grid in own)


def test_who_exchanges_with_a_straggler_is_late_because_of_it() -> None:
    """By a little more than that one lost, as nothing is exact."""
    told = Told(per_host=1)
    for rank in range(4):
        told.tell("dp0", 0, rank, 10 * MS, 40 * MS)
        for seq in range(10):
            start, late = (53 + 8 * seq) * MS, (rank == 1) * 6 * MS // 5
            beside = {peer: 10 * MB for peer in (rank - 1, rank + 1) if peer in range(4)}
            actual = 5 * MS if rank == 2 else 3 * MS
            told.tell("near", seq, rank, start + late, 5 * MS - late, actual, 20 * MB, op="custom", peers=beside)
    usual = Usual({}, {}, {("near", rank): 20 * MB / 4e-3 for rank in range(4)})
    (found,) = localise_slow(told.table, job(4, 1), usual=usual)
    assert (found.cause, found.ranks) == ("communication_slow", (2,))


def exchanges_between_neighbours(computed_ms: Sequence[Sequence[float]]) -> Told:
    """Four hosts in a row, each of which exchanges with those beside it and goes on once these have sent.

    ``computed_ms``: what each computes before each exchange. Before all of them a collective tells of their clocks.
    """
    told, over = Told(per_host=1), [50.0] * 4
    for rank in range(4):
        told.tell("dp0", 0, rank, 10 * MS, 40 * MS)
    for seq, computed in enumerate(computed_ms):
        begins = [at + own for at, own in zip(over, computed, strict=True)]
        beside = [[rank for rank in range(4) if abs(rank - own) <= 1] for own in range(4)]
        over = [max(begins[rank] for rank in ranks) + 5.0 for ranks in beside]
        for rank, ranks in enumerate(beside):
            peers = {peer: 10 * MB for peer in ranks if peer != rank}
            start, lasts = int(begins[rank] * MS), int((over[rank] - begins[rank]) * MS)
            told.tell("near", seq, rank, start, lasts, 4 * MS, 20 * MB, op="custom", peers=peers)
    return told


def test_an_exchange_is_over_for_a_rank_once_those_beside_it_have_sent() -> None:
    """Rank 0 computes for long, and those that are not beside it go on before it has sent. When rank 1 has sent to
    rank 2 is not told apart from when it has sent to all."""
    table = exchanges_between_neighbours([(10, 10, 10, 10), (40, 10, 10, 10), (10, 10, 10, 10)]).table
    own = grids(table)
    near = next(grid for grid in own if grid.communicator == "near")
    computed = computing(table, own, job(4, 1))[near.row]
    assert (computed / MS).round().tolist() == [[10, 40, 10], [10, 10, 10], [10, 10, 0], [10, 10, 10]]


def test_when_an_exchange_is_over_is_unknown_where_a_sender_was_not_seen() -> None:
    told = exchanges_between_neighbours([(10, 10, 10, 10)] * 3)
    for row in told.rows:
        if (row["communicator"], row["rank"], row["seq"]) == ("near", 3, 1):
            row |= {"state": "unknown", "start_ns": None, "end_ns": None}
    own = grids(told.table)
    near = next(grid for grid in own if grid.communicator == "near")
    computed = computing(told.table, own, job(4, 1))[near.row]
    unknown = {(int(rank), int(at)) for rank, at in np.argwhere(np.isnan(computed))}
    assert unknown == {(3, 1), (2, 2), (3, 2)}


def test_what_goes_both_ways_alike_is_no_dispatch_and_combine() -> None:
    table = exchanges_between_neighbours([(10, 10, 10, 10)] * 4).table
    assert not any(combines(grid, table).any() for grid in grids(table))
