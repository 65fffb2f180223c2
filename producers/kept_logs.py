"""Logs as far as they have travelled: what topics still hold of them, for a diagnosis that can ask no agent.

Two kinds of rows are known to be whole: those of the pivots, which are published unasked, and those that answered a
request for whole iterations. Everything else may be a part of what a rank logged, and is not taken for more. What did
not travel may be in folders that agents keep.

Records are held as they came, compressed, up to a bound of bytes, and decoded when they are asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Ints
from diagnosis.columns import integers
from diagnosis.job import Job
from producers.kept_folder import KeptFolder
from producers.log_store import Rows, Spans
from producers.next_calls import with_next_calls
from producers.row_query import RowQuery
from schemas import catalogue
from schemas.answer_parts import AnswerParts, WholeAnswer
from schemas.log_answers import COMPLETE, OVERWRITTEN, PARTIAL, REQUEST_ID, AnswerHeaders
from schemas.log_requests import ROWS
from schemas.message import Message, decode

_ANSWERS = {topic.name: topic for topic in (catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)}
_FILTERS = ("communicator", "seq_from", "seq_to", "positions")

Asked = tuple[tuple[str, Any], ...]
"""A row of a request without its deadline: what two requests must share for one's answer to be the other's."""

RankIteration = tuple[int, int]
"""A rank and an iteration."""

Stretch = tuple[int, int]
"""First and last of some iterations. They are never counted out: a message may name as many as an int32 holds."""


_DECODED = 64
"""Answers of which the rows are held decoded: a search asks for the same ones again and again."""

_REQUESTED = 4
"""Requests that are held decoded: the hosts that answer one do so together, and the next one waits for it."""

_OVERHEAD_BYTES = 1024
"""What a record takes in memory beside its bytes."""

_ARRAY_BYTES = 128
"""What an array does."""

_FOR_LOGS = 0.75
"""The part of the room that logs may take; the rest is for when iterations began and ended."""


@dataclass
class Room:
    """How many bytes may be held, of all jobs together, and are; ``refused`` counts the records that found no room."""

    most_bytes: int = 2 << 30
    held_bytes: int = 0
    refused: int = 0

    def take(self, size: int, part: float = 1.0) -> bool:
        """Take some, as long as no more than a part of the room is held; whether it was there."""
        found = self.held_bytes + size <= part * self.most_bytes
        self.held_bytes += size if found else 0
        return found


@dataclass
class KeptLogs:
    """The logs of one job, a ``LogStore`` over what ``take`` was given, and over what agents keep.

    ``asked`` and ``gone`` count ranks and iterations (pairs) whose rows were asked for, and those of them that are
    not kept whole. Of iterations up to ``let_go`` it is not known any more when they began and ended.
    """

    job: Job
    room: Room = field(default_factory=Room)
    folder: KeptFolder | None = None
    closed: int = -1
    watermark_ns: int = 0
    ended: bool = True
    let_go: int = -1
    asked: set[RankIteration] = field(default_factory=set)
    gone: set[RankIteration] = field(default_factory=set)
    _requests: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    _parts: AnswerParts[Message] = field(init=False)
    _answers_to: dict[str, list[WholeAnswer[Message]]] = field(default_factory=lambda: defaultdict(list))
    _spans: dict[int, list[Ints]] = field(default_factory=lambda: defaultdict(list))
    _answers: list[WholeAnswer[Message]] = field(default_factory=list)
    _answer_of: dict[RankIteration, int] = field(default_factory=dict)
    _whole: dict[int, set[Stretch]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self._parts = AnswerParts(self.room.most_bytes)
        self._decoded = lru_cache(_DECODED)(self._decode)
        self._requested = lru_cache(_REQUESTED)(self._decode_request)

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.job.ranks

    def take(self, message: Message) -> None:
        """Take a record of log_requests, comm_ops or operator_windows, in the order of its topic.

        One that finds no room is not taken, and counted. Raises ``MessageError`` for a bad one.
        """
        if message.topic == catalogue.LOG_REQUESTS.name:
            self._take_request(message)
        elif message.topic in _ANSWERS:
            self._take_part(message)

    def take_summaries(self, batch: pa.RecordBatch) -> None:
        """Take a batch of iteration_summaries: when ranks began and ended iterations.

        Where there is no room for it the oldest iterations' are let go.
        """
        table = pa.Table.from_batches([batch])
        iteration = integers(table, "iteration")
        columns = np.stack([integers(table, name) for name in ("rank", "start_ns", "end_ns", "lost_lines")], axis=1)
        columns[:, 3] = np.maximum(columns[:, 3], 0)
        for each in np.unique(iteration).tolist():
            of_iteration = columns[iteration == each]
            self.closed = max(self.closed, each)
            if each <= self.let_go:
                continue
            while not (room := self.room.take(of_iteration.nbytes + _ARRAY_BYTES)) and self._spans:
                self._let_go(min(self._spans))
            if room:
                self._spans[each].append(of_iteration)

    def _let_go(self, iteration: int) -> None:
        self.room.held_bytes -= sum(part.nbytes + _ARRAY_BYTES for part in self._spans.pop(iteration))
        self.let_go = max(self.let_go, iteration)

    def answers_to(self, request_id: str, rows: Sequence[Mapping[str, Any]]) -> list[Message] | None:
        """What this very request was answered; None where it was another one, or is no longer known."""
        if self._requested(request_id) != {_asked(row) for row in rows}:
            return None
        answers = self._answers_to.get(request_id, [])
        if self.folder is not None:  # what did not come then may be there
            complete = (answer.headers for answer in answers if answer.headers.outcome == COMPLETE)
            answered = {rank for headers in complete for rank in headers.ranks}
            if not answered >= {rank for row in rows for rank in row["ranks"] or ()}:
                return None
        return [part for answer in answers for part in answer.parts]

    def advance(self) -> bool:
        """Nothing more comes."""
        return False

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        told = self._spans.get(iteration, [])
        rows = np.concatenate([np.zeros((0, 4), dtype=np.int64), *told])[::-1]  # what was told last counts
        rows = rows[np.unique(rows[:, 0], return_index=True)[1]]
        return Spans(*(rows if ranks is None else rows[np.isin(rows[:, 0], list(ranks))]).T)

    def rows(self, ranks: Iterable[int], query: RowQuery, *, next_calls: bool = False) -> Rows:
        iterations = range(query.iteration_from, min(query.iteration_to, self.closed) + 1)
        own = sorted(set(ranks) & set(self.ranks))
        wanted = [(rank, iteration) for rank in own for iteration in iterations]
        self.asked.update(wanted)
        blocks = {
            place: self._decoded(answer)[place] for place in wanted if (answer := self._answer_of.get(place, -1)) >= 0
        }
        missing = {place for place in wanted if place not in blocks and not _within(place, self._whole)}
        for place, rows, whole in self._of_folder(missing):
            blocks[place] = rows
            missing -= {place} if whole else set()
        self.gone |= missing
        parts = [blocks[place] for place in wanted if place in blocks]
        table = pa.concat_tables([catalogue.COMM_OPS.schema.empty_table(), *parts]).unify_dictionaries()
        table = table.combine_chunks()
        table = query.filter(with_next_calls(table) if next_calls else table)
        lacking, kept = {rank for rank, _ in missing}, {rank for rank, _ in blocks}
        outcomes = {rank: COMPLETE if rank not in lacking else PARTIAL if rank in kept else OVERWRITTEN for rank in own}
        return Rows(table, outcomes)

    def _of_folder(self, places: Iterable[RankIteration]) -> Iterator[tuple[RankIteration, pa.Table, bool]]:
        """What agents keep of ranks and iterations, and whether it is all."""
        if self.folder is None:
            return
        of_iteration: dict[int, list[int]] = defaultdict(list)
        for rank, iteration in places:
            of_iteration[iteration].append(rank)
        for iteration, ranks in of_iteration.items():
            for rank, rows, whole in self.folder.rows(iteration, ranks):
                yield (rank, iteration), rows, whole

    def _take_request(self, message: Message) -> None:
        asked: dict[str, set[Asked]] = defaultdict(set)
        for row in decode(message, catalogue.LOG_REQUESTS).to_pylist():
            asked[row["request_id"]].add(_asked(row))
        fresh = [request_id for request_id, rows in asked.items() if not rows <= self._requested(request_id)]
        if fresh and self._found_room(message):
            for request_id in fresh:
                self._requests[request_id].append(message)
            self._requested.cache_clear()

    def _take_part(self, message: Message) -> None:
        if message in self._parts:
            return
        if not self._found_room(message):
            if self._requests.pop(message.headers.get(REQUEST_ID, ""), None):  # of its answer a part would be missing
                self._requested.cache_clear()
            return
        answer = self._parts.add(message, message)
        if answer is None:
            return
        request_id = answer.headers.request_id
        if request_id:
            self._answers_to[request_id].append(answer)
        if message.topic == catalogue.COMM_OPS.name and (not request_id or answer.headers.outcome == COMPLETE):
            self._keep(answer)

    def _found_room(self, message: Message) -> bool:
        """Take what a record is held in; where it is not there it is counted."""
        found = self.room.take(len(message.value or b"") + _OVERHEAD_BYTES, _FOR_LOGS)
        self.room.refused += not found
        return found

    def _keep(self, answer: WholeAnswer[Message]) -> None:
        """Keep an answer for the blocks of it that are whole, a rank and an iteration each."""
        here = set(_places(answer.parts))
        if answer.headers.request_id:
            wanted = self._asked_whole(answer.headers)
            for rank, stretches in wanted.items():
                self._whole[rank] |= stretches
            here = {place for place in here if _within(place, wanted)}
        for place in here:
            self._answer_of.setdefault(place, len(self._answers))
        self._answers.append(answer)

    def _decode(self, answer: int) -> dict[RankIteration, pa.Table]:
        """The blocks of an answer; it was decoded when it was taken, so it can be."""
        return dict(_blocks(_table(self._answers[answer].parts)))

    def _decode_request(self, request_id: str) -> frozenset[Asked]:
        """What was asked for under an id; it was decoded when it was taken, so it can be."""
        messages = self._requests.get(request_id, ())
        rows = (row for message in messages for row in decode(message, catalogue.LOG_REQUESTS).to_pylist())
        return frozenset(_asked(row) for row in rows if row["request_id"] == request_id)

    def _asked_whole(self, answer: AnswerHeaders) -> Mapping[int, set[Stretch]]:
        """Iterations, by rank, that a request asked for without leaving anything of them out."""
        wanted: dict[int, set[Stretch]] = defaultdict(set)
        for row in map(dict, self._requested(answer.request_id)):
            if row["what"] == ROWS and not any(row[name] for name in _FILTERS):
                for rank in set(answer.ranks) & set(row["ranks"]):
                    wanted[rank].add((row["iteration_from"], row["iteration_to"]))
        return wanted


def _within(place: RankIteration, stretches: Mapping[int, Iterable[Stretch]]) -> bool:
    """Whether a rank's stretches hold an iteration."""
    rank, iteration = place
    return any(first <= iteration <= last for first, last in stretches.get(rank, ()))


