"""Clock offsets: recovered within the error that is stated, by ends and by causality alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.clocks import Clocks, Epochs, estimate
from diagnosis.operators import Operators
from schemas.catalogue import COMM_OPS

US, MS = 1_000, 1_000_000
STARTED_NS = 1_700_000_000_000_000_000
Row = dict[str, Any]

offsets = st.lists(st.integers(-5 * MS, 5 * MS), min_size=2, max_size=5)
waits = st.integers(0, 3 * MS)


def operators(rows: Sequence[Row]) -> Operators:
    return Operators.from_arrow(COMM_OPS.from_rows([{"op": "all_reduce", "communicator": "g", **row} for row in rows]))


def own_clocks(ranks: int) -> dict[int, str]:
    return {rank: f"h{rank}" for rank in range(ranks)}


def collectives(
    offset: Sequence[int], meetings: int, noise_ns: Mapping[tuple[int, int], int] | None = None, *, ends: bool = True
) -> list[Row]:
    """All ranks meet again and again; ``noise_ns`` of (meeting, rank) is how late its end was logged."""
    rows: list[Row] = []
    for meeting in range(meetings):
        at = STARTED_NS + meeting * 10 * MS
        for rank, ahead in enumerate(offset):
            late = (noise_ns or {}).get((meeting, rank), 0)
            row: Row = {"rank": rank, "seq": meeting, "call_ns": at + ahead - rank * MS}
            rows.append({**row, "end_ns": at + MS + ahead + late if ends else None})
    return rows


@given(offsets, st.dictionaries(st.tuples(st.integers(0, 11), st.integers(0, 4)), st.integers(0, 200 * US)))
def test_offsets_by_ends_are_off_by_no_more_than_the_ends(
    offset: list[int], noise_ns: dict[tuple[int, int], int]
) -> None:
    clocks = estimate(operators(collectives(offset, 12, noise_ns)), own_clocks(len(offset)), "h0")
    for rank, ahead in enumerate(offset):
        assert abs(clocks.offset_ns[f"h{rank}"] - (ahead - offset[0])) <= len(offset) * 200 * US
    assert (clocks.offset_ns["h0"], clocks.error_ns["h0"]) == (0, 0)
    assert not clocks.epochs


@pytest.mark.parametrize("meetings", [2, 5, 9, 20, 64, 200])
def test_the_stated_error_holds(meetings: int) -> None:
    """Ends are logged late by a long-tailed noise; a stated error may be exceeded once in a hundred times."""
    exceeded = total = 0
    for seed in range(60):
        random = np.random.default_rng((meetings, seed))
        offset = random.integers(-5 * MS, 5 * MS, 4).tolist()
        late = random.lognormal(np.log(20 * US), 1.0, (meetings, 4)).astype(int)
        noise_ns = {(m, r): int(late[m, r]) for m in range(meetings) for r in range(4)}
        clocks = estimate(operators(collectives(offset, meetings, noise_ns)), own_clocks(4), "h0")
        for rank in (1, 2, 3):
            exceeded += abs(clocks.offset_ns[f"h{rank}"] - offset[rank] + offset[0]) > clocks.error_ns[f"h{rank}"]
            total += 1
    assert exceeded <= 0.01 * total


def test_more_meetings_sharpen_the_estimate() -> None:
    def error(meetings: int) -> int:
        random = np.random.default_rng(7)
        noise_ns = {(m, 1): int(random.normal(0, 20 * US)) for m in range(meetings)}
        return estimate(operators(collectives([0, 0], meetings, noise_ns)), own_clocks(2), "h0").error_ns["h1"]

    assert error(3) > error(16) > error(64)
    assert error(64) < 20 * US


def test_the_newest_meetings_count() -> None:
    """A clock that drifts is read as it is at the end of what was fetched."""
    drift = {(meeting, 1): meeting * 10 * US for meeting in range(400)}
    rows = collectives([0, 0], 400, drift)
    for place, row in enumerate(rows):
        row["communicator"] = "z" if place < 400 else "a"
    clocks = estimate(operators(rows), own_clocks(2), "h0")
    assert clocks.offset_ns["h1"] == pytest.approx(4 * MS, abs=0.7 * MS)


@given(offsets, st.lists(st.tuples(*[waits] * 6), min_size=1, max_size=8), st.booleans())
def test_causality_never_claims_more_than_it_knows(
    offset: list[int], meetings: list[tuple[int, ...]], ends: bool
) -> None:
    """Every rank calls some time before the last, and goes on some time after; whether ends are logged or not."""
    rows: list[Row] = []
    at = STARTED_NS
    for seq, wait in enumerate(meetings):
        at += 20 * MS
        for rank, ahead in enumerate(offset):
            done = at + wait[5] + (wait[rank] if ends else 0)
            row: Row = {"rank": rank, "seq": seq, "call_ns": at + ahead - wait[rank]}
            rows.append({**row, "end_ns": done + ahead if ends else None})
    clocks = estimate(operators(rows), own_clocks(len(offset)), "h0")
    for rank, ahead in enumerate(offset):
        if clocks.known(f"h{rank}"):
            assert abs(clocks.offset_ns[f"h{rank}"] - (ahead - offset[0])) <= clocks.error_ns[f"h{rank}"]
    assert len(clocks.offset_ns) == (len(offset) if ends or len(meetings) > 1 else 1)


def exchange(ahead: int, times: int, *, both_ways: bool) -> list[Row]:
    """Rank 0 sends to rank 1, which sends back; the sender's end proves nothing."""
    rows: list[Row] = []
    for n in range(times):
        at = STARTED_NS + n * 20 * MS
        for source, target, start in ((0, 1, at), (1, 0, at + 5 * MS))[: 1 + both_ways]:
            shift = {0: 0, 1: ahead}
            rows.append(_p2p(source, "send", target, n, start + shift[source], start + shift[source] + 10 * US))
            rows.append(_p2p(target, "recv", source, n, start + shift[target] - MS, start + shift[target] + 2 * MS))
    return rows


