"""Who holds up a communication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.collective.bottleneck import slow_groups
from diagnosis.collective.grid import ComparisonRules, Usual, grids
from diagnosis.collective.hangs import localise_hang
from diagnosis.collective.participation import Participation
from diagnosis.collective.stragglers import (
    Metric,
    slow_in_collective,
    slow_in_custom,
    stopped_in_collective,
    stopped_in_custom,
    unanswered,
    untaken,
)
from diagnosis.collective.verdict import Verdict
from diagnosis.collective.weight import lost_ns
from diagnosis.job import Communicator, Job, Place
from tests.diagnosis.collective.made_metrics import MB, MS, Told, job

RULES = ComparisonRules()


def rings(actual: Mapping[int, float], duration: float = 10.0, ranks: int = 4, noise: int = 0, times: int = 5) -> Told:
    """All-reduces that take equally long for all, though some really send for longer: shares of the duration."""
    told, random = Told(per_host=1), np.random.default_rng(noise)
    for seq in range(times):
        for rank in range(ranks):
            share = actual.get(rank, 0.89) * (1 + 0.002 * random.standard_normal())
            told.tell("dp", seq, rank, seq * 50 * MS, int(duration * MS), int(min(share, 1.0) * duration * MS))
    return told


@settings(max_examples=30)
@given(rank=st.integers(0, 3), noise=st.integers(0, 99), normal=st.floats(0.3, 0.93))
def test_the_straggler_sends_for_longest_though_all_take_equally_long(rank: int, noise: int, normal: float) -> None:
    told = rings({**dict.fromkeys(range(4), normal), rank: 1.0}, noise=noise)
    found = slow_in_collective(told.grid, RULES)
    assert found is not None
    assert (found.cause, found.level, found.ranks) == ("communication_slow", "device", (rank,))
    assert found.evidence["ratio"] == pytest.approx(1.0 / normal, rel=0.02)


@settings(max_examples=30)
@given(noise=st.integers(0, 199), ranks=st.integers(2, 16))
def test_equal_ranks_have_no_straggler(noise: int, ranks: int) -> None:
    assert slow_in_collective(rings({}, ranks=ranks, noise=noise).grid, RULES) is None


def test_what_takes_as_long_as_usual_has_no_straggler() -> None:
    told = rings({1: 1.0})
    assert slow_in_collective(told.grid, RULES) is not None
    assert slow_in_collective(told.grid, RULES, Usual.of(grids(told.table))) is None
    assert slow_in_collective(told.grid, RULES, Usual.of(grids(rings({}, duration=6.0).table))) is not None


def test_mild_congestion_is_seen_in_what_full_epochs_hold() -> None:
    """No epoch is empty: the published metric is the same for all."""
    told = Told(per_host=1)
    for seq in range(5):
        for rank in range(4):
            told.tell("dp", seq, rank, seq * 50 * MS, busy=800_000 if rank == 2 else 1_000_000 + rank)
    metrics: tuple[tuple[Metric, tuple[int, ...] | None], ...] = (("actual_time", None), ("busy_epochs", (2,)))
    for metric, culprits in metrics:
        found = slow_in_collective(told.grid, RULES, metric=metric)
        assert (found.ranks if found else None) == culprits


def test_ranks_of_a_tree_are_compared_by_the_byte() -> None:
    """One that is inside of a tree has twice as much to send as a leaf."""
    told = Told(per_host=1)
    for rank, (size, actual) in enumerate(((100, 4), (200, 8), (100, 4), (200, 9.5))):
        told.tell("dp", 0, rank, 0, 10 * MS, int(actual * MS), expected=size * MB)
    found = slow_in_collective(told.grid, RULES)
    assert found is not None
    assert found.ranks == (3,)


def test_a_rank_without_telemetry_is_compared_with_nobody() -> None:
    told = rings({1: 1.0})
    lost = Told(per_host=1)
    lost.rows = [
        row | ({"state": "unknown", "coverage": 0.4, "actual_time_ns": 1} if row["rank"] == 3 else {})
        for row in told.rows
    ]
    assert slow_in_collective(lost.grid, RULES) is None  # nothing that all are known to have completed


def exchanges(
    rate: Mapping[int, float], noise: int = 0, times: int = 12, spread: float = 0.02, sending: float = 0.8
) -> Told:
    """All-to-alls with unlike volumes; each rank's rate as a share of the line's, for a part of the time."""
    told, random = Told(per_host=1), np.random.default_rng(noise)
    for seq in range(times):
        for rank in range(4):
            peers = {peer: int(random.integers(2, 20)) * MB for peer in range(4) if peer != rank}
            size = sum(peers.values())
            actual = int(size / (50 * rate.get(rank, 1.0) * (1 + spread * random.standard_normal())))
            lasts = int(actual / sending)
            told.tell("ep", 6 * seq + rank, rank, seq * 20 * MS, lasts, actual, size, op="custom", peers=peers)
    return told


@settings(max_examples=30)
@given(rank=st.integers(0, 3), noise=st.integers(0, 99), share=st.floats(0.2, 0.75))
def test_the_straggler_of_custom_collectives_has_the_lowest_actual_rate(rank: int, noise: int, share: float) -> None:
    told = exchanges({rank: share}, noise)
    found = slow_in_custom(told.grid, told.table, RULES)
    assert found is not None
    assert (found.ranks, found.method) == ((rank,), "actual_rate")
    assert found.evidence["collectives"] == 10


@settings(max_examples=30)
@given(noise=st.integers(0, 199))
def test_equal_rates_have_no_straggler(noise: int) -> None:
    told = exchanges({}, noise)
    assert slow_in_custom(told.grid, told.table, RULES) is None


def test_rates_of_few_custom_collectives_tell_nothing_unless_so_few_are_asked_for() -> None:
    two, three = (exchanges({1: 0.5}, times=times) for times in (2, 3))
    assert slow_in_custom(two.grid, two.table, RULES) is None
    assert slow_in_custom(two.grid, two.table, replace(RULES, recent=2)) is not None
    assert slow_in_custom(three.grid, three.table, RULES) is not None


def test_where_nothing_usual_is_known_rates_must_differ_by_more() -> None:
    """Ranks send unlike volumes."""
    told = exchanges({1: 0.85}, noise=1)
    assert slow_in_custom(told.grid, told.table, RULES) is None
    found = slow_in_custom(told.grid, told.table, RULES, Usual.of(grids(exchanges({}).table)))
    assert found is not None
    assert found.ranks == (1,)


def test_who_is_silent_for_most_of_the_time_is_not_slow_to_send() -> None:
    """Whom it waits for gives it little to fill its epochs with."""
    told = exchanges({1: 0.7}, sending=0.4)
    assert slow_in_custom(told.grid, told.table, RULES) is None
    assert slow_in_custom(told.grid, told.table, RULES, Usual.of(grids(exchanges({}, sending=0.4).table))) is None


def test_a_rank_that_is_always_slower_is_compared_with_itself() -> None:
    told = exchanges({1: 0.7})
    usual = Usual.of(grids(told.table))
    assert slow_in_custom(told.grid, told.table, RULES, usual) is None
    slower = exchanges({1: 0.7, 2: 0.6}, noise=1)
    found = slow_in_custom(slower.grid, slower.table, RULES, usual)
    assert found is not None
    assert found.ranks == (2,)


@pytest.mark.parametrize(("gets", "slow"), [(30, True), (60, False)])
def test_whom_all_are_slow_to_has_a_slow_way_in_unless_it_gets_more(gets: int, slow: bool) -> None:
    told = Told(per_host=1)
    for seq in range(10):
        told.tell(
            "ep", seq, 0, seq * 50 * MS, op="custom", peers={1: gets * MB, 2: 30 * MB, 3: 30 * MB},
            peer_rate={1: 8.3, 2: 16.5, 3: 16.6},
        )  # fmt: skip
    found = slow_in_custom(told.grid, told.table, RULES)
    assert (found is not None) == slow
    if found is not None:
        assert (found.ranks, found.method) == ((1,), "rate_to_peer")


@settings(max_examples=30)
@given(rank=st.integers(0, 3), least=st.floats(0.0, 0.6))
def test_who_stops_first_has_sent_least(rank: int, least: float) -> None:
    """Its predecessor sends again what is not answered, and most of all."""
    told = Told(per_host=1)
    for other in range(4):
        share = least if other == rank else 1.02 if other == (rank - 1) % 4 else least + 0.2 + 0.02 * other
        told.tell("dp", 7, other, 0, sent=int(share * 100 * MB), state="incomplete")
    found = stopped_in_collective(told.grid, told.table, RULES)
    assert found is not None
    assert (found.cause, found.ranks, found.level) == ("hang_hardware", (rank,), "device")


def test_two_that_have_sent_equally_little_are_candidates() -> None:
    told = Told(per_host=1)
    for rank, share in enumerate((0.5, 0.3, 0.302, 0.6)):
        told.tell("dp", 7, rank, 0, sent=int(share * 100 * MB), state="incomplete")
    found = stopped_in_collective(told.grid, told.table, RULES)
    assert found is not None
    assert (found.ranks, found.candidates) == ((1, 2), ((1,), (2,)))


@pytest.mark.parametrize("rows", ["unknown", "none"])
def test_who_gets_nothing_from_one_that_was_not_seen_is_not_named_alone(rows: str) -> None:
    """In a ring from 0 to 3: whoever was seen to be sent to has stopped by itself, whatever the one unseen did."""

    def stopped(shares: tuple[float, float, float, float]) -> tuple[tuple[int, ...], float]:
        told = Told(per_host=1)
        for rank, share in enumerate(shares):
            state, peers = "unknown" if rank == 2 else "incomplete", {(rank + 1) % 4: MB}
            if rank != 2 or rows == "unknown":
                told.tell("dp", 7, rank, 0, sent=int(share * 100 * MB), state=state, peers={} if rank == 2 else peers)
        found = stopped_in_collective(told.grid, told.table, RULES, range(4))
        assert found is not None
        assert found.candidates == (((2,), (3,)) if len(found.ranks) == 2 else ())
        return found.ranks, found.coverage

    assert stopped((0.5, 0.4, 0.1, 0.6)) == ((1,), 0.75)
    assert stopped((0.5, 0.6, 0.3, 0.4)) == ((2, 3), 0.75)


def test_who_is_in_all_sends_that_do_not_end_has_stopped() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        peers = {peer: 10 * MB for peer in range(4) if peer != rank}
        lacking = [peer for peer in peers if 2 in {rank, peer}]
        told.tell("ep", rank, rank, 0, op="custom", state="incomplete", peers=peers, incomplete=lacking)
    found = stopped_in_custom(told.grid, told.table)
    assert found is not None
    assert (found.ranks, found.candidates, found.evidence["incomplete_sends"]) == ((2,), (), 6)


def test_of_a_single_send_that_does_not_end_both_ends_are_candidates() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        stuck: dict[str, Any] = {"state": "incomplete", "incomplete": [3]} if rank == 1 else {}
        told.tell("ep", rank, rank, 0, op="custom", peers={3 - rank: MB}, **stuck)
    found = stopped_in_custom(told.grid, told.table)
    assert found is not None
    assert found.candidates == ((1,), (3,))


def test_who_sends_again_what_is_not_answered_is_alive() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        stuck: dict[str, Any] = {"state": "incomplete", "incomplete": [3], "duration_ns": 900 * MS} if rank == 1 else {}
        told.tell("ep", rank, rank, 0, op="custom", peers={3 - rank: MB}, **stuck)
    found = stopped_in_custom(told.grid, told.table)
    assert found is not None
    assert (found.ranks, found.candidates, found.evidence["sending_again"]) == ((3,), (), 1)


TWO_A_HOST = job(per_host=2)


def one_to_all(*operators: Mapping[int, int]) -> Told:
    """Rank 0 sends to others, after all got theirs what is told of each operator; the third does not get all."""
    told = Told(per_host=2)
    told.tell("ep", 0, 0, 0, op="custom", peers={1: MB, 2: MB, 3: MB})
    for seq, peers in enumerate(operators, start=1):
        stuck: dict[str, Any] = {"state": "incomplete", "peers": peers, "incomplete": [3]}
        told.tell("ep", seq, 0, seq * 50 * MS, op="custom", **stuck)
    return told


@pytest.mark.parametrize("before", [(), ({1: MB, 2: MB, 3: MB // 2},)])
def test_who_is_sent_nothing_by_one_that_is_through_with_all_others_has_not_entered(
    before: tuple[Mapping[int, int], ...],
) -> None:
    told = one_to_all(*before, {1: MB, 2: MB})
    found = untaken(told.grid, told.table, TWO_A_HOST)
    assert found is not None
    assert (found.cause, found.level, found.ranks) == ("hang_not_entered", "machine", (2, 3))
    assert found.evidence == {"taken_by_others": 2}
    assert localise_hang(told.table, TWO_A_HOST) == [found]


@pytest.mark.parametrize("peers", [{1: MB, 2: MB, 3: MB // 2}, {}])
def test_a_send_that_has_begun_or_is_the_only_one_does_not_tell_which_end_has_stopped(peers: Mapping[int, int]) -> None:
    told = one_to_all(peers)
    assert untaken(told.grid, told.table, TWO_A_HOST) is None
    both = stopped_in_custom(told.grid, told.table)
    assert both is not None
    assert both.candidates == ((0,), (3,))


def test_who_sends_itself_has_entered() -> None:
    told = one_to_all({1: MB, 2: MB})
    told.tell("ep", 1, 3, 50 * MS, op="custom", peers={0: MB})
    assert untaken(told.grid, told.table, TWO_A_HOST) is None


def test_who_is_sent_to_again_has_a_nic_that_is_down() -> None:
    told = one_to_all({1: MB, 2: MB, 3: MB // 2}, {1: MB, 2: MB})
    told.rows[1]["end_ns"] += 900 * MS
    assert untaken(told.grid, told.table, TWO_A_HOST) is None
    found = stopped_in_custom(told.grid, told.table)
    assert found is not None
    assert (found.cause, found.ranks) == ("hang_hardware", (3,))


def test_what_ends_has_nobody_who_stopped() -> None:
    assert stopped_in_collective(rings({}).grid, rings({}).table, RULES) is None
    told = exchanges({})
    assert stopped_in_custom(told.grid, told.table) is None


GROUPED = Job(
    "j",
    tuple(Place(rank) for rank in range(16)),
    tuple(Communicator(f"dp{group}", tuple(range(4 * group, 4 * group + 4))) for group in range(4)),
)


def groups(durations: Mapping[int, float], actual: Mapping[int, float]) -> Participation:
    """All-reduces of parallel groups, in milliseconds."""
    told = Told(per_host=1)
    for group in range(4):
        for seq in range(3):
            for rank in range(group * 4, group * 4 + 4):
                length = durations.get(group, 10.0)
                told.tell(f"dp{group}", seq, rank, seq * 50 * MS, int(length * MS), int(actual.get(group, 9.0) * MS))
    return told.table


def slow(table: Participation, rules: ComparisonRules, usual: Usual | None = None) -> list[Verdict]:
    return slow_groups(grids(table), GROUPED, rules, usual)


@pytest.mark.parametrize(("sends_ms", "cause"), [(9.1, "host_slow"), (10.0, "host_slow"), (11.0, "communication_slow")])
def test_a_group_that_lasts_longer_without_sending_for_longer_has_a_slow_host(sends_ms: float, cause: str) -> None:
    """Of 60 % that its operators gain, sending gains 1, 11 and 22."""
    (found,) = slow(groups({1: 16.0}, {1: sends_ms}), RULES)
    assert (found.cause, found.level, found.ranks) == (cause, "group", (4, 5, 6, 7))


def test_where_all_are_slow_only_the_past_can_tell() -> None:
    """Section 9: of a whole network, or of all hosts."""
    usual = Usual.of(grids(groups({}, {})))
    all_slow = dict.fromkeys(range(4), 20.0)
    assert slow(groups(all_slow, {}), RULES) == []
    (hosts,) = slow(groups(all_slow, {}), RULES, usual)
    assert (hosts.cause, len(hosts.ranks)) == ("host_slow", 16)
    (network,) = slow(groups(all_slow, dict.fromkeys(range(4), 19.0)), RULES, usual)
    assert (network.cause, network.evidence["groups"], network.candidates) == ("communication_slow", 4, ())


def test_groups_that_last_as_long_as_usual_are_not_slow() -> None:
    assert slow(groups({}, {}), RULES) == []
    assert slow(groups({}, {}), RULES, Usual.of(grids(groups({}, {})))) == []


def test_a_group_that_is_not_seen_whole_may_wait_for_whoever_is_not_seen() -> None:
    table = groups({1: 16.0}, {1: 9.1})
    assert slow(table.take(table.rank != 6), RULES) == []
    missed = (table.rank == 6) & (table.instance == 1)
    (found,) = slow(table.take(~missed), RULES)
    assert found.ranks == (4, 5, 6, 7)


def test_of_two_causes_the_group_that_has_grown_most_tells() -> None:
    (found,) = slow(groups({1: 16.0, 2: 12.0}, {1: 9.1, 2: 10.5}), RULES, Usual.of(grids(groups({}, {}))))
    assert (found.cause, found.ranks) == ("host_slow", (4, 5, 6, 7))


def test_what_a_slow_group_costs_is_known_before_anything_is_usual() -> None:
    """What its operators take longer than those of the groups beside it: it was slow from the job's beginning on."""
    table = groups({1: 20.0}, {1: 9.1})
    own = grids(table)
    (found,) = slow_groups(own, GROUPED, RULES)
    operators = len(next(grid for grid in own if grid.communicator == found.communicator).instance)
    ratio = found.evidence["duration_ratio"]
    assert found.ranks == (4, 5, 6, 7)
    assert lost_ns(found, own, None) == pytest.approx(operators * 20.0 * MS * (1 - 1 / ratio), rel=0.02)
    network = replace(found, cause="communication_slow")
    assert lost_ns(network, own, None) == 0, "whoever of it is slow may not stand out yet"


