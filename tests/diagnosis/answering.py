"""Runs a search on a log at hand, and remembers what it asked for."""

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Floats
from diagnosis.irregularity.window import WindowStatistics
from diagnosis.operator_graph.needs import Answer, Need, Needs, Series
from diagnosis.operators import UNKNOWN, Operators

Found = TypeVar("Found")

Log: TypeAlias = Callable[[Collection[int]], pa.Table] | pa.Table
"""Everything that was logged, or what makes the log of ranks when they are asked for it."""


@dataclass
class Asked:
    """Everything that a search asked for; ``rows`` counts those that it was given."""

    needs: list[Need] = field(default_factory=list)
    rounds: int = 0
    rows: int = 0

    @property
    def ranks(self) -> set[int]:
        return {rank for need in self.needs for rank in need.ranks}


def answered(search: Generator[Needs, Answer, Found], table: Log, missing: Collection[int] = ()) -> tuple[Found, Asked]:
    """What a search finds; the ``missing`` ranks never answer."""
    asked = Asked()
    try:
        needs = next(search)
        while True:
            asked.needs += needs
            asked.rounds += 1
            ranks = {rank for need in needs for rank in need.ranks}
            answer = answer_to(needs, table if isinstance(table, pa.Table) else table(ranks), missing)
            asked.rows += len(answer.rows)
            needs = search.send(answer)
    except StopIteration as ended:
        return ended.value, asked


def answer_to(needs: Needs, table: pa.Table, missing: Collection[int] = ()) -> Answer:
    """What log agents would answer that keep all of a log."""
    rows = [_rows(table, need, missing) for need in needs if need.what == "rows"]
    usual = [_usual(_rows(table, need, missing)) for need in needs if need.what == "statistics"]
    series = [one for need in needs if need.what == "series" for one in _series(table, need, missing)]
    unknown = {rank for need in needs if need.what == "rows" for rank in need.ranks} & set(missing)
    rows = [table.slice(0, 0), *rows]
    return Answer(
        pa.concat_tables(rows, promote_options="default"),
        frozenset(unknown),
        WindowStatistics.joined(usual),
        tuple(series),
    )


def _usual(rows: pa.Table) -> WindowStatistics:
    operators = Operators.from_arrow(rows)
    return WindowStatistics.of_operators(operators, _durations(operators))


def _durations(operators: Operators) -> Floats:
    return np.where(operators.ended, operators.end_ns - operators.call_ns, np.nan)


def _series(table: pa.Table, need: Need, missing: Collection[int]) -> Iterator[Series]:
    assert need.communicator is not None
    [position] = need.positions
    for rank in need.ranks:
        own = Operators.from_arrow(_rows(table, replace(need, ranks=(rank,)), missing))
        whole = Operators.from_arrow(_rows(table, Need((rank,), need.iterations), missing))
        pairs = []
        for iteration, duration in zip(own.iteration.tolist(), _durations(own), strict=True):
            of = whole.take(whole.iteration == iteration)
            if not np.isnan(duration):
                pairs.append((int(duration), int(of.end_ns.max() - of.call_ns.min())))
        if pairs:
            operator_ns, iteration_ns = zip(*pairs, strict=True)
            yield Series(rank, need.communicator, position, operator_ns, iteration_ns)


def _rows(table: pa.Table, need: Need, missing: Collection[int]) -> pa.Table:
    if not table.column("end_ns").null_count:
        return _chosen(table, need, missing)
    return _chosen(_with_next_calls(_chosen(table, Need(need.ranks, need.iterations), missing)), need, missing)


def _chosen(table: pa.Table, need: Need, missing: Collection[int]) -> pa.Table:
    ranks = pa.array(sorted(set(need.ranks) - set(missing)), table.schema.field("rank").type)
    iterations = pa.array(need.iterations, table.schema.field("iteration").type)
    chosen = pc.and_(pc.is_in(table.column("rank"), ranks), pc.is_in(table.column("iteration"), iterations))
    if need.communicator is not None:
        chosen = pc.and_(chosen, pc.equal(table.column("communicator"), need.communicator))
    if need.seq_from is not None:
        chosen = pc.and_(chosen, pc.greater_equal(table.column("seq"), need.seq_from))
    if need.seq_to is not None:
        chosen = pc.and_(chosen, pc.less_equal(table.column("seq"), need.seq_to))
    if need.positions:
        chosen = pc.and_(chosen, pc.is_in(table.column("position"), pa.array(need.positions, pa.int64())))
    return table.filter(chosen)


def _with_next_calls(whole: pa.Table) -> pa.Table:
    """What log agents tell of a rank's next call, where no end is known."""
    whole = whole.sort_by([(name, "ascending") for name in ("rank", "call_ns", "call_order")])
    following = Operators.from_arrow(whole).next_calls
    column = pa.field("next_call_ns", pa.int64()), pa.array(following, mask=following == UNKNOWN)
    at = whole.schema.get_field_index("next_call_ns")
    return whole.append_column(*column) if at < 0 else whole.set_column(at, *column)
