"""Logs as far as they have travelled: what topics still hold of them, for a diagnosis that can ask no agent.

Two kinds of rows are known to be whole: those of the pivots, which are published unasked, and those that answered a
request for whole iterations. Everything else may be a part of what a rank logged, and is not taken for more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.columns import integers
from diagnosis.job import Job
from producers.log_agent import LogAgent
from producers.log_store import COMPLETE, OVERWRITTEN, PARTIAL, Spans
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.message import Message, decode
from schemas.topic import Topic

_ANSWERS = {topic.name: topic for topic in (catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)}
_FILTERS = ("communicator", "seq_from", "seq_to", "positions")

Request = tuple[tuple[tuple[str, Any], ...], ...]
"""The rows of a request without its deadline: what two requests must share for one's answer to be the other's."""

Stretch = tuple[int, int]
"""First and last of some iterations. They are never counted out: a message may name as many as an int32 holds."""


class _Whose(NamedTuple):
    """What a part belongs to."""

    topic: str
    parts: int
    request_id: str
    host: str
    producer: str
    watermark: str
    ranks: str


@dataclass
class KeptLogs:
    """The logs of one job, a ``LogStore`` over what ``take`` was given.

    ``asked`` and ``gone`` count ranks and iterations (pairs) whose rows were asked for, and those of them that are
    not kept whole.
    """

    job: Job
    closed: int = -1
    watermark_ns: int = 0
    ended: bool = True
    asked: set[tuple[int, int]] = field(default_factory=set)
    gone: set[tuple[int, int]] = field(default_factory=set)
    _requests: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _parts: dict[_Whose, dict[int, Message]] = field(default_factory=lambda: defaultdict(dict))
    _spans: dict[int, dict[int, tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(dict))
    _blocks: dict[tuple[int, int], pa.Table] = field(default_factory=dict)
    _whole: dict[int, set[Stretch]] = field(default_factory=lambda: defaultdict(set))

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.job.ranks

    def take(self, message: Message) -> None:
        """Take a record of iteration_summaries, log_requests, comm_ops or operator_windows, in the order of its topic.

        Raises ``MessageError`` for a bad one.
        """
        if message.topic == catalogue.ITERATION_SUMMARIES.name:
            self._take_summaries(message)
        elif message.topic == catalogue.LOG_REQUESTS.name:
            for row in decode(message, catalogue.LOG_REQUESTS).to_pylist():
                self._requests.setdefault(row["request_id"], []).append(row)
        elif message.topic in _ANSWERS:
            self._take_part(message)

    def answers_to(self, request_id: str, rows: Sequence[Mapping[str, Any]]) -> list[Message] | None:
        """What this very request was answered; None where it was another one, or is no longer known."""
        known = self._requests.get(request_id)
        if known is None or _request(known) != _request(rows):
            return None
        kept = (parts for whose, parts in self._parts.items() if whose.request_id == request_id)
        return [part for parts in kept for part in parts.values()]

    def advance(self) -> bool:
        """Nothing more comes."""
        return False

    def spans(self, iteration: int, ranks: Iterable[int] | None = None) -> Spans:
        of_rank = self._spans.get(iteration, {})
        chosen = sorted(of_rank if ranks is None else set(of_rank) & set(ranks))
        columns = np.array([(rank, *of_rank[rank]) for rank in chosen], dtype=np.int64).reshape(-1, 4)
        return Spans(*columns.T)

    def rows(
        self,
        ranks: Iterable[int],
        iteration_from: int,
        iteration_to: int,
        communicator: str | None = None,
        seq_from: int | None = None,
        seq_to: int | None = None,
    ) -> tuple[pa.Table, str]:
        iterations = range(iteration_from, min(iteration_to, self.closed) + 1)
        wanted = [(rank, iteration) for rank in sorted(set(ranks) & set(self.ranks)) for iteration in iterations]
        missing = {place for place in wanted if place not in self._blocks and not _within(place, self._whole)}
        self.asked.update(wanted)
        self.gone |= missing
        blocks = [self._blocks[place] for place in wanted if place in self._blocks]
        table = pa.concat_tables([catalogue.COMM_OPS.schema.empty_table(), *blocks]).unify_dictionaries()
        table = _filtered(table.combine_chunks(), communicator, seq_from, seq_to)
        return table, COMPLETE if not missing else OVERWRITTEN if len(missing) == len(wanted) else PARTIAL

    def _take_summaries(self, message: Message) -> None:
        columns = ["rank", "iteration", "start_ns", "end_ns", "lost_lines"]
        for row in decode(message, catalogue.ITERATION_SUMMARIES).select(columns).to_pylist():
            end_ns = -1 if row["end_ns"] is None else row["end_ns"]
            self._spans[row["iteration"]][row["rank"]] = (row["start_ns"], end_ns, row["lost_lines"] or 0)
            self.closed = max(self.closed, row["iteration"])

    def _take_part(self, message: Message) -> None:
        headers = message.headers
        try:
            part, parts = int(headers.get("part", "0")), int(headers.get("parts", "1"))
            [int(rank) for rank in headers.get("ranks", "").split(",") if rank]
        except ValueError as error:
            raise WrongSchema(f"{message.topic}: headers part, parts and ranks hold numbers: {error}") from error
        names = ("request_id", "host", "producer", "watermark_ns", "ranks")
        whose = _Whose(message.topic, parts, *(headers.get(name, "") for name in names))
        kept = self._parts[whose]
        kept.setdefault(part, message)
        if len(kept) < parts or whose.topic != catalogue.COMM_OPS.name:
            return
        if not whose.request_id or kept[part].headers.get("outcome") == COMPLETE:
            self._keep(whose, [decode(kept[number], catalogue.COMM_OPS) for number in sorted(kept)])
        if not whose.request_id:
            del self._parts[whose]

    def _keep(self, whose: _Whose, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep the blocks of an answer that are whole, a rank and an iteration each."""
        table = pa.Table.from_batches(batches).cast(catalogue.COMM_OPS.schema)
        here = dict(_blocks(table))
        if whose.request_id:
            wanted = self._asked_whole(whose)
            for rank, stretches in wanted.items():
                self._whole[rank] |= stretches
            here = {place: rows for place, rows in here.items() if _within(place, wanted)}
        for place, rows in here.items():
            self._blocks.setdefault(place, rows)

    def _asked_whole(self, whose: _Whose) -> Mapping[int, set[Stretch]]:
        """Iterations, by rank, that a request asked for without leaving anything of them out."""
        answered = {int(rank) for rank in whose.ranks.split(",") if rank}
        wanted: dict[int, set[Stretch]] = defaultdict(set)
        for row in self._requests.get(whose.request_id, ()):
            if row["what"] == "rows" and not any(row[name] for name in _FILTERS):
                for rank in answered & set(row["ranks"]):
                    wanted[rank].add((row["iteration_from"], row["iteration_to"]))
        return wanted


