"""Operators and their metrics in the traffic of one NIC, from epochs, queue pairs and calls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from diagnosis.traffic.algorithm import Inference
from diagnosis.traffic.association import VISIBILITIES, Association, associate
from diagnosis.traffic.calls import Kind
from diagnosis.traffic.segmentation import STATES
from diagnosis.traffic.volume import ring_bytes
from diagnosis.traffic.ways import Way
from tests.diagnosis.traffic.made_calls import Caller, calls
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, MB, MS, Sent, port, queue_pairs

HOST = 8
"""Ranks a host."""

MEMBERS = {"dp": (0, 8, 16, 24), "ep": (0, 8, 16, 24), "tp": (0, 1), "pair": (0, 1, 8)}
LANES = tuple((10 * peer + lane, 0, peer) for peer in (8, 16, 24) for lane in (0, 1))


def same_host(one: int, other: int) -> bool:
    return one // HOST == other // HOST


def both(peer: int, start_ns: int, size: float, gap_ns: int = 0) -> list[Sent]:
    """What both queue pairs to a peer send."""
    return [Sent(10 * peer + lane, start_ns, int(size / 2), gap_ns=gap_ns) for lane in (0, 1)]


def found(
    caller: Caller,
    sent: Sequence[Sent],
    inferred: Mapping[Kind, Inference] | None = None,
    seconds: int = 1,
    lost: Sequence[int] = (),
) -> Association:
    own = port(sent, seconds, lost)
    return associate(own, queue_pairs(*LANES), calls(caller), MEMBERS, same_host, inferred)


def test_a_ring_is_told_and_each_of_its_operators_found() -> None:
    caller, sent = Caller(0, MEMBERS), []
    volume = ring_bytes("all_reduce", 64 * MB, 4) * 1.02
    for at in range(10, 60, 10):
        caller.call("dp", "all_reduce", 64 * MB, at * MS)
        sent += [*both(8, at * MS + 300_000, volume), Sent(240, at * MS + 300_000, 8192)]
    one = found(caller, sent)
    (inference,) = one.inferred.values()
    assert (inference.algorithm, list(inference.shares)) == ("ring", [8])
    assert [STATES[state] for state in one.operators.state] == ["complete"] * 5
    assert one.operators.start_ns == pytest.approx([at * MS + 300_000 for at in range(10, 60, 10)], abs=EPOCH_NS)
    assert one.operators.expected.tolist() == [ring_bytes("all_reduce", 64 * MB, 4)] * 5
    assert one.calls.key.tolist() == one.operators.key.tolist() == list(range(5))
    assert not one.custom.any()


def test_calls_that_run_ahead_of_their_traffic_are_told_by_all_that_is_sent() -> None:
    """All are called at once; which bytes belong to which call tells nothing then, but all of them together do."""
    caller, sent = Caller(0, MEMBERS), []
    for i in range(10):
        caller.call("dp", "reduce_scatter", 16 * MB, 5 * MS + i)
        caller.call("dp", "all_gather", 16 * MB, 5 * MS + i)
        sent += both(8, (20 + 20 * i) * MS, 48 * MB) + both(8, (30 + 20 * i) * MS, 48 * MB)
    one = found(caller, sent)
    assert {inference.algorithm for inference in one.inferred.values()} == {"ring"}
    starts = [(20 + 10 * i) * MS for i in range(20)]
    assert one.operators.start_ns == pytest.approx(starts, abs=EPOCH_NS)


def test_direct_sends_between_the_same_ranks_do_not_change_the_ring() -> None:
    caller, sent = Caller(0, MEMBERS), []
    for i in range(5):
        at = (10 + 40 * i) * MS
        caller.exchange("ep", {8: 9 * MB, 16: 3 * MB, 24: 5 * MB}, at)
        caller.call("dp", "all_reduce", 64 * MB, at + 15 * MS)
        for peer, size in ((8, 9 * MB), (16, 3 * MB), (24, 5 * MB)):
            sent += both(peer, at, size)
        sent += both(8, at + 15 * MS, 96 * MB)
    one = found(caller, sent)
    assert [list(inference.shares) for inference in one.inferred.values()] == [[8]]
    assert [STATES[state] for state in one.operators.state] == ["complete"] * 10
    assert one.custom.tolist() == [True, False] * 5
    assert one.operators.sends[one.custom].tolist() == [3] * 5
    assert one.operators.completed[one.custom].tolist() == [3] * 5
    assert len(one.calls) == 20


def test_gradients_back_to_back_between_ranks_that_exchange_are_told_by_all_of_them() -> None:
    """The second is called before the first is through, a late receiver has held that one up halfway, and between the
    same ranks there are exchanges: what follows a call holds half of one, or both."""
    caller, sent = Caller(0, MEMBERS), []
    first, second = (ring_bytes("all_reduce", size * MB, 4) for size in (60, 36))
    for i in range(3):
        at = (10 + 60 * i) * MS
        caller.exchange("ep", {8: 9 * MB, 16: 3 * MB, 24: 5 * MB}, at)
        for peer, size in ((8, 9 * MB), (16, 3 * MB), (24, 5 * MB)):
            sent += both(peer, at, size * 1.016)
        caller.call("dp", "all_reduce", 60 * MB, at + 15 * MS)
        caller.call("dp", "all_reduce", 36 * MB, at + 16 * MS)
        held = 0.8 * first * 1.016
        sent += both(8, at + 15 * MS + 100_000, held)
        sent += both(8, at + 20 * MS, (first + second) * 1.016 - held)
    one = found(caller, sent)
    assert {inference.algorithm for inference in one.inferred.values()} == {"ring"}
    assert one.operators.expected[~one.custom].tolist() == 3 * [first, second]
    assert [STATES[state] for state in one.operators.state] == ["complete"] * 9
    assert one.operators.sent[~one.custom] == pytest.approx(3 * [first * 1.016, second * 1.016], rel=0.015)


@pytest.mark.parametrize(("p", "share"), [(1.0, 1.0), (1.25, 1.0), (1.43, 1.0), (1.67, 0.99), (2.0, 0.89), (5.0, 0.36)])
def test_actual_time_leaves_out_silences_longer_than_an_epoch(p: float, share: float) -> None:
    """What is left of a normal rank's actual time when a straggler's bandwidth is divided by p: its slices of 1 MB
    take 40 us, and gaps of 40 (p - 1) us follow them."""
    caller, sent = Caller(0, MEMBERS), []
    slices, gap = 200, int(40_000 * (p - 1))
    at = 10 * MS
    for _ in range(5):
        caller.call("dp", "all_gather", slices * 2_000_000 // 3, at)
        start = at + 100_003
        sent += [Sent(80 + lane, start, slices * 1_000_000, 25.1e9, 1_000_000, gap) for lane in (0, 1)]
        at += int(slices * 40_000 * p) + 10 * MS
    one = found(caller, sent)
    assert one.operators.duration_ns == pytest.approx(slices * 40_000 * p, rel=0.02)
    actual = one.measured().actual_time_ns / (slices * 40_000 * p)
    assert actual == pytest.approx(share, abs=0.015)


def test_one_queue_pair_fills_the_silences_of_another_only_where_all_are_looked_at_together() -> None:
    """Half a bandwidth: 0.89 counted per queue pair, nothing to see where both are added up first."""
    caller = Caller(0, MEMBERS)
    size = 200_000_000
    caller.call("dp", "all_gather", 2 * size // 3, 10 * MS)
    sent = [Sent(80 + lane, 10 * MS + lane * 40_000, size, 25.1e9, 1_000_000, 40_000) for lane in (0, 1)]
    ring = {Kind(0, "dp", "all_gather", 2 * size // 3): Inference("ring", 0, 1.0, {8: 1.0})}
    one = found(caller, sent, ring)
    assert one.measured().actual_time_ns[0] / one.operators.duration_ns[0] == pytest.approx(0.89, abs=0.02)
    assert one.measured().longest_gap_ns[0] == 0


def test_silences_are_counted_by_length() -> None:
    caller = Caller(0, MEMBERS)
    caller.exchange("ep", {8: 4 * MB}, 10 * MS)
    begins = [10 * MS, 10 * MS + 10 * EPOCH_NS, 11 * MS, 15 * MS]
    one = found(caller, [Sent(80, EPOCH_NS * (at // EPOCH_NS), MB, 1e12) for at in begins])
    assert [STATES[state] for state in one.operators.state] == ["complete"]
    gaps = [(b - a) // EPOCH_NS - 1 for a, b in itertools.pairwise(begins)]
    expected = np.bincount([gap.bit_length() - 1 for gap in gaps], minlength=16)
    assert one.measured().gaps[0].tolist() == expected.tolist()
    assert one.measured().longest_gap_ns[0] == max(gaps) * EPOCH_NS
    assert one.measured().actual_time_ns[0] == 4 * EPOCH_NS


def test_a_send_that_does_not_end_leaves_its_collective_incomplete() -> None:
    caller = Caller(0, MEMBERS)
    caller.exchange("ep", {8: 8 * MB, 16: 8 * MB, 24: 8 * MB}, 10 * MS)
    one = found(caller, [*both(8, 10 * MS, 8 * MB), *both(16, 10 * MS, 3 * MB)])
    assert [STATES[state] for state in one.operators.state] == ["incomplete"]
    assert (one.operators.sends[0], one.operators.completed[0]) == (3, 1)
    assert dict(zip(one.seen.destination.tolist(), one.segments.state.tolist(), strict=True)) == {8: 0, 16: 1, 24: 2}


def test_lost_telemetry_is_neither_incomplete_nor_missing() -> None:
    caller = Caller(0, MEMBERS)
    for at in (100, 1100, 2100):
        caller.exchange("ep", {8: 8 * MB, 16: 8 * MB}, at * MS)
    sent = [one for at in (100, 1100, 2100) for peer in (8, 16) for one in both(peer, at * MS, 8 * MB)]
    one = found(caller, sent, seconds=3, lost=(1,))
    assert [STATES[state] for state in one.operators.state] == ["complete", "unknown", "complete"]
    assert one.operators.coverage[1] < 1.0


def test_what_a_nic_cannot_see_says_why() -> None:
    caller = Caller(0, MEMBERS)
    caller.call("pair", "send", 64 * MB, 10 * MS, peer=1)
    caller.call("pair", "send", 5000, 20 * MS, peer=8)
    caller.call("tp", "all_reduce", 64 * MB, 30 * MS)
    caller.call("pair", "recv", 64 * MB, 40 * MS, peer=8)
    one = found(caller, [])
    told = {(int(row), VISIBILITIES[v]) for row, v in zip(one.transfers.call, one.visibility, strict=True)}
    assert told == {(0, "intra_host"), (1, "below_aggregation")}
    assert not len(one.operators)


def test_ranks_whose_queue_pairs_are_not_known_are_unknown() -> None:
    caller = Caller(0, MEMBERS)
    caller.exchange("ep", {8: 8 * MB}, 10 * MS)
    one = associate(port([]), queue_pairs((1, 0, 16)), calls(caller), MEMBERS, same_host)
    assert [STATES[state] for state in one.operators.state] == ["unknown"]
    mapped = associate(port([]), queue_pairs((1, 0, 8)), calls(caller), MEMBERS, same_host)
    assert [STATES[state] for state in mapped.operators.state] == ["missing_start"]


def test_what_lacks_may_be_on_a_queue_pair_without_a_record() -> None:
    """Until two ranks have sent all that was called, nothing tells that all of their queue pairs are mapped."""
    caller = Caller(0, MEMBERS)
    caller.exchange("ep", {8: 8 * MB}, 10 * MS)
    caller.exchange("ep", {8: 8 * MB, 16: 8 * MB, 24: 8 * MB}, 90 * MS)
    half = [*both(8, 10 * MS, 8 * MB), *both(8, 90 * MS, 3 * MB), *both(16, 90 * MS, 3 * MB)]

    def states(mapped: set[Way] | None) -> dict[tuple[int, int], str]:
        one = associate(port(half), queue_pairs(*LANES), calls(caller), MEMBERS, same_host, mapped=mapped)
        told = zip(one.seen.launch_ns.tolist(), one.seen.destination.tolist(), one.segments.state, strict=True)
        assert one.mapped == {Way(0, 8, "ep", True)}
        return {(at // MS, peer): STATES[state] for at, peer, state in told}

    assert states(None)[90, 16] == "incomplete"
    doubted = states(set())
    assert (doubted[90, 8], doubted[90, 16]) == ("incomplete", "unknown"), "to 8 all was sent before"
    assert doubted[90, 24] == "missing_start"
    assert states({Way(0, 16, "ep", True)})[90, 16] == "incomplete"
    assert states({Way(0, 16, "dp", True), Way(0, 16, "ep", False)})[90, 16] == "unknown", "by other queue pairs"


def test_who_has_ended_what_it_called_later_lacks_the_record_of_what_it_called_before() -> None:
    caller = Caller(0, MEMBERS)
    for at in range(4):
        caller.exchange("ep", {8: 8 * MB, 16: 8 * MB}, (10 + 50 * at) * MS)
    sent = [one for at in range(3) for one in both(8, (10 + 50 * at) * MS, 8 * MB)]
    one = associate(port(sent), queue_pairs(*LANES), calls(caller), MEMBERS, same_host, mapped=set())
    of = {peer: [STATES[s] for s in one.segments.state[one.seen.destination == peer]] for peer in (8, 16)}
    assert of == {8: [*["complete"] * 3, "missing_start"], 16: ["unknown"] * 4}
    assert one.unmapped == {Way(0, 16, "ep", True)}
    caller.rows = caller.rows[-4:]
    last = associate(
        port([]), queue_pairs(*LANES), calls(caller), MEMBERS, same_host, mapped={Way(0, 8, "ep", True)},
        unmapped=one.unmapped,
    )  # fmt: skip
    known = zip(last.seen.destination.tolist(), last.segments.state.tolist(), strict=True)
    assert {peer: STATES[state] for peer, state in known} == {8: "missing_start", 16: "unknown"}, "also once it hangs"


@pytest.mark.parametrize(("behind", "size"), [("dp", 256 << 10), ("ep", 8 * MB)])
def test_what_is_called_before_a_large_operator_ends_hides_nothing(behind: str, size: int) -> None:
    """A norm behind gradients, or what another group sends: all that was called is sent when the last one ends."""
    members = dict.fromkeys(MEMBERS, (0, 8))
    caller, sent = Caller(0, members), []
    for at in (10, 110, 210):
        caller.call("dp", "send", 64 * MB, at * MS, 8)
        caller.call(behind, "send", size, at * MS + 50_000, 8)
        sent += both(8, at * MS, 64 * MB + size)
    one = associate(port(sent), queue_pairs(*LANES), calls(caller), members, same_host, mapped=set())
    assert Way(0, 8, "dp", True) in one.mapped
    large = one.operators.expected >= MB
    assert {STATES[state] for state in one.operators.state[large]} == {"complete"}
    assert behind == "dp" or Way(0, 8, behind, True) in one.mapped


def test_traffic_of_others_counts_for_nobody() -> None:
    caller, sent = Caller(0, MEMBERS), []
    for i in range(5):
        caller.exchange("ep", {8: 8 * MB, 16: 8 * MB}, (10 + 50 * i) * MS)
        sent += [*both(8, (10 + 50 * i) * MS, 8 * MB), *both(16, (10 + 50 * i) * MS, 8 * MB)]
    quiet = found(caller, sent)
    busy = found(caller, [*sent, Sent(999, MS, 900 * MB, 10e9)])
    for name in ("start_ns", "end_ns", "sent", "state"):
        assert np.array_equal(getattr(quiet.operators, name), getattr(busy.operators, name))
    assert np.array_equal(quiet.measured().actual_time_ns, busy.measured().actual_time_ns)


def test_slowness_that_leaves_no_epoch_empty_shows_in_what_full_epochs_hold() -> None:
    busy = []
    for rate, gap in ((25e9, 10_000), (25e9 / 1.25, 0)):  # a normal rank with short silences, and the straggler
        caller = Caller(0, MEMBERS)
        caller.exchange("ep", {8: 200 * MB}, 10 * MS)
        one = found(caller, [Sent(80 + lane, 10 * MS, 100 * MB, rate, MB, gap) for lane in (0, 1)])
        assert one.measured().actual_time_ns[0] == pytest.approx(one.operators.duration_ns[0], rel=0.01)
        busy.append(int(one.measured().busy_epoch_bytes[0]))
    assert busy[0] / busy[1] == pytest.approx(1.25, abs=0.03)
