"""Which streams of the ranks are one communicator, told from simulated jobs whose communicators are known."""

from collections.abc import Collection
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.columns import codes, integers
from diagnosis.job import Layout
from diagnosis.unnamed_communicators import Matched, match_streams
from producers.labels import label
from producers.simulation import Scenario, simulate

NOT_LOGGED = ("peer", "p2p_seq", "end_ns", "start_ns", "iteration", "microbatch", "phase", "position", "bytes", "dtype")


@cache
def simulated(tp: int, pp: int, dp: int, ep: int = 1) -> pa.Table:
    scenario = Scenario(
        seed=tp * 100 + pp * 10 + dp, tp=tp, pp=pp, dp=dp, ep=ep, iterations=12, microbatches=4, layers=2 * pp
    )
    return simulate(scenario).table


def replaced(table: pa.Table, name: str, values: pa.Array | None) -> pa.Table:
    at = table.schema.get_field_index(name)
    field = pa.field(name, table.schema.field(at).type)
    return table.set_column(at, field, pa.nulls(len(table), field.type) if values is None else values)


def streams_of(table: pa.Table, *, numbered: bool) -> tuple[pa.Table, dict[str, frozenset[int]]]:
    """The table with a communicator of its own for every rank and stream, and who really shares each of these."""
    code, names = codes(table, "communicator")
    rank = integers(table, "rank")
    members = {c: frozenset(np.unique(rank[code == c]).tolist()) for c in np.unique(code).tolist()}
    own = [f"{r}/{names[c]}" for r, c in zip(rank.tolist(), code.tolist(), strict=True)]
    table = replaced(table, "communicator", pa.array(own).dictionary_encode())
    for name in NOT_LOGGED if numbered else (*NOT_LOGGED, "seq"):
        table = replaced(table, name, None)
    truth = {name: members[c] for name, c in zip(own, code.tolist(), strict=True)}
    return label(table).table, truth


def groups(communicator: dict[str, str], truth: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """Who shares each stream's communicator as it was found."""
    found: dict[str, set[int]] = {}
    for stream in truth:
        found.setdefault(communicator.get(stream, stream), set()).add(int(stream.split("/")[0]))
    return {stream: frozenset(found[communicator.get(stream, stream)]) for stream in truth}


SHAPES = [
    (2, 4, 1, 1),
    (4, 2, 2, 1),
    (2, 2, 4, 1),
    (1, 4, 2, 1),
    (2, 1, 4, 1),
    (8, 1, 1, 1),
    (1, 1, 8, 1),
    (2, 2, 2, 2),
]


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "unnumbered"])
@pytest.mark.parametrize(("tp", "pp", "dp", "ep"), SHAPES)
def test_streams_are_matched(tp: int, pp: int, dp: int, ep: int, numbered: bool) -> None:
    table, truth = streams_of(simulated(tp, pp, dp, ep), numbered=numbered)
    found = match_streams(table)
    assert groups(dict(found.communicator), truth) == truth
    assert found.layout is not None
    assert found.layout.world == tp * pp * dp
    if tp * pp > 1:  # one group of all ranks could be either
        assert (found.layout.tp, found.layout.pp, found.layout.dp) == (tp, pp, dp)
    assert found.layout.source == "inferred"


def test_lost_lines_do_not_change_it() -> None:
    table = simulated(2, 4, 1)
    kept = table.filter(pa.array(np.random.default_rng(3).random(len(table)) > 0.01))
    table, truth = streams_of(kept, numbered=True)
    assert groups(dict(match_streams(table).communicator), truth) == truth


def test_a_layout_given_by_hand_is_taken() -> None:
    table, truth = streams_of(simulated(4, 2, 2), numbered=True)
    layout = Layout(tp=2, pp=2, dp=4, source="given")
    found = match_streams(table, layout)
    assert found.layout == layout
    tensor = {frozenset(g) for s, g in groups(dict(found.communicator), truth).items() if "tp" in found.communicator[s]}
    assert tensor == {frozenset({r, r + 1}) for r in range(0, 16, 2)}
    assert match_streams(table, Layout(tp=4, pp=2, dp=2, source="given")).communicator.keys() == truth.keys()


@pytest.mark.parametrize(
    ("shape", "given", "contrary"),
    [
        ((2, 4, 1), Layout(tp=2, pp=4, dp=1), False),
        ((2, 4, 1), Layout(tp=4, pp=2, dp=1), True),
        ((2, 4, 1), Layout(tp=8, pp=1, dp=1), True),
        ((2, 4, 1), Layout(tp=1, pp=4, dp=2), True),
        ((2, 4, 1), Layout(tp=2, pp=5, dp=1), True),
        ((8, 1, 1), Layout(tp=1, pp=1, dp=8), False),  # one group could be either
    ],
)
def test_calls_that_show_another_layout_than_is_given_are_told(
    shape: tuple[int, int, int], given: Layout, contrary: bool
) -> None:
    table, _ = streams_of(simulated(*shape), numbered=True)
    told = match_streams(table, given).contrary
    assert (told is not None) == contrary
    assert told is None or (told.tp, told.pp, told.dp) == shape
    assert match_streams(table).contrary is None


