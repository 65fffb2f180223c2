"""Asking the log agents for what a search needs, and telling when the answer is whole.

Every agent answers once a request, for its own ranks, in one or more parts; the first whole answer for a rank
wins. At the deadline the step itself publishes that the rest is unreachable, so that a replay sees the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.operator_graph.logs import Answer, Needs
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.message import Message, decode, encode

UNREACHABLE = "unreachable"
UNKNOWN_OUTCOMES = {"overwritten", UNREACHABLE}
"""Outcomes that leave a rank unknown: its agent keeps nothing of the iterations any more, or nobody answered."""


@dataclass
class Fetch:
    """One request under way."""

    request_id: str
    job: str
    needs: Needs
    deadline_ns: int
    awaited: set[int] = field(init=False)
    missing: set[int] = field(default_factory=set)
    bytes: int = 0
    _parts: dict[_Whose, dict[int, tuple[pa.RecordBatch, int]]] = field(default_factory=dict)
    _rows: list[pa.RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.awaited = {rank for need in self.needs for rank in need.ranks}

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
                "what": "rows",
                "deadline_ns": self.deadline_ns,
            }
            for need in self.needs
            for first, last in stretches(need.iterations)
        ]
        return encode(catalogue.LOG_REQUESTS, catalogue.LOG_REQUESTS.from_rows(rows), job=self.job)

    def take(self, message: Message) -> None:
        """Take a record of telemetry.comm_ops that answers this request.

        Raises ``MessageError`` where it does not say for which ranks, or in which part of how many.
        """
        batch = decode(message, catalogue.COMM_OPS)
        ranks, whose, part = _answer_headers(message)
        ranks &= self.awaited
        if not ranks:
            return
        parts = self._parts.setdefault(whose, {})
        parts.setdefault(part, (batch, len(message.value or b"")))
        if len(parts) < whose.parts:
            return
        self.awaited -= ranks
        if message.headers.get("outcome") in UNKNOWN_OUTCOMES:
            self.missing |= ranks
            return
        for rows, size in parts.values():
            self._rows.append(rows.filter(pc.is_in(rows.column("rank"), pa.array(sorted(ranks), pa.int32()))))
            self.bytes += size

    def unreachable(self, now_ns: int) -> Message:
        """What is published at the deadline on behalf of those that did not answer."""
        headers = {"request_id": self.request_id, "outcome": UNREACHABLE, "host": "", "part": "0", "parts": "1"}
        headers["ranks"] = ",".join(str(rank) for rank in sorted(self.awaited))
        empty = catalogue.COMM_OPS.from_rows([])
        return encode(catalogue.COMM_OPS, empty, job=self.job, watermark_ns=now_ns, headers=headers)

    def answer(self) -> Answer:
        """All rows that came, and who did not answer."""
        schema = catalogue.COMM_OPS.schema
        tables = [pa.Table.from_batches([batch]).cast(schema) for batch in self._rows]
        rows = pa.concat_tables(tables) if tables else schema.empty_table()
        return Answer(rows, frozenset(self.missing))


def stretches(iterations: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive iterations."""
    ordered = sorted(set(iterations))
    first = 0
    for index, iteration in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != iteration + 1:
            yield ordered[first], iteration
            first = index + 1


class _Whose(NamedTuple):
    """Which answer a part belongs to: a host has one for each outcome, and may cut a repeated one differently."""

    host: str
    producer: str
    parts: int
    ranks: str


def _answer_headers(message: Message) -> tuple[set[int], _Whose, int]:
    try:
        named = message.headers["ranks"]
        ranks = {int(rank) for rank in named.split(",") if rank}
        part, parts = int(message.headers.get("part", "0")), int(message.headers.get("parts", "1"))
    except (KeyError, ValueError) as error:
        raise WrongSchema(f"{message.topic}: an answer needs the headers ranks, part and parts: {error!r}") from error
    if not 0 <= part < parts:
        raise WrongSchema(f"{message.topic}: part {part} of {parts}")
    return ranks, _Whose(message.headers.get("host", ""), message.headers.get("producer", ""), parts, named), part