def _p2p(rank: int, op: str, peer: int, n: int, call_ns: int, end_ns: int) -> Row:
    return {"rank": rank, "op": op, "peer": peer, "p2p_seq": n, "call_ns": call_ns, "end_ns": end_ns}


@given(st.integers(-5 * MS, 5 * MS), st.booleans())
def test_sends_and_receives_bound_an_offset_from_both_sides(ahead: int, ends: bool) -> None:
    rows = exchange(ahead, 4, both_ways=True)
    made = operators([{**row, "end_ns": row["end_ns"] if ends else None} for row in rows])
    clocks = estimate(made, own_clocks(2), "h0")
    assert abs(clocks.offset_ns["h1"] - ahead) <= clocks.error_ns["h1"] <= 11 * MS


def test_a_clock_that_was_never_met_is_absent() -> None:
    one_way = exchange(3 * MS, 4, both_ways=False)
    clocks = estimate(operators(one_way), own_clocks(2), "h0")
    assert (dict(clocks.offset_ns), clocks.known("h1")) == ({"h0": 0}, False)
    assert 0 <= clocks.apart_ns["h1"] - 3 * MS <= 2 * MS  # late by what the quickest message took
    assert clocks.worst_error_ns({"h1"}) == 0
    apart = collectives([0, 0], 12) + [
        {"rank": 2, "communicator": "other", "seq": n, "call_ns": STARTED_NS + n, "end_ns": STARTED_NS + n + 1}
        for n in range(12)
    ]
    clocks = estimate(operators(apart), own_clocks(3), "h0")
    assert set(clocks.offset_ns) == {"h0", "h1"}
    assert estimate(operators([]), {}, "h0") == Clocks("h0", {"h0": 0}, {"h0": 0}, island={"h0": 0})


def test_clocks_that_met_only_each_other_can_be_compared_among_themselves() -> None:
    pairs = {"a": (0, 1), "b": (2, 3)}
    rows = [
        {**row, "rank": pairs[name][row["rank"]], "communicator": name}
        for name in pairs
        for row in collectives([0, 3 * MS], 12)
    ]
    of_rank = own_clocks(5)
    clocks = estimate(operators(rows), of_rank, "h0")
    assert set(clocks.offset_ns) == {"h0", "h1"}
    one, other, lost = clocks.islands(of_rank, np.array([0, 2, 4])).tolist()
    assert clocks.islands(of_rank, np.arange(5)).tolist() == [one, one, other, other, lost]
    assert len({one, other, lost}) == 3
    ahead = clocks.correction(of_rank, np.arange(5))
    assert (ahead[1] - ahead[0], ahead[3] - ahead[2]) == (3 * MS, 3 * MS)