def test_a_nic_that_takes_nothing_any_more_is_sent_the_same_again_and_again() -> None:
    """Rank 2 has not begun what the others have; of what it does not acknowledge all of its senders repeat."""
    told = Told(per_host=1)
    for rank in (0, 1, 3):
        peers = {peer: 10 * MB for peer in range(4) if peer != rank}
        told.tell("ep", rank, rank, 0, 2 * MS if rank == 3 else 90 * MS, op="custom", peers=peers)
    found = unanswered(told.grid, told.table)
    assert found is not None
    assert (found.cause, found.level, found.ranks) == ("hang_hardware", "device", (2,))
    assert found.evidence == {"sending_again": 2}
    told.tell("ep", 2, 2, None, op="custom", state="unknown")
    assert unanswered(told.grid, told.table) is None, "it may have begun unseen"


def test_who_waits_is_not_the_straggler_where_one_was_not_seen_that_may_be() -> None:
    """Rank 1 sends a tenth more slowly than ranks 0 and 3, as it waits for what these are late with because of rank
    2."""
    told = Told(per_host=1)
    for seq in range(10):
        for rank in (0, 1, 3):
            beside = dict.fromkeys(((rank - 1) % 4, (rank + 1) % 4), 32 * MB)
            lasts, actual = (49, 32) if rank == 1 else (28, 28)
            told.tell(
                "near",
                seq,
                rank,
                10 * seq * MS,
                lasts * MS // 10,
                actual * MS // 10,
                64 * MB,
                op="custom",
                peers=beside,
            )
    usual = Usual({}, {}, {("near", rank): 64 * MB / 2.75e-3 for rank in range(4)})
    found = slow_in_custom(told.grid, told.table, RULES, usual)
    assert found is not None
    assert found.ranks == (1,)
    assert slow_in_custom(told.grid, told.table, RULES, usual, members=range(4)) is None


