"""What a log agent answers a request with: for whom, how completely, and what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from producers import operator_windows
from producers.log_store import LogSource, Rows, all_rows
from producers.row_query import RowQuery
from schemas import catalogue
from schemas.log_answers import PARTIAL
from schemas.log_requests import ROWS, STATISTICS
from schemas.topic import Topic

Asked = Mapping[str, Any]
"""A row of control.log_requests."""

_TOGETHER = 64
"""Ranks whose rows of a communicator are looked up at once."""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """Records of ``topic`` for those of the asked ranks of whom they are equally complete."""

    topic: Topic
    ranks: tuple[int, ...]
    outcome: str
    rows: pa.Table


def answers(logs: LogSource, request: Sequence[Asked]) -> Iterator[LogAnswer]:
    """What logs tell of a request's rows; every rank that is kept is answered once a topic.

    Ranks differ in how far their logs are complete, so there is an answer for each outcome.
    """
    rows = [asked for asked in request if asked["what"] == ROWS]
    windows = [asked for asked in request if asked["what"] != ROWS]
    if rows:
        kept = set(logs.ranks)
        groups = ((asked, ranks) for asked in rows for ranks in _together(asked, kept))
        parts = (part for asked, ranks in groups for part in _looked_up(logs, asked, ranks, next_calls=True))
        yield from _by_outcome(catalogue.COMM_OPS, parts)
    if windows:
        yield from _by_outcome(catalogue.OPERATOR_WINDOWS, _windows(logs, windows))


def _together(asked: Asked, kept: Set[int]) -> Iterator[Sequence[int]]:
    """The asked ranks that are kept, as many at a time as are looked up together: a whole log is large."""
    ranks = sorted(kept & set(asked["ranks"] or ()))
    step = 1 if _query(asked).whole else _TOGETHER
    return (ranks[first : first + step] for first in range(0, len(ranks), step))


def _query(asked: Asked) -> RowQuery:
    return RowQuery(*(asked[field.name] for field in fields(RowQuery)))


def _looked_up(logs: LogSource, asked: Asked, ranks: Sequence[int], *, next_calls: bool = False) -> Iterator[Rows]:
    for found in all_rows(logs, ranks, _query(asked), next_calls=next_calls):
        if asked["positions"]:
            positions = pa.array(asked["positions"], found.table.schema.field("position").type)
            yield found._replace(table=found.table.filter(pc.is_in(found.table.column("position"), positions)))
        else:
            yield found


def _windows(logs: LogSource, request: Sequence[Asked]) -> Iterator[Rows]:
    """Statistics and series; what is asked of several stretches of iterations is one window."""
    stretches: dict[Hashable, list[Asked]] = defaultdict(list)
    for asked in request:
        stretches[
            (asked["what"], tuple(asked["ranks"] or ()), asked["communicator"], tuple(asked["positions"] or ()))
        ].append(asked)
    for window in stretches.values():
        what, communicator, positions = (window[0][name] for name in ("what", "communicator", "positions"))
        if what == STATISTICS:
            yield from _each_rank(logs, window, operator_windows.statistics)
        elif communicator is not None and len(positions or ()) == 1:
            [position] = positions

            def one(rows: pa.Table, communicator: str = communicator, position: int = position) -> pa.RecordBatch:
                return operator_windows.series(logs, rows, communicator, position)

            yield from _each_rank(logs, window, one)
        else:  # of no operator in particular: there is nothing that could be told
            empty = catalogue.OPERATOR_WINDOWS.schema.empty_table()
            yield Rows(empty, dict.fromkeys(sorted(set(window[0]["ranks"]) & set(logs.ranks)), PARTIAL))


def _each_rank(logs: LogSource, window: Sequence[Asked], made: Callable[[pa.Table], pa.RecordBatch]) -> Iterator[Rows]:
    """Rank by rank: a window of all ranks of a host at once would take gigabytes."""
    for rank in sorted(set(window[0]["ranks"] or ()) & set(logs.ranks)):
        found = [rows for asked in window for rows in _looked_up(logs, asked, [rank])]
        tables = [each.table.select(operator_windows.COLUMNS) for each in found]
        records = made(pa.concat_tables(tables).unify_dictionaries().combine_chunks())
        yield Rows(pa.Table.from_batches([records]), {rank: _joint(each.outcomes[rank] for each in found)})


def _by_outcome(topic: Topic, parts: Iterable[Rows]) -> Iterator[LogAnswer]:
    parts = list(parts)
    told: dict[int, set[str]] = defaultdict(set)
    for part in parts:
        for rank, outcome in part.outcomes.items():
            told[rank].add(outcome)
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(told):
        ranks_of[_joint(told[rank])].append(rank)
    rows = pa.concat_tables([topic.schema.empty_table(), *(part.table for part in parts)]).unify_dictionaries()
    for outcome, ranks in ranks_of.items():
        own = rows if len(ranks_of) == 1 else rows.filter(_of(rows, ranks))
        yield LogAnswer(topic, tuple(ranks), outcome, own)


def _joint(outcomes: Iterable[str]) -> str:
    """How complete several answers of one rank are together."""
    distinct = set(outcomes)
    return distinct.pop() if len(distinct) == 1 else PARTIAL


def _of(rows: pa.Table, ranks: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("rank"), pa.array(sorted(ranks), pa.int32()))
