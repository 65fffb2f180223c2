"""Groups that share a communicator's name."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.shared_names import SharedName, shared_name
from tests.diagnosis.made_logs import Collective, Compute, Step, Training

LAYERS = 12


def steps(tensor: str) -> Sequence[Step]:
    """Layers that take longer and less long in turn, in one group when they do not in the other."""
    ms = [8.0 + 4.0 * (layer % 2 == (tensor == "b")) for layer in range(LAYERS)]
    return [step for each in ms for step in (Compute(each), Collective(tensor))] + [Collective("world")]


TWO_GROUPS = Training(
    programs={0: steps("a"), 1: steps("a"), 2: steps("b"), 3: steps("b")},
    groups={"a": (0, 1), "b": (2, 3), "world": (0, 1, 2, 3)},
    offset_ns={1: 40_000_000, 2: -25_000_000},
)


def under_one_name(table: pa.Table) -> pa.Table:
    names = pc.replace_substring_regex(table.column("communicator").cast(pa.string()), "^[ab]$", "tp")
    return put(table, "communicator", names.combine_chunks().dictionary_encode())


def put(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def test_two_groups_under_one_name_are_told_by_a_rank_of_each() -> None:
    """Whatever their clocks are apart."""
    table = TWO_GROUPS.table()
    assert shared_name(under_one_name(table)) == SharedName("tp", 0, 2)
    assert shared_name(table) is None


@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_one_group_is_one(lost: float) -> None:
    """Four ranks that wait for each other in each layer, also where lines are lost."""
    one = replace(TWO_GROUPS, programs=dict.fromkeys(range(4), steps("world")))
    table = one.table()
    kept = np.random.default_rng(1).random(len(table)) >= lost
    assert shared_name(table.filter(pa.array(kept))) is None
    drifting = table.column("call_ns").to_numpy() * 1e-4 * (table.column("rank").to_numpy() % 2)
    for name in ("call_ns", "end_ns"):
        table = put(table, name, pa.array(table.column(name).to_numpy() + drifting.astype(np.int64)))
    assert shared_name(table) is None


def test_ends_of_the_host_tell_nothing() -> None:
    """It queues the work and goes on, one host at another pace than the other; nor do no ends."""
    table = under_one_name(TWO_GROUPS.table())
    assert shared_name(put(table, "end_ns", pc.add(table.column("call_ns"), 500_000).combine_chunks())) is None
    assert shared_name(put(table, "end_ns", pa.nulls(len(table), pa.int64()))) is None


def test_who_fits_nobody_is_no_group() -> None:
    """Rank 0 or 3, or ranks 2 and 3 each by itself, may have counted otherwise."""
    table = replace(TWO_GROUPS, programs=dict.fromkeys(range(4), steps("world"))).table()
    rank, seq = table.column("rank").to_numpy(), table.column("seq").to_numpy()
    assert shared_name(put(table, "seq", pa.array(seq + (rank == 0)))) is None
    assert shared_name(put(table, "seq", pa.array(seq + (rank == 3)))) is None
    assert shared_name(put(table, "seq", pa.array(seq + (rank == 3) + 2 * (rank == 2)))) is None
    assert shared_name(put(table, "seq", pa.array(seq + (rank >= 2)))) == SharedName("world", 0, 2)


def test_numbers_that_count_sends_as_well_do_not_line_up() -> None:
    table = replace(TWO_GROUPS, programs=dict.fromkeys(range(4), steps("world"))).table()
    shifted = put(table, "seq", pa.array(table.column("seq").to_numpy() + (table.column("rank").to_numpy() >= 2)))
    assert shared_name(shifted) is not None
    ops = pc.if_else(pc.equal(table.column("position"), 0), "send", table.column("op").cast(pa.string()))
    assert shared_name(put(shifted, "op", ops.combine_chunks().dictionary_encode())) is None


def test_a_few_iterations_tell_nothing() -> None:
    table = under_one_name(TWO_GROUPS.table())
    few = pc.less(table.column("iteration"), 7)
    assert shared_name(table.filter(few)) is None
    assert shared_name(table.slice(0, 0)) is None