def test_what_all_send_again_shows_in_how_long_it_usually_took() -> None:
    """Rank 2 takes nothing of its two neighbours, and all that they have to send is on its way: nobody is through."""
    told = Told(per_host=1)
    for seq in range(4):
        for rank in range(4):
            beside = dict.fromkeys(((rank - 1) % 4, (rank + 1) % 4), 10 * MB)
            if (rank, seq) == (0, 3):
                told.tell("near", seq, rank, None, op="custom", state="unknown", call_ns=30 * MS)
            elif (rank, seq) == (2, 3):
                told.tell("near", seq, rank, None, op="custom", state="missing_start", call_ns=30 * MS)
            else:
                lasts = 90 * MS if seq == 3 else 2 * MS
                told.tell("near", seq, rank, 10 * seq * MS, lasts, op="custom", peers=beside)
    found = unanswered(told.grid, told.table)
    assert found is not None
    assert (found.ranks, found.evidence) == ((2,), {"sending_again": 2})


def test_who_has_begun_too_is_answered() -> None:
    told = Told(per_host=1)
    for rank in range(4):
        peers = {peer: 10 * MB for peer in range(4) if peer != rank}
        told.tell("ep", rank, rank, 0, 90 * MS if rank == 1 else 2 * MS, op="custom", peers=peers)
    assert unanswered(told.grid, told.table) is None
    assert unanswered(rings({}).grid, rings({}).table) is None
