"""Logs as far as topics still hold them."""

from __future__ import annotations

import timeit
import tracemalloc
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from diagnosis.job import Job, Place
from producers.kept_logs import KeptLogs, Room
from producers.row_query import RowQuery
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.log_answers import COMPLETE, OVERWRITTEN, PARTIAL, AnswerHeaders
from schemas.message import Message, decode, encode
from schemas.topic import Topic

JOB = Job("a", (Place(0), Place(1)), ())
LAST = 2**31 - 1
"""The highest number that a request may name."""


def test_a_request_for_all_that_could_be_costs_no_more_than_what_there_is() -> None:
    kept = KeptLogs(JOB)
    summaries = [
        {"rank": rank, "iteration": iteration, "start_ns": 1, "operators": 1, "lost_lines": 0}
        for rank in JOB.ranks
        for iteration in range(3)
    ]
    request = {"request_id": "r", "ranks": [0, 1], "iteration_from": 1, "iteration_to": LAST}
    call = {"rank": 0, "communicator": "dp", "call_order": 0, "op": "barrier", "call_ns": 1, "iteration": 1}
    answered = {"request_id": "r", "ranks": "0", "outcome": COMPLETE}
    kept.take_summaries(catalogue.ITERATION_SUMMARIES.from_rows(summaries))
    for topic, rows, headers in (
        (catalogue.LOG_REQUESTS, [{**request, "what": "rows", "deadline_ns": 1}], {}),
        (catalogue.COMM_OPS, [call], answered),
    ):
        kept.take(encode(topic, topic.from_rows(rows), job=JOB.job, headers=headers))
    table, outcomes = kept.rows([0], RowQuery(1, LAST))
    assert (table.num_rows, outcomes) == (1, {0: COMPLETE})  # iteration 2 had no operators
    assert kept.rows([0], RowQuery(0, 0)).outcomes == {0: OVERWRITTEN}
    assert kept.rows([0, 1], RowQuery(1, LAST)).outcomes == {0: COMPLETE, 1: OVERWRITTEN}


def test_a_request_that_was_asked_again_is_the_same() -> None:
    """By a worker that began anew: with another deadline."""
    row = {
        "request_id": "r",
        "ranks": [0],
        "iteration_from": 1,
        "iteration_to": 1,
        "what": "rows",
        "communicator": "dp",
    }
    call = {"rank": 0, "communicator": "dp", "call_order": 0, "op": "barrier", "call_ns": 1, "iteration": 1}
    headers = {"request_id": "r", "ranks": "0", "outcome": COMPLETE}
    answer = encode(catalogue.COMM_OPS, catalogue.COMM_OPS.from_rows([call]), job=JOB.job, headers=headers)
    kept = KeptLogs(JOB)
    for deadline_ns in (1, 2):
        asked = catalogue.LOG_REQUESTS.from_rows([{**row, "deadline_ns": deadline_ns}])
        kept.take(encode(catalogue.LOG_REQUESTS, asked, job=JOB.job))
    kept.take(answer)
    rows = catalogue.LOG_REQUESTS.from_rows([{**row, "deadline_ns": 3}]).to_pylist()
    assert kept.answers_to("r", rows) == [answer]
    assert kept.answers_to("r", [{**rows[0], "ranks": [1]}]) is None


def summaries_of(iteration: int) -> pa.RecordBatch:
    row = {"iteration": iteration, "start_ns": iteration, "end_ns": iteration + 9, "operators": 1, "lost_lines": 0}
    return catalogue.ITERATION_SUMMARIES.from_rows([{**row, "rank": rank} for rank in JOB.ranks])