class KeptAnswers:
    """Answers the requests of a diagnosis of the past: as they were answered then, else from the rows that are kept.

    A processor. What is no longer kept is answered as overwritten, and counted in ``logs``, by job.
    """

    name = "kept-logs"
    reads: tuple[Topic, ...] = (catalogue.LOG_REQUESTS,)
    writes: tuple[Topic, ...] = (catalogue.ITERATION_SUMMARIES, *_ANSWERS.values())

    def __init__(self, logs: Mapping[str, KeptLogs]) -> None:
        self.logs = logs
        self._agents = {job: LogAgent(kept, self.name, ()) for job, kept in logs.items()}

    def process(self, message: Message) -> Iterable[Message]:
        rows = decode(message, catalogue.LOG_REQUESTS).to_pylist()
        if message.job not in self.logs:
            return
        then = self.logs[message.job].answers_to(rows[0]["request_id"], rows) if rows else None
        if then is None:
            yield from self._agents[message.job].process(message)
        else:
            for answer in then:  # under the time of now, as an agent's
                yield Message(answer.topic, answer.key, answer.value, answer.headers)

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: whoever asks minds the deadlines."""
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


def _within(place: tuple[int, int], stretches: Mapping[int, Iterable[Stretch]]) -> bool:
    """Whether a rank's stretches hold an iteration."""
    rank, iteration = place
    return any(first <= iteration <= last for first, last in stretches.get(rank, ()))


def _request(rows: Sequence[Mapping[str, Any]]) -> Request:
    plain = ({**row, "deadline_ns": 0, "ranks": tuple(row["ranks"] or ())} for row in rows)
    return tuple(
        sorted(
            (tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in sorted(row.items())) for row in plain),
            key=repr,
        )
    )


def _blocks(table: pa.Table) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """The rows of each rank and iteration, in the order of their calls."""
    rank, iteration, order = (integers(table, name) for name in ("rank", "iteration", "call_order"))
    by = np.lexsort((order, iteration, rank))
    rank, iteration = rank[by], iteration[by]
    heads = np.flatnonzero(np.append(True, (np.diff(rank) != 0) | (np.diff(iteration) != 0))) if len(by) else by
    table = table.take(pa.array(by))
    for first, last in zip(heads.tolist(), [*heads[1:].tolist(), len(by)], strict=True):
        yield (int(rank[first]), int(iteration[first])), table.slice(first, last - first)


def _filtered(table: pa.Table, communicator: str | None, seq_from: int | None, seq_to: int | None) -> pa.Table:
    if communicator is not None:
        table = table.filter(pc.equal(table.column("communicator").cast(pa.string()), communicator))
    if seq_from is not None:
        table = table.filter(pc.greater_equal(table.column("seq"), seq_from))
    if seq_to is not None:
        table = table.filter(pc.less_equal(table.column("seq"), seq_to))
    return table
