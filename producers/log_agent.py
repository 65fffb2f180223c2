"""The agent that watches the operator logs of one host (Holmes 4.1, 4.3.3).

Of each iteration it publishes a summary of its ranks and the rows of the pivots among them. All other rows stay
where they are until somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from diagnosis.job import Job
from producers.iteration_summaries import summarise
from producers.labels import label
from producers.log_answers import answers
from producers.log_index import LogIndex
from producers.log_store import LogSource, LogStore, RecordingStore, all_rows
from producers.parts import encode_parts
from producers.row_query import RowQuery
from schemas import catalogue
from schemas.log_answers import AnswerHeaders
from schemas.log_requests import EPOCHS
from schemas.message import Message, decode
from schemas.topic import Topic

UNKNOWN_HOST = "recording"
"""Name of the agent of ranks whose host is not known."""

MAX_HELD = 1000
"""Requests that wait for iterations to be closed; beyond that the oldest are dropped and miss their deadline."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of one agent under one id: those rows of control.log_requests that name a rank of its own."""

    request_id: str
    offset: int
    deadline_ns: int
    rows: Sequence[Mapping[str, Any]]

    @property
    def iteration_to(self) -> int:
        """The newest iteration that is asked for."""
        return max(int(row["iteration_to"]) for row in self.rows)