def test_when_iterations_began_is_told_of_the_newest_that_there_is_room_for() -> None:
    kept = KeptLogs(JOB, Room(1000))
    for iteration in range(9):
        kept.take_summaries(summaries_of(iteration))
    assert len(kept.spans(0).rank) == 0
    spans = kept.spans(8)
    assert (spans.rank.tolist(), spans.start_ns.tolist(), spans.end_ns.tolist()) == ([0, 1], [8, 8], [17, 17])
    assert kept.spans(8, [1]).rank.tolist() == [1]
    assert (kept.closed, kept.let_go) == (8, 3)
    assert 0 < kept.room.held_bytes <= kept.room.most_bytes


def test_of_a_summary_that_was_told_again_the_last_counts() -> None:
    kept = KeptLogs(JOB)
    kept.take_summaries(summaries_of(3))
    again = {"rank": 1, "iteration": 3, "start_ns": 30, "operators": 1, "lost_lines": 2}
    kept.take_summaries(catalogue.ITERATION_SUMMARIES.from_rows([again]))
    spans = kept.spans(3)
    assert (spans.start_ns.tolist(), spans.end_ns.tolist(), spans.lost.tolist()) == ([3, 30], [12, -1], [0, 2])


def test_an_answer_of_which_a_part_found_no_room_is_not_taken_for_whole() -> None:
    request = {
        "request_id": "r",
        "ranks": [0],
        "iteration_from": 1,
        "iteration_to": 1,
        "what": "rows",
        "deadline_ns": 1,
    }
    call = {"rank": 0, "communicator": "dp", "call_order": 0, "op": "barrier", "call_ns": 1, "iteration": 1}
    asked = encode(catalogue.LOG_REQUESTS, catalogue.LOG_REQUESTS.from_rows([request]), job=JOB.job)
    headers = {"request_id": "r", "ranks": "0", "outcome": COMPLETE}
    answer = encode(catalogue.COMM_OPS, catalogue.COMM_OPS.from_rows([call]), job=JOB.job, headers=headers)
    rows = decode(asked, catalogue.LOG_REQUESTS).to_pylist()
    for room, answers in ((Room(), [answer]), (Room((len(asked.value or b"") + 1100) * 4 // 3), None)):
        kept = KeptLogs(JOB, room)
        kept.take_summaries(summaries_of(1)) if answers else None
        kept.take(asked)
        kept.take(answer)
        assert kept.answers_to("r", rows) == answers
        assert room.refused == (answers is None)


@pytest.mark.parametrize(
    "asked", [{}, {"request_id": "r", "ranks": "0", "outcome": COMPLETE}], ids=["unasked", "asked"]
)
def test_a_part_beyond_the_last_one_does_not_make_an_answer_whole(asked: dict[str, str]) -> None:
    call = {"rank": 0, "communicator": "dp", "call_order": 0, "op": "barrier", "call_ns": 1, "iteration": 1}
    kept = KeptLogs(JOB)
    kept.take_summaries(summaries_of(1))
    for part in ("0", "2"):
        headers = {**asked, "part": part, "parts": "2"}
        message = encode(catalogue.COMM_OPS, catalogue.COMM_OPS.from_rows([call]), job=JOB.job, headers=headers)
        if part == "0":
            kept.take(message)
        else:
            with pytest.raises(WrongSchema, match="part 2 of 2"):
                kept.take(message)
    assert kept.rows([0], RowQuery(1, 1)).outcomes == {0: OVERWRITTEN}


def requested(*iterations: int, request_id: str = "r", ranks: int = 2) -> Message:
    """A request for whole iterations, a row each."""
    asked = {"request_id": request_id, "ranks": list(range(ranks)), "what": "rows", "deadline_ns": 1}
    rows = [{**asked, "iteration_from": each, "iteration_to": each} for each in iterations]
    return encode(catalogue.LOG_REQUESTS, catalogue.LOG_REQUESTS.from_rows(rows), job=JOB.job)


def answered(rank: int, *, request_id: str = "r", outcome: str = COMPLETE, part: int = 0, parts: int = 1) -> Message:
    call = {"rank": rank, "communicator": "dp", "call_order": part, "op": "barrier", "call_ns": 1, "iteration": 1}
    headers = AnswerHeaders(request_id, f"h{rank}", (rank,), outcome, part, parts).to_headers()
    return encode(catalogue.COMM_OPS, catalogue.COMM_OPS.from_rows([call]), job=JOB.job, headers=headers)


def rows_of(request: Message) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = decode(request, catalogue.LOG_REQUESTS).to_pylist()
    return rows


def test_requests_take_no_more_memory_than_they_count() -> None:
    kept = KeptLogs(JOB)
    kept.take(requested(1, ranks=1000))
    counted = kept.room.held_bytes
    tracemalloc.start()
    try:
        for number in range(10):
            kept.take(requested(1, request_id=str(number), ranks=1000))
        took, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert took < 1.5 * (kept.room.held_bytes - counted)


def test_what_comes_again_takes_no_room() -> None:
    messages = [requested(1), *(answered(0, part=part, parts=3) for part in range(2)), answered(1)]
    kept = KeptLogs(JOB)
    for message in messages:
        kept.take(message)
    held = kept.room.held_bytes
    for message in messages:
        kept.take(message)
    assert kept.room.held_bytes == held
    kept.take(last := answered(0, part=2, parts=3))
    assert kept.answers_to("r", rows_of(messages[0])) == [messages[3], messages[1], messages[2], last]
    kept.take(messages[1])
    assert kept.room.held_bytes == held + len(last.value or b"") + 1024


def test_a_request_that_is_asked_again_for_more_is_all_of_it() -> None:
    kept = KeptLogs(JOB)
    for message in (requested(1), answered(0), requested(2)):
        kept.take(message)
    assert kept.answers_to("r", rows_of(requested(1, 2))) == [answered(0)]
    assert kept.answers_to("r", rows_of(requested(1))) is None


def test_a_record_may_hold_several_requests() -> None:
    one, other = rows_of(requested(1)), rows_of(requested(2, request_id="other"))
    kept = KeptLogs(JOB)
    kept.take(encode(catalogue.LOG_REQUESTS, catalogue.LOG_REQUESTS.from_rows([*one, *other]), job=JOB.job))
    kept.take(answered(0))
    assert (kept.answers_to("r", one), kept.answers_to("other", other)) == ([answered(0)], [])


def test_a_request_is_decoded_once_for_all_that_answer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, decoded = KeptLogs(JOB), []

    def counting(message: Message, topic: Topic) -> pa.RecordBatch:
        decoded.append(topic)
        return decode(message, topic)

    kept.take(requested(1, ranks=20))
    monkeypatch.setattr("producers.kept_logs.decode", counting)
    for rank in range(20):
        kept.take(answered(rank))
    assert decoded.count(catalogue.LOG_REQUESTS) == 1


def test_a_request_of_which_an_answer_found_no_room_is_not_known_whatever_came_before() -> None:
    request = requested(1)
    held = sum(len(message.value or b"") + 1024 for message in (request, answered(0)))
    kept = KeptLogs(JOB, Room(held * 4 // 3 + 4))
    for message in (request, answered(0), answered(1)):
        kept.take(message)
    assert (kept.room.held_bytes, kept.room.refused) == (held, 1)
    assert kept.answers_to("r", rows_of(request)) is None


def test_what_a_request_was_answered_is_found_as_fast_among_many() -> None:
    few, many = KeptLogs(JOB), KeptLogs(JOB)
    for kept in (few, many):
        kept.take(requested(1))
        kept.take(answered(0))
    other = answered(0, request_id="other", outcome=PARTIAL)
    for number in range(10_000):
        many.take(replace(other, headers={**other.headers, "producer": str(number)}))
    rows = rows_of(requested(1))

    def took(kept: KeptLogs) -> float:
        return min(timeit.repeat(lambda: kept.answers_to("r", rows), number=1, repeat=20))

    assert took(many) < 10 * took(few)