def test_operators_that_bear_no_number_say_nothing() -> None:
    rows = [{**row, "seq": None} for row in collectives([0, MS], 12)]
    assert not estimate(operators(rows), own_clocks(2), "h0").known("h1")


def test_an_offset_is_passed_on_from_clock_to_clock_with_its_error() -> None:
    """Ranks 0 and 2 never meet, but both meet rank 1."""
    random = np.random.default_rng(3)
    rows: list[Row] = []
    for name, pair in (("a", (0, 1)), ("b", (1, 2))):
        offset = (0, 2 * MS, -3 * MS)
        noise = {(m, r): int(random.normal(0, 30 * US)) for m in range(30) for r in (0, 1)}
        met = collectives([offset[rank] for rank in pair], 30, noise)
        rows += [{**row, "rank": pair[row["rank"]], "communicator": name} for row in met]
    clocks = estimate(operators(rows), own_clocks(3), "h0")
    assert abs(clocks.offset_ns["h2"] + 3 * MS) <= clocks.error_ns["h2"]
    alone = estimate(operators([row for row in rows if row["communicator"] == "b"]), own_clocks(3), "h1")
    assert clocks.error_ns["h2"] == clocks.error_ns["h1"] + alone.error_ns["h2"]
    assert clocks.error_ns["h1"] > 0
    assert clocks.worst_error_ns({"h0", "h1", "unknown"}) == clocks.error_ns["h1"]
    assert clocks.worst_error_ns(set()) == 0


def test_ranks_of_one_host_share_their_clock() -> None:
    rows = collectives([0, 0, 4 * MS, 4 * MS], 12)
    clock_of_rank = {0: "a", 1: "a", 2: "b", 3: "b"}
    clocks = estimate(operators(rows), clock_of_rank, "a")
    assert clocks.offset_ns == {"a": 0, "b": 4 * MS}


def test_what_to_subtract_from_a_ranks_times() -> None:
    clocks = Clocks("a", {"a": 0, "b": 7}, {"a": 0, "b": 1})
    of_rank = {0: "a", 1: "b", 2: "c"}
    assert clocks.correction(of_rank, np.array([1, 0, 1, 2, 9])).tolist() == [7, 0, 7, 0, 0]
    assert clocks.correction(of_rank, np.array([], dtype=np.int64)).tolist() == []