def _asked(row: Mapping[str, Any]) -> Asked:
    plain = {**row, "deadline_ns": 0, "ranks": tuple(row["ranks"] or ())}
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(plain.items()))


def _table(parts: Sequence[Message]) -> pa.Table:
    """The rows of an answer. Raises ``MessageError``."""
    batches = [decode(part, catalogue.COMM_OPS) for part in parts]
    return pa.Table.from_batches(batches).cast(catalogue.COMM_OPS.schema)


def _places(parts: Sequence[Message]) -> Iterator[RankIteration]:
    """The ranks and iterations that an answer tells of. Raises ``MessageError``."""
    for part in parts:
        table = pa.Table.from_batches([decode(part, catalogue.COMM_OPS)])
        yield from set(zip(integers(table, "rank").tolist(), integers(table, "iteration").tolist(), strict=True))


def _blocks(table: pa.Table) -> Iterator[tuple[RankIteration, pa.Table]]:
    """The rows of each rank and iteration, in the order of their calls."""
    rank, iteration, order = (integers(table, name) for name in ("rank", "iteration", "call_order"))
    by = np.lexsort((order, iteration, rank))
    rank, iteration = rank[by], iteration[by]
    heads = np.flatnonzero(np.append(True, (np.diff(rank) != 0) | (np.diff(iteration) != 0))) if len(by) else by
    table = table.take(pa.array(by))
    for first, last in zip(heads.tolist(), [*heads[1:].tolist(), len(by)], strict=True):
        yield (int(rank[first]), int(iteration[first])), table.slice(first, last - first)
