"""Asking the log agents for what a search needs, and telling when the answer is whole.

Every agent answers a request for its own ranks, once for those whose logs are equally complete, in one or more parts;
the first whole answer for a rank wins. At the deadline the step itself publishes that the rest is unreachable, so
that a replay sees the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.operator_graph.needs import Answer, Needs
from schemas import catalogue
from schemas.answer_parts import AnswerParts
from schemas.log_answers import OVERWRITTEN, UNREACHABLE, AnswerHeaders
from schemas.log_requests import ROWS
from schemas.message import Message, decode, encode
from streams import operator_windows

UNKNOWN_OUTCOMES = {OVERWRITTEN, UNREACHABLE}
"""Outcomes that leave a rank unknown: its agent keeps nothing of the iterations any more, or nobody answered."""

ANSWERS = {topic.name: topic for topic in (catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)}
"""Topics that answers come on: rows on the one, statistics and series on the other."""


@dataclass
class Fetch:
    """One request under way.

    ``bytes`` counts the answers that were taken. ``missing`` are the ranks whose rows are unknown; statistics and
    series that do not come are just not there.
    """

    request_id: str
    job: str
    needs: Needs
    deadline_ns: int
    missing: set[int] = field(default_factory=set)
    bytes: int = 0
    _awaited: dict[str, set[int]] = field(init=False)
    _parts: AnswerParts[pa.RecordBatch] = field(default_factory=AnswerParts)
    _taken: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {name: [] for name in ANSWERS})

    def __post_init__(self) -> None:
        rows, windows = catalogue.COMM_OPS.name, catalogue.OPERATOR_WINDOWS.name
        self._awaited = {rows: set(), windows: set()}
        for need in self.needs:
            self._awaited[rows if need.what == ROWS else windows].update(need.ranks)

    @property
    def awaited(self) -> set[int]:
        """Ranks that have not answered all that they were asked for."""
        return set.union(*self._awaited.values())

    @property
    def done(self) -> bool:
        """Whether every rank has answered or is known not to."""
        return not self.awaited

    def request(self) -> Message:
        """The record of control.log_requests: a row for each need and stretch of iterations."""
        rows = [
            {
                "request_id": self.request_id,
                "ranks": list(need.ranks),
                "iteration_from": first,
                "iteration_to": last,
                "communicator": need.communicator,
                "seq_from": need.seq_from,
                "seq_to": need.seq_to,
                "positions": list(need.positions) or None,
                "what": need.what,
                "deadline_ns": self.deadline_ns,
            }
            for need in self.needs
            for first, last in stretches(need.iterations)
        ]
        return encode(catalogue.LOG_REQUESTS, catalogue.LOG_REQUESTS.from_rows(rows), job=self.job)

    def take(self, message: Message) -> None:
        """Take a record that answers this request.

        Raises ``MessageError`` where it does not say for which ranks, how completely, or in which part of how many.
        """
        batch = decode(message, ANSWERS[message.topic])
        ranks = set(AnswerHeaders.of(message).ranks) & self._awaited[message.topic]
        whole = self._parts.add(message, batch) if ranks else None
        if whole is None:
            return
        self._awaited[message.topic] -= ranks
        if whole.headers.outcome != UNREACHABLE:
            self.bytes += whole.bytes
        if whole.headers.outcome not in UNKNOWN_OUTCOMES:
            self._taken[message.topic] += [_of(part, ranks) for part in whole.parts]
        elif message.topic == catalogue.COMM_OPS.name:
            self.missing |= ranks

    def unreachable(self, now_ns: int) -> Iterator[Message]:
        """What is published at the deadline on behalf of those that did not answer."""
        for name, awaited in self._awaited.items():
            if awaited:
                said = AnswerHeaders(self.request_id, "", tuple(sorted(awaited)), UNREACHABLE)
                empty = ANSWERS[name].from_rows([])
                yield encode(ANSWERS[name], empty, job=self.job, watermark_ns=now_ns, headers=said.to_headers())

    def answer(self) -> Answer:
        """All that came, and whose rows did not."""
        schema, windows = catalogue.COMM_OPS.schema, self._taken[catalogue.OPERATOR_WINDOWS.name]
        tables = [pa.Table.from_batches([batch]).cast(schema) for batch in self._taken[catalogue.COMM_OPS.name]]
        rows = pa.concat_tables(tables) if tables else schema.empty_table()
        usual, told = operator_windows.statistics(windows), operator_windows.series(windows)
        return Answer(rows, frozenset(self.missing), usual, tuple(told))


def stretches(iterations: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive iterations."""
    ordered = sorted(set(iterations))
    first = 0
    for index, iteration in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != iteration + 1:
            yield ordered[first], iteration
            first = index + 1


def _of(rows: pa.RecordBatch, ranks: set[int]) -> pa.RecordBatch:
    """The rows of some ranks; without a copy where those are all, as they mostly are."""
    own = pc.is_in(rows.column("rank"), pa.array(sorted(ranks), pa.int32()))
    return rows if pc.all(own).as_py() else rows.filter(own)