def test_a_layout_of_other_ranks_matches_nothing() -> None:
    table, _ = streams_of(simulated(2, 4, 1), numbered=True)
    found = match_streams(table, Layout(tp=2, pp=4, dp=2, source="given"))
    assert (found.communicator, found.layout) == ({}, None)


def without(table: pa.Table, missing: Collection[int]) -> pa.Table:
    return table.filter(pa.array(~np.isin(integers(table, "rank"), list(missing))))


def members(found: Matched) -> dict[str, frozenset[int]]:
    """All ranks of each stream's communicator."""
    return {stream: frozenset(found.members[name]) for stream, name in found.communicator.items()}


def of_those_there(groups: dict[str, frozenset[int]], missing: Collection[int]) -> dict[str, frozenset[int]]:
    """What is left of groups without some ranks."""
    return {stream: group for stream, group in groups.items() if int(stream.split("/")[0]) not in missing}


def seems_to_end_earlier(shape: tuple[int, int, int, int], missing: int) -> bool:
    """Whether the last rank is missing of ranks that are all one group: nothing shows that there was one more."""
    tp, pp, dp, _ = shape
    return missing == tp * pp * dp - 1 and sorted((tp, pp, dp))[1] == 1


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "unnumbered"])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_rank_s_log_the_others_are_matched_all_the_same(
    shape: tuple[int, int, int, int], numbered: bool
) -> None:
    table, _ = streams_of(simulated(*shape), numbered=numbered)
    whole = match_streams(table)
    world = shape[0] * shape[1] * shape[2]
    layout = replace(whole.layout or Layout(), source="given")
    for missing in range(world):
        left = without(table, [missing])
        expected = of_those_there(members(whole), [missing])
        told = match_streams(left, layout)
        assert (members(told), told.layout) == (expected, layout), missing
        found = match_streams(left)
        if seems_to_end_earlier(shape, missing):
            expected = {stream: group - {missing} for stream, group in expected.items()}
            assert found.layout != whole.layout
        else:
            assert found.layout == whole.layout, missing
        assert members(found) == expected, missing


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(2, 4, 1, 1), (1, 4, 2, 1), (2, 2, 2, 1), (1, 3, 3, 1), (4, 2, 2, 1), (8, 1, 2, 1)]),
    numbered=st.booleans(),
    data=st.data(),
)
def test_of_which_ranks_however_logs_are_missing_nothing_wrong_is_told(
    shape: tuple[int, int, int, int], numbered: bool, data: st.DataObject
) -> None:
    world = shape[0] * shape[1] * shape[2]
    missing = data.draw(st.sets(st.integers(0, world - 1), min_size=2, max_size=2))
    table, _ = streams_of(simulated(*shape), numbered=numbered)
    whole, left = match_streams(table), without(table, missing)
    expected = of_those_there(members(whole), missing)
    assert members(match_streams(left, whole.layout)) == expected
    found = match_streams(left)
    assert found.layout in (whole.layout, None)
    assert members(found) == ({} if found.layout is None else expected)


@pytest.mark.parametrize(
    ("shape", "missing"),
    [
        ((2, 4, 1, 1), (6, 7)),  # that there is a last stage shows, but not whether it is the only one
        ((2, 4, 1, 1), (0, 1, 6, 7)),  # half of the ranks
        ((2, 1, 3, 1), (3, 5)),  # one whole tensor group
        ((2, 2, 2, 1), (2, 3)),  # four stages of two, or two of four
    ],
)
def test_what_cannot_be_told_of_the_others_is_not_guessed(
    shape: tuple[int, int, int, int], missing: tuple[int, ...]
) -> None:
    table, _ = streams_of(simulated(*shape), numbered=True)
    found = match_streams(without(table, missing))
    assert (found.communicator, found.members, found.layout) == ({}, {}, None)


@pytest.mark.parametrize(
    ("layout", "fits"),
    [
        (Layout(tp=2, pp=4, dp=1), True),
        (Layout(tp=1, pp=4, dp=2), True),
        (Layout(tp=2, pp=5, dp=1), False),  # the last stage is another
        (Layout(tp=2, pp=3, dp=2), False),  # the first stage is another
        (Layout(tp=2, pp=1, dp=4), False),  # there are pipelines
        (Layout(tp=2, pp=2, dp=1), False),  # rank 4 and more are there
    ],
)
def test_of_a_given_layout_with_missing_ranks_the_ends_of_pipelines_must_be_right(layout: Layout, fits: bool) -> None:
    table, _ = streams_of(simulated(2, 4, 1), numbered=True)
    found = match_streams(without(table, [3]), layout)
    assert (found.layout, bool(found.communicator)) == ((layout, True) if fits else (None, False))


def test_a_communicator_of_which_a_rank_that_logged_lacks_its_stream_is_not_believed() -> None:
    table, truth = streams_of(simulated(2, 4, 1), numbered=True)
    lacking = next(stream for stream in truth if stream.startswith("4/") and truth[stream] == {4, 5})
    left = without(table, [3])
    left = left.filter(pc.not_equal(left.column("communicator").cast(pa.string()), lacking))
    found = match_streams(left, Layout(tp=2, pp=4, dp=1))
    matched = {stream for stream in found.communicator if truth[stream] == {4, 5}}
    assert not matched
    assert {truth[stream] for stream in found.communicator} >= {frozenset({0, 1}), frozenset({2, 3}), frozenset({6, 7})}
