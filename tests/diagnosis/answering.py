"""Runs a search on a log at hand, and remembers what it asked for."""

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.operator_graph.logs import Answer, Need, Needs

Found = TypeVar("Found")


@dataclass
class Asked:
    """Everything that a search asked for; ``rows`` counts those that it was given."""

    needs: list[Need] = field(default_factory=list)
    rounds: int = 0
    rows: int = 0

    @property
    def ranks(self) -> set[int]:
        return {rank for need in self.needs for rank in need.ranks}


def answered(
    search: Generator[Needs, Answer, Found], table: pa.Table, missing: Collection[int] = ()
) -> tuple[Found, Asked]:
    """What a search finds; the ``missing`` ranks never answer."""
    asked = Asked()
    try:
        needs = next(search)
        while True:
            asked.needs += needs
            asked.rounds += 1
            rows = pa.concat_tables([_rows(table, need, missing) for need in needs])
            asked.rows += len(rows)
            unknown = {rank for need in needs for rank in need.ranks} & set(missing)
            needs = search.send(Answer(rows, frozenset(unknown)))
    except StopIteration as ended:
        return ended.value, asked


def _rows(table: pa.Table, need: Need, missing: Collection[int]) -> pa.Table:
    ranks = pa.array(sorted(set(need.ranks) - set(missing)), table.schema.field("rank").type)
    iterations = pa.array(need.iterations, table.schema.field("iteration").type)
    chosen = pc.and_(pc.is_in(table.column("rank"), ranks), pc.is_in(table.column("iteration"), iterations))
    if need.communicator is not None:
        chosen = pc.and_(chosen, pc.equal(table.column("communicator"), need.communicator))
    return table.filter(chosen)
