"""What a log agent answers a request with: for whom, how completely, and what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from producers import operator_windows
from producers.log_store import PARTIAL, LogStore
from producers.next_calls import lacks_ends, with_next_calls
from schemas import catalogue
from schemas.log_requests import ROWS, STATISTICS
from schemas.topic import Topic

Asked = Mapping[str, Any]
"""A row of control.log_requests."""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """Records of ``topic`` for those of the asked ranks of whom they are equally complete."""

    topic: Topic
    ranks: tuple[int, ...]
    outcome: str
    rows: pa.Table


def answers(store: LogStore, request: Sequence[Asked]) -> Iterator[LogAnswer]:
    """What a store knows of a request's rows; every rank that it keeps is answered once a topic.

    Ranks differ in how far their logs are complete, so there is an answer for each outcome.
    """
    rows = [asked for asked in request if asked["what"] == ROWS]
    windows = [asked for asked in request if asked["what"] != ROWS]
    if rows:
        ranks = sorted({rank for asked in rows for rank in asked["ranks"] or ()} & set(store.ranks))
        parts = (part for rank in ranks for part in _of_rank(store, rank, rows))
        yield from _by_outcome(catalogue.COMM_OPS, parts)
    if windows:
        yield from _by_outcome(catalogue.OPERATOR_WINDOWS, _windows(store, windows))


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of some ranks, and how complete each rank's are."""

    rows: Sequence[pa.Table]
    outcomes: Mapping[int, str]


def _of_rank(store: LogStore, rank: int, request: Sequence[Asked]) -> Iterator[_Part]:
    """The rows asked for of one rank.

    Where no ends are logged they come with what the rank called next, which its whole log tells: that is looked up
    once for all that is asked of a stretch of iterations.
    """

    @lru_cache(maxsize=1)
    def whole(first: int, last: int) -> pa.Table:
        return with_next_calls(store.rows([rank], first, last)[0])

    own = [asked for asked in request if rank in (asked["ranks"] or ())]
    for asked in sorted(own, key=_stretch):  # a whole log is large: one at a time
        table, outcome = _rows(store, asked, rank)
        if lacks_ends(table):
            table = with_next_calls(table) if _is_whole(asked) else _only(whole(*_stretch(asked)), asked)
        yield _Part([table], {rank: outcome})


def _stretch(asked: Asked) -> tuple[int, int]:
    return asked["iteration_from"], asked["iteration_to"]


def _is_whole(asked: Asked) -> bool:
    return not asked["positions"] and all(asked[name] is None for name in ("communicator", "seq_from", "seq_to"))


def _rows(store: LogStore, asked: Asked, rank: int) -> tuple[pa.Table, str]:
    where = ("iteration_from", "iteration_to", "communicator", "seq_from", "seq_to")
    table, outcome = store.rows([rank], *(asked[name] for name in where))
    if asked["positions"]:
        table = table.filter(_at(table, asked["positions"]))
    return table, outcome


def _only(rows: pa.Table, asked: Asked) -> pa.Table:
    """The rows that are asked for."""
    if asked["communicator"] is not None:
        rows = rows.filter(pc.equal(rows.column("communicator").cast(pa.string()), asked["communicator"]))
    if asked["seq_from"] is not None:
        rows = rows.filter(pc.greater_equal(rows.column("seq"), asked["seq_from"]))
    if asked["seq_to"] is not None:
        rows = rows.filter(pc.less_equal(rows.column("seq"), asked["seq_to"]))
    return rows.filter(_at(rows, asked["positions"])) if asked["positions"] else rows


def _at(rows: pa.Table, positions: Sequence[int]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("position"), pa.array(positions, rows.schema.field("position").type))


def _windows(store: LogStore, request: Sequence[Asked]) -> Iterator[_Part]:
    """Statistics and series; what is asked of several stretches of iterations is one window."""
    stretches: dict[Hashable, list[Asked]] = defaultdict(list)
    for asked in request:
        stretches[
            (asked["what"], tuple(asked["ranks"] or ()), asked["communicator"], tuple(asked["positions"] or ()))
        ].append(asked)
    for window in stretches.values():
        what, communicator, positions = (window[0][name] for name in ("what", "communicator", "positions"))
        if what == STATISTICS:
            yield from _each_rank(store, window, operator_windows.statistics)
        elif communicator is not None and len(positions or ()) == 1:
            [position] = positions

            def one(rows: pa.Table, communicator: str = communicator, position: int = position) -> pa.RecordBatch:
                return operator_windows.series(store, rows, communicator, position)

            yield from _each_rank(store, window, one)
        else:  # of no operator in particular: there is nothing that could be told
            empty = catalogue.OPERATOR_WINDOWS.schema.empty_table()
            yield _Part([empty], dict.fromkeys(sorted(set(window[0]["ranks"]) & set(store.ranks)), PARTIAL))


def _each_rank(store: LogStore, window: Sequence[Asked], made: Callable[[pa.Table], pa.RecordBatch]) -> Iterator[_Part]:
    """Rank by rank: a window of all ranks of a host at once would take gigabytes."""
    for rank in sorted(set(window[0]["ranks"] or ()) & set(store.ranks)):
        found = [_rows(store, asked, rank) for asked in window]
        tables = [table.select(operator_windows.COLUMNS) for table, _ in found]
        rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        yield _Part([pa.Table.from_batches([made(rows)])], {rank: _joint(outcome for _, outcome in found)})


def _by_outcome(topic: Topic, parts: Iterable[_Part]) -> Iterator[LogAnswer]:
    parts = list(parts)
    told: dict[int, set[str]] = defaultdict(set)
    for part in parts:
        for rank, outcome in part.outcomes.items():
            told[rank].add(outcome)
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(told):
        ranks_of[_joint(told[rank])].append(rank)
    tables = [table for part in parts for table in part.rows]
    rows = pa.concat_tables([topic.schema.empty_table(), *tables]).unify_dictionaries()
    for outcome, ranks in ranks_of.items():
        own = rows if len(ranks_of) == 1 else rows.filter(_of(rows, ranks))
        yield LogAnswer(topic, tuple(ranks), outcome, own)


def _joint(outcomes: Iterable[str]) -> str:
    """How complete several answers of one rank are together."""
    distinct = set(outcomes)
    return distinct.pop() if len(distinct) == 1 else PARTIAL


def _of(rows: pa.Table, ranks: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("rank"), pa.array(sorted(ranks), pa.int32()))
