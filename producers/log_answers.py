"""What a log agent answers a request with: for whom, how completely, and what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from producers import operator_windows
from producers.log_store import PARTIAL, LogStore, Rows, joint
from schemas import catalogue
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


def answers(store: LogStore, request: Sequence[Asked]) -> Iterator[LogAnswer]:
    """What a store knows of a request's rows; every rank that it keeps is answered once a topic.

    Ranks differ in how far their logs are complete, so there is an answer for each outcome.
    """
    rows = [asked for asked in request if asked["what"] == ROWS]
    windows = [asked for asked in request if asked["what"] != ROWS]
    if rows:
        kept = set(store.ranks)
        groups = ((asked, ranks) for asked in rows for ranks in _together(asked, kept))
        parts = (part for asked, ranks in groups for part in _rows(store, asked, ranks))
        yield from _by_outcome(catalogue.COMM_OPS, parts)
    if windows:
        yield from _by_outcome(catalogue.OPERATOR_WINDOWS, _windows(store, windows))


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of some ranks, and how complete each rank's are."""

    rows: pa.Table
    outcomes: Mapping[int, str]


def _together(asked: Asked, kept: Set[int]) -> Iterator[Sequence[int]]:
    """The asked ranks that are kept, as many at a time as are looked up together: a whole log is large."""
    ranks = sorted(kept & set(asked["ranks"] or ()))
    whole = all(asked[name] is None for name in ("communicator", "seq_from", "seq_to"))
    step = 1 if whole else _TOGETHER
    return (ranks[first : first + step] for first in range(0, len(ranks), step))


def _rows(store: LogStore, asked: Asked, ranks: Sequence[int]) -> Iterator[_Part]:
    """The rows asked for of some ranks; those for whom there was no room are looked up by themselves."""
    while ranks:
        found = _looked_up(store, asked, ranks, next_calls=True)
        yield _Part(found.table, found.outcomes)
        ranks = [rank for rank in ranks if rank not in found.outcomes]


def _looked_up(store: LogStore, asked: Asked, ranks: Sequence[int], *, next_calls: bool = False) -> Rows:
    where = ("iteration_from", "iteration_to", "communicator", "seq_from", "seq_to")
    found = store.rows(ranks, *(asked[name] for name in where), next_calls=next_calls)
    if not asked["positions"]:
        return found
    positions = pa.array(asked["positions"], found.table.schema.field("position").type)
    return found._replace(table=found.table.filter(pc.is_in(found.table.column("position"), positions)))


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
            yield _Part(empty, dict.fromkeys(sorted(set(window[0]["ranks"]) & set(store.ranks)), PARTIAL))


def _each_rank(store: LogStore, window: Sequence[Asked], made: Callable[[pa.Table], pa.RecordBatch]) -> Iterator[_Part]:
    """Rank by rank: a window of all ranks of a host at once would take gigabytes."""
    for rank in sorted(set(window[0]["ranks"] or ()) & set(store.ranks)):
        found = [_looked_up(store, asked, [rank]) for asked in window]
        tables = [each.table.select(operator_windows.COLUMNS) for each in found]
        rows = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        yield _Part(pa.Table.from_batches([made(rows)]), {rank: joint(each.outcome for each in found)})


def _by_outcome(topic: Topic, parts: Iterable[_Part]) -> Iterator[LogAnswer]:
    parts = list(parts)
    told: dict[int, set[str]] = defaultdict(set)
    for part in parts:
        for rank, outcome in part.outcomes.items():
            told[rank].add(outcome)
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank in sorted(told):
        ranks_of[joint(told[rank])].append(rank)
    rows = pa.concat_tables([topic.schema.empty_table(), *(part.rows for part in parts)]).unify_dictionaries()
    for outcome, ranks in ranks_of.items():
        own = rows if len(ranks_of) == 1 else rows.filter(_of(rows, ranks))
        yield LogAnswer(topic, tuple(ranks), outcome, own)


def _of(rows: pa.Table, ranks: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("rank"), pa.array(sorted(ranks), pa.int32()))
