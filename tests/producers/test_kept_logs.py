"""Logs as far as topics still hold them."""

from __future__ import annotations

from diagnosis.job import Job, Place
from producers.kept_logs import KeptLogs
from producers.log_store import COMPLETE, OVERWRITTEN
from schemas import catalogue
from schemas.message import encode

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
    for topic, rows, headers in (
        (catalogue.ITERATION_SUMMARIES, summaries, {}),
        (catalogue.LOG_REQUESTS, [{**request, "what": "rows", "deadline_ns": 1}], {}),
        (catalogue.COMM_OPS, [call], answered),
    ):
        kept.take(encode(topic, topic.from_rows(rows), job=JOB.job, headers=headers))
    table, outcome = kept.rows([0], 1, LAST)
    assert (table.num_rows, outcome) == (1, COMPLETE)  # iteration 2 had no operators
    assert kept.rows([0], 0, 0)[1] == kept.rows([1], 0, 2)[1] == OVERWRITTEN
