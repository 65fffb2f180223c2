"""Logs that carry neither sequence numbers nor iterations, of which lines are lost."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from diagnosis.columns import codes, integers
from producers.importers.counted import number_by_position
from producers.importers.unnamed import complete
from producers.simulation import Scenario, simulate
from schemas.catalogue import COMM_OPS

ITERATIONS = 24
NOT_LOGGED = ("seq", "iteration", "position", "call_order", "phase", "microbatch", "peer", "p2p_seq", "start_ns")


def table_of(rows: list[tuple[int, int, int]]) -> pa.Table:
    """Operators of one communicator by rank, iteration and time."""
    made = [
        {"rank": rank, "communicator": "c", "op": "all_reduce", "iteration": iteration, "position": 0, "call_ns": call}
        for rank, iteration, call in rows
    ]
    return pa.Table.from_batches([COMM_OPS.from_rows(made)])


def test_iterations_that_come_again_are_counted_as_they_come() -> None:
    """A job that was resumed from a checkpoint: what an iteration did both times has no number."""
    again = [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]
    calls = [(rank, iteration, 100 * at + rank) for rank in range(2) for at, iteration in enumerate(again)]
    numbered, _ = number_by_position(table_of(calls))
    assert integers(numbered, "iteration").tolist() == [*again, *again]
    assert integers(numbered, "seq").tolist() == [i if i not in (4, 5) else -1 for i in (*again, *again)]


def test_numbers_of_iterations_may_be_large() -> None:
    calls = [(rank, iteration, iteration) for rank in range(2) for iteration in (0, 1, 2, 2_000_000_000)]
    numbered, missing = number_by_position(table_of(calls))
    assert integers(numbered, "seq").tolist() == [0, 1, 2, 2_000_000_000] * 2
    assert missing == 0


@pytest.mark.parametrize(("operators", "share"), [(60, 0.03), (30, 0.05), (168, 0.01)])
def test_where_most_iterations_lack_a_line_no_two_operators_are_taken_for_one(operators: int, share: float) -> None:
    draws, rows, true = np.random.default_rng(5), [], []
    for rank in range(4):
        for number in np.flatnonzero(draws.random(40 * operators) >= share).tolist():
            rows.append((rank, number // operators, 1_000_000 * number + int(draws.integers(1000))))
            true.append(number)
    table = table_of(rows)
    numbered, _ = number_by_position(table)
    seq, iteration = integers(numbered, "seq"), integers(numbered, "iteration")
    known = seq >= 0
    assert differing(seq[known], np.array(true)[known]) == 0
    assert (iteration == np.array(true) // operators).all()


def lossy(
    shape: dict[str, Any], lost: float, *, ends: bool, ranks: tuple[int, ...] = (1,), after: float = ITERATIONS / 3
) -> tuple[pa.Table, pa.Table]:
    """A simulated log of which the ring of some ranks lost so many iterations' lines, whole and with nothing but calls.

    ``after`` is how many iterations they have before that.
    """
    whole = simulate(Scenario(seed=901, iterations=ITERATIONS, layers=4, **shape)).table
    keep = np.ones(len(whole), dtype=np.bool_)
    for rank in ranks:
        mine = np.flatnonzero(integers(whole, "rank") == rank)
        begin = int(after * len(mine) / ITERATIONS)
        keep[mine[begin : begin + int(lost * len(mine) / ITERATIONS)]] = False
    whole = whole.filter(pa.array(keep))
    bare = whole
    for name in NOT_LOGGED if ends else (*NOT_LOGGED, "end_ns"):
        at = bare.schema.get_field_index(name)
        bare = bare.set_column(at, bare.schema.field(at), pa.nulls(len(bare), bare.schema.field(at).type))
    return whole, bare


def differing(values: NDArray[np.int64], true: NDArray[np.int64]) -> int:
    """How many differ from the truth, but for one constant."""
    return len(values) - max(Counter((values - true).tolist()).values()) if len(values) else 0


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "calls alone"])
@pytest.mark.parametrize("lost", [0.7, 1.0, 2.5])
@pytest.mark.parametrize(
    "shape", [{"tp": 2, "pp": 2, "dp": 2}, {"tp": 1, "pp": 1, "dp": 4}], ids=["3d", "data parallel only"]
)
def test_a_ring_that_was_overwritten_shifts_nothing(shape: dict[str, Any], lost: float, ends: bool) -> None:
    whole, bare = lossy(shape, lost, ends=ends)
    found = complete(bare, None, None).labelled.table
    iteration = integers(found, "iteration")
    assert differing(iteration[iteration >= 0], integers(whole, "iteration")[iteration >= 0]) <= len(whole) / 1000
    (code, names), op, seq = codes(whole, "communicator"), codes(whole, "op"), integers(found, "seq")
    collective = ~np.isin(op[0], [i for i, name in enumerate(op[1]) if name in ("send", "recv")])
    numbered = collective & (seq >= 0)
    by_communicator: dict[str, int] = defaultdict(int)
    for d, name in enumerate(names):
        own = numbered & (code == d)
        by_communicator[name] = differing(seq[own], integers(whole, "seq")[own])
    assert sum(by_communicator.values()) <= len(whole) / 1000
    assert numbered.sum() >= 0.85 * collective.sum()


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "calls alone"])
@pytest.mark.parametrize("after", [0.3, 1.4])
@pytest.mark.parametrize("lost", [6.3, 9.8])
def test_what_precedes_a_long_hole_is_in_no_iteration_and_what_follows_is_known(
    lost: float, after: float, ends: bool
) -> None:
    """Both members of a tensor group lost the same, so that neither tells of the other."""
    both = (2, 3)
    whole, bare = lossy({"tp": 2, "pp": 2, "dp": 2}, lost, ends=ends, ranks=both, after=after)
    completed = complete(bare, None, None)
    found = completed.labelled.table
    iteration, true = integers(found, "iteration"), integers(whole, "iteration")
    own, later = np.isin(integers(whole, "rank"), both), true > after
    assert (iteration[own & ~later] == -1).all()
    assert (iteration[later] >= 0).all()
    assert differing(iteration[later], true[later]) <= 2
    tensor, tensors = codes(whole, "communicator")
    in_pair = own & (tensor == tensors.index(next(name for name in tensors if whole_group(whole, name) == set(both))))
    first = in_pair & (true == true[in_pair & later].min())
    seq = integers(found, "seq")
    assert (seq[first] >= 0).all()
    assert differing(seq[in_pair & later], integers(whole, "seq")[in_pair & later]) <= 2


def whole_group(table: pa.Table, communicator: str) -> set[int]:
    """The ranks that use a communicator for collectives."""
    used = table.filter(pc.and_(pc.equal(table.column("communicator"), communicator), pc.is_null(table.column("peer"))))
    return set(integers(used, "rank").tolist())


def shifted(table: pa.Table, ahead_ns: NDArray[np.int64]) -> pa.Table:
    """The table with all times of a row so much later."""
    for name in ("call_ns", "start_ns", "end_ns"):
        at, later = table.schema.get_field_index(name), pc.add(table[name].cast(pa.int64()), pa.array(ahead_ns))
        table = table.set_column(at, table.schema.field(at), later.cast(table.schema.field(at).type))
    return table


@pytest.mark.parametrize(
    ("shape", "ends"),
    [({"tp": 2, "pp": 2, "dp": 2}, True), ({"tp": 2, "pp": 2, "dp": 2}, False), ({"tp": 1, "pp": 1, "dp": 4}, True)],
    ids=["3d", "3d, calls alone", "data parallel only"],
)
def test_hosts_may_be_seconds_apart(shape: dict[str, Any], ends: bool) -> None:
    whole, bare = lossy(shape, 0.7, ends=ends)
    bare = shifted(bare, np.where(integers(bare, "rank") % 4 >= 2, 2_300_000_000, 0))
    found = complete(bare, None, None).labelled.table
    iteration = integers(found, "iteration")
    assert differing(iteration[iteration >= 0], integers(whole, "iteration")[iteration >= 0]) <= len(whole) / 1000


@pytest.mark.parametrize("numbered", [True, False], ids=["seq", "no seq"])
@pytest.mark.parametrize("layers", [2, 8])
def test_pauses_end_no_iteration_of_a_job_with_one_communicator(layers: int, numbered: bool) -> None:
    whole = simulate(Scenario(seed=4, iterations=ITERATIONS, layers=layers, tp=1, pp=1, dp=4)).table
    true = integers(whole, "iteration")
    bare = shifted(whole, np.where(true >= 14, 30_000_000_000, 0))
    for name in NOT_LOGGED[numbered:]:
        at = bare.schema.get_field_index(name)
        bare = bare.set_column(at, bare.schema.field(at), pa.nulls(len(bare), bare.schema.field(at).type))
    iteration = integers(complete(bare, None, None).labelled.table, "iteration")
    assert differing(iteration[iteration >= 0], true[iteration >= 0]) <= len(whole) / 1000
    assert (iteration >= 0).mean() > 0.99
