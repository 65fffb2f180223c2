"""Which streams of the ranks are one communicator, told from simulated jobs whose communicators are known."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.columns import codes, integers
from diagnosis.job import Layout
from diagnosis.unnamed_communicators import match_streams
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
    given = Layout(tp=2, pp=2, dp=4, source="given")
    found = match_streams(table, given)
    assert found.layout == given
    tensor = {frozenset(g) for s, g in groups(dict(found.communicator), truth).items() if "tp" in found.communicator[s]}
    assert tensor == {frozenset({r, r + 1}) for r in range(0, 16, 2)}
    assert match_streams(table, Layout(tp=4, pp=2, dp=2, source="given")).communicator.keys() == truth.keys()


def test_a_layout_of_other_ranks_matches_nothing() -> None:
    table, _ = streams_of(simulated(2, 4, 1), numbered=True)
    found = match_streams(table, Layout(tp=2, pp=4, dp=2, source="given"))
    assert (found.communicator, found.layout) == ({}, None)


def test_ranks_without_a_log_leave_streams_apart() -> None:
    table, _ = streams_of(simulated(2, 4, 1), numbered=True)
    found = match_streams(table.filter(pa.array(integers(table, "rank") != 3)))
    assert (found.communicator, found.layout) == ({}, None)