def iterations_of_drifting_clocks(drift: Sequence[float], seed: int, *, ends: bool, slow: int = -1) -> Operators:
    """Six iterations, ten seconds apart, of forty meetings each; transfers of the ``slow`` one last far longer."""
    draws = np.random.default_rng(seed)
    rows: list[Row] = []
    for iteration, meeting in np.ndindex(6, 40):
        at = iteration * 10_000 * MS + meeting * 20 * MS
        calls = at + draws.exponential(MS, len(drift))
        ended = calls.max() + (8 * MS if iteration == slow else draws.uniform(0.3, 1) * MS)
        for rank, gains in enumerate(drift):
            times = {"call_ns": calls[rank], "end_ns": ended, "next_call_ns": ended + draws.uniform(0.2, 3) * MS}
            shown = {name: STARTED_NS + round(time * (1 + gains)) for name, time in times.items()}
            row: Row = {"rank": rank, "seq": len(rows) // len(drift), "iteration": iteration, **shown}
            rows.append(row if ends else {**row, "end_ns": None})
    return operators(rows)


def off_by(drift: Sequence[float], seed: int, *, ends: bool, slow: int) -> float:
    """By how much offsets are off in any iteration, at worst."""
    made, of_rank = iterations_of_drifting_clocks(drift, seed, ends=ends, slow=slow), own_clocks(len(drift))
    ahead = estimate(made, of_rank, "h0").correction(of_rank, made.rank, made.iteration)
    gained = np.array(drift) - drift[0]
    return float(np.abs(ahead - gained[made.rank] * made.iteration * 10_000 * MS).max())


@pytest.mark.parametrize("slow", [-1, 5])
@given(st.lists(st.floats(-3e-5, 3e-5), min_size=2, max_size=4), st.integers(0, 1000))
def test_offsets_by_ends_follow_clocks_that_drift(slow: int, drift: list[float], seed: int) -> None:
    assert off_by(drift, seed, ends=True, slow=slow) <= 60 * US * (len(drift) - 1)


@pytest.mark.parametrize(("slow", "mostly_us"), [(-1, 200), (5, 250)])
def test_offsets_by_causality_follow_clocks_that_drift(slow: int, mostly_us: int) -> None:
    """By three milliseconds over the iterations, where operators last less than one and bound no more than that."""
    off = [off_by([0.0, gains], seed, ends=False, slow=slow) for seed in range(40) for gains in (-6e-5, 6e-5)]
    assert np.median(off) <= mostly_us * US
    assert max(off) <= 1200 * US


@pytest.mark.parametrize("transfer_ms", [2, 5])
@pytest.mark.parametrize("gains", [-2e-5, 2e-5])
def test_drift_shows_where_bounds_are_further_apart_than_clocks_drift(gains: float, transfer_ms: int) -> None:
    """Of the last two iterations, long after the others, transfers may be slow: that moves both bounds alike."""
    off = []
    for seed in range(20):
        draws = np.random.default_rng(seed)
        rows: list[Row] = []
        for iteration, meeting in np.ndindex(6, 40):
            at = ((iteration + 8 * (iteration > 3)) * 10_000 + meeting * 20) * MS
            calls = at + draws.exponential(MS, 2)
            ended = calls.max() + ((2 if iteration < 4 else transfer_ms) + draws.uniform(0, 0.5)) * MS
            for rank in range(2):
                times = {"call_ns": calls[rank], "next_call_ns": ended + draws.uniform(0.2, 3) * MS}
                shown = {name: STARTED_NS + round(time * (1 + gains * rank)) for name, time in times.items()}
                rows.append({"rank": rank, "seq": len(rows) // 2, "iteration": iteration, **shown, "end_ns": None})
        clocks = estimate(operators(rows), own_clocks(2), "h0")
        ahead = clocks.correction(own_clocks(2), np.ones(6, dtype=np.int64), np.arange(6))
        off.append(np.abs(np.ptp(ahead) - abs(gains) * 130_000 * MS))
    assert np.median(off) <= 150 * US
    assert max(off) <= 400 * US


def test_little_drift_is_read_into_what_says_little() -> None:
    """Bounds that slow operators leave tens of milliseconds apart vary by as much, from one iteration to the next."""
    moved = []
    for seed in range(40):
        draws = np.random.default_rng(seed)
        rows: list[Row] = []
        for iteration, meeting in np.ndindex(6, 40):
            calls = STARTED_NS + (iteration * 10_000 + meeting * 220 + draws.exponential(20, 2)) * MS
            following = calls.max() + (draws.lognormal(np.log(10), 1) + draws.uniform(5, 30, 2)) * MS
            for rank in range(2):
                times = {"call_ns": round(calls[rank]), "next_call_ns": round(following[rank])}
                rows.append({"rank": rank, "seq": len(rows) // 2, "iteration": iteration, **times})
        clocks = estimate(operators(rows), own_clocks(2), "h0")
        moved.append(np.ptp(clocks.correction(own_clocks(2), np.ones(6, dtype=np.int64), np.arange(6))))
    assert np.median(moved) <= 200 * US
    assert max(moved) <= 3 * MS


HOUR = 3600 * 1000 * MS


def meetings_around_a_step(ranks: int, by_ns: int, at: tuple[int, int], *, ends: bool) -> Operators:
    """Seven iterations of ten meetings each; rank 1's clock is set before the given meeting of an iteration."""
    rows: list[Row] = []
    for seq, row in enumerate(collectives([0] * ranks, 70, ends=ends)):
        iteration, meeting = divmod(seq // ranks, 10)
        shift = by_ns if row["rank"] == 1 and (iteration, meeting) >= at else 0
        times = {name: row[name] + shift for name in ("call_ns", "end_ns") if row[name] is not None}
        rows.append({**row, **times, "iteration": iteration})
    return operators(rows)


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
@pytest.mark.parametrize("by_ns", [HOUR, -HOUR, 300 * MS])
def test_a_clock_that_was_set_counts_as_several(by_ns: int, ends: bool) -> None:
    made = meetings_around_a_step(4, by_ns, (3, 5), ends=ends)
    of_rank = own_clocks(4)
    clocks = estimate(made, of_rank, "h0")
    assert set(clocks.epochs) == {"h1"}
    where = (of_rank, made.rank, made.iteration)
    amid = clocks.amid(*where)
    assert {*zip(made.rank[amid].tolist(), made.iteration[amid].tolist(), strict=True)} == {(1, 3)}
    ahead = clocks.correction(*where)
    truth = np.where((made.rank == 1) & (made.iteration > 3), by_ns, 0)
    assert np.abs(ahead - truth)[~amid].max() <= 10 * MS
    islands = clocks.islands(*where)
    assert len(np.unique(islands[~amid])) == 1
    assert not {*islands[amid].tolist()} & {*islands[~amid].tolist()}
    assert clocks.correction(of_rank, np.arange(4))[1] == ahead[(made.rank == 1) & (made.iteration == 6)][0]


def test_of_two_clocks_that_part_nobody_knows_which_was_set() -> None:
    made = meetings_around_a_step(2, HOUR, (3, 0), ends=True)
    clocks = estimate(made, own_clocks(2), "h0")
    assert set(clocks.epochs) == {"h0", "h1"}
    amid = clocks.amid(own_clocks(2), made.rank, made.iteration)
    assert {*made.iteration[amid].tolist()} == {2, 3}
    now = clocks.correction(own_clocks(2), made.rank, made.iteration)[made.iteration > 3]
    assert np.ptp(now) == pytest.approx(HOUR, abs=10 * MS)


def test_steps_that_follow_each_other_are_one() -> None:
    assert Epochs.of("h", [(3, 4), (9, 9), (4, 5)]) == Epochs(
        (
            "h before iteration 3",
            "h set by iteration 6",
            "h before iteration 9",
            "h set by iteration 10",
            "h",
        ),
        (3, 6, 9, 10),
    )


def test_calls_that_only_queue_say_of_no_clock_that_it_was_set() -> None:
    """Each rank goes on at once, long before the last has come: now this one, now that one."""
    rows = [
        {"rank": rank, "seq": seq, "iteration": seq // 6, "call_ns": STARTED_NS + seq * 10 * MS + late * 500 * MS}
        for seq in range(48)
        for rank in range(3)
        for late in [(rank + seq // 3) % 3]
    ]
    assert not estimate(operators(rows), own_clocks(3), "h0").epochs


@pytest.mark.parametrize("irregular", [1, 2])
def test_who_is_late_where_calls_only_queue_has_no_clock_that_was_set(irregular: int) -> None:
    """The others go on long before it has come, in the newest iterations alone: those that are searched."""
    rows = [
        {"rank": rank, "seq": seq, "iteration": seq // 6, "call_ns": STARTED_NS + seq * 10 * MS + late * 600 * MS}
        for seq in range(72)
        for rank in range(4)
        for late in [rank == 3 and seq // 6 >= 12 - irregular]
    ]
    clocks = estimate(operators(rows), own_clocks(4), "h0")
    assert not clocks.epochs
    assert abs(clocks.offset_ns["h3"]) < 600 * MS


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "no ends"])
@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_of_a_broadcast_or_reduce_some_are_done_before_others_have_come(op: str, ends: bool) -> None:
    """Rank 2 is the last of the broadcast, and the root that waits for nobody is long done; of the reduce it is one
    that is late for a root that waits.
    """
    rows: list[Row] = []
    for seq, row in enumerate(collectives([0] * 3, 60, ends=ends)):
        rows.append({**row, "seq": 2 * row["seq"], "iteration": seq // 3 // 6})
    for seq in range(60):
        at, late = STARTED_NS + seq * 10 * MS + 3 * MS, 400 * MS * (seq // 6 == 5)
        for rank in range(3):
            call = at + late * (rank == 2)
            end = {"broadcast": call, "reduce": at + late if rank == 0 else call}[op] + MS // 2
            told = {"rank": rank, "seq": 2 * seq + 1, "iteration": seq // 6, "op": op}
            rows.append({**told, "call_ns": call, "end_ns": end if ends else None})
    rows.sort(key=lambda row: (row["rank"], row["seq"]))
    assert not estimate(operators(rows), own_clocks(3), "h0").epochs