class LogAgent:
    """One host's agent: a source of telemetry (``advance``) and a processor that answers log requests.

    ``pivots`` are the ranks whose rows are published unasked; others than this host's are ignored. There is an answer
    (``AnswerHeaders``) for the ranks of this host that were asked for and are equally complete. A request for
    iterations that are not closed yet is held back until they are; at the end of the log what there is is answered.
    Nothing is published of a second without news.

    ``logs`` are what answers are looked up in, if that is not the store itself. Answers may then be worked out by
    another thread than the one that closes iterations: it gets them from ``answers``, for what ``accept`` and ``due``
    have given out; all else is for one thread at a time.
    """

    reads: tuple[Topic, ...] = (catalogue.LOG_REQUESTS,)
    writes: tuple[Topic, ...] = (catalogue.ITERATION_SUMMARIES, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)

    def __init__(self, store: LogStore, host: str, pivots: Collection[int], *, logs: LogSource | None = None) -> None:
        self.name = f"log-agent-{host}"
        self.host = host
        self.ranks = store.ranks
        self._store = store
        self._logs = store if logs is None else logs
        self._pivots = sorted(set(pivots) & set(store.ranks))
        self._held: dict[str, Request] = {}
        self._next: int | None = None

    @property
    def ended(self) -> bool:
        """Whether all of the log has been told."""
        return self._store.ended

    @property
    def watermark_ns(self) -> int:
        """Up to when this agent has told everything."""
        return self._store.watermark_ns

    def advance(self) -> list[Message] | None:
        """Close the next iteration, tell of it, and answer what waited for it; None at the end of the log."""
        told = self.close()
        return None if told is None else [*told, *self.answers(self.due())]

    def close(self) -> list[Message] | None:
        """Close the next iteration and tell of it; None at the end of the log."""
        return self._told(self._store.closed) if self._store.advance() else None

    def again(self) -> list[Message]:
        """What there is to tell of the last closed iteration once more; nothing where none is closed."""
        iteration = self._store.closed
        return self._told(iteration) if iteration >= 0 else []

    def process(self, message: Message) -> Iterable[Message]:
        """Answer a request, now or once its iterations are closed."""
        return self.answers(self.accept(message))

    def accept(self, message: Message) -> list[Request]:
        """Take a record of control.log_requests: hold back what cannot be answered yet, give out what can.

        Raises ``MessageError`` for a bad one.
        """
        self._next = message.offset + 1
        self._held = {key: held for key, held in self._held.items() if held.deadline_ns >= message.timestamp_ns}
        rows = [row for row in decode(message, catalogue.LOG_REQUESTS).to_pylist() if row["what"] != EPOCHS]
        if message.job != self._store.job.job:
            return []
        accepted = []
        for request_id in dict.fromkeys(row["request_id"] for row in rows):
            own = [row for row in rows if row["request_id"] == request_id and set(row["ranks"] or ()) & set(self.ranks)]
            if not own:
                continue
            request = Request(request_id, message.offset, max(row["deadline_ns"] for row in own), own)
            if self._can_answer(request):
                accepted.append(request)
            else:
                self._hold(request)
        return accepted

    def due(self) -> list[Request]:
        """Give out the requests that were held back and can be answered by now."""
        due = [request for request in self._held.values() if self._can_answer(request)]
        for request in due:
            del self._held[request.request_id]
        return due

    def answers(self, requests: Iterable[Request]) -> Iterator[Message]:
        """Answers to requests that were given out, each worked out once it is asked for."""
        for request in requests:
            for answer in answers(self._logs, request.rows):
                headers = AnswerHeaders(request.request_id, self.host, answer.ranks, answer.outcome)
                yield from self._encode(answer.topic, answer.rows, headers.to_headers())

    def tick(self, now_ns: int) -> Iterable[Message]:
        """Nothing: the asker minds the deadlines."""
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        """Requests that are held back are read again after a restart."""
        if self._next is None:
            return {}
        return {catalogue.LOG_REQUESTS: min((held.offset for held in self._held.values()), default=self._next)}

    def _can_answer(self, request: Request) -> bool:
        return request.iteration_to <= self._store.closed or self._store.ended

    def _hold(self, request: Request) -> None:
        self._held.pop(request.request_id, None)
        self._held[request.request_id] = request
        if len(self._held) > MAX_HELD:
            del self._held[next(iter(self._held))]

    def _told(self, iteration: int) -> list[Message]:
        """What is told unasked of an iteration: the pivots' rows, and summaries of all ranks that logged."""
        spans = self._store.spans(iteration)
        pivots, logged = tuple(self._pivots), tuple(spans.rank.tolist())
        rows = {ranks: self._rows(ranks, iteration) for ranks in {pivots, logged} if ranks}
        messages = self._encode(catalogue.COMM_OPS, rows[pivots]) if pivots and rows[pivots].num_rows else []
        if logged:
            batch = summarise(rows[logged], spans, iteration, last=self._store.ended)
            messages += self._encode(catalogue.ITERATION_SUMMARIES, pa.Table.from_batches([batch]))
        return messages

    def _rows(self, ranks: Sequence[int], iteration: int) -> pa.Table:
        parts = [found.table for found in all_rows(self._store, ranks, RowQuery(iteration, iteration))]
        return pa.concat_tables([catalogue.COMM_OPS.schema.empty_table(), *parts]).unify_dictionaries().combine_chunks()

    def _encode(self, topic: Topic, rows: pa.Table, headers: Mapping[str, str] | None = None) -> list[Message]:
        own = headers or {"host": self.host}
        return encode_parts(topic, rows, job=self._store.job.job, watermark_ns=self.watermark_ns, headers=own)


def agents(job: Job, table: pa.Table, pivots: Collection[int], *, keep_iterations: int | None = None) -> list[LogAgent]:
    """One agent a host for a recorded or simulated log; ranks of unknown hosts share one.

    ``table`` has the columns of telemetry.comm_ops, sorted by rank and call order. Iterations that it does not
    carry are inferred: raises ``ValueError`` where they cannot be.
    """
    index = LogIndex(label(table).table)
    of_host: dict[str, list[int]] = {}
    for rank in job.ranks:
        of_host.setdefault(job.place[rank].host or UNKNOWN_HOST, []).append(rank)
    return [
        LogAgent(RecordingStore(job, index, ranks, keep_iterations=keep_iterations), host, pivots)
        for host, ranks in of_host.items()
    ]
