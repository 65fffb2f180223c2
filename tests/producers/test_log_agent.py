"""The log agent: what it publishes of each iteration, and how it answers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from diagnosis.job import Communicator, Job, Place
from producers.importers.recording import Recording
from producers.job_source import JobSource, job_message
from producers.labels import label
from producers.log_agent import UNKNOWN_HOST, LogAgent, agents
from producers.log_index import LogIndex
from producers.log_store import RecordingStore
from producers.parts import encode_parts
from producers.row_query import RowQuery
from schemas.catalogue import COMM_OPS, ITERATION_SUMMARIES, JOBS, LOG_REQUESTS, OPERATOR_WINDOWS
from schemas.message import Message, decode, encode
from schemas.processor import Processor
from tests.training_log import ITERATION_NS, STARTED_NS, Training

TRAINING = Training(iterations=5)


def job_of(training: Training, gpus_per_host: int | None = 4) -> Job:
    places = tuple(Place(r, None if gpus_per_host is None else f"h{r // gpus_per_host}") for r in range(training.world))
    return Job("job", places, tuple(Communicator(name, ranks) for name, ranks in training.groups().items()))


def agents_of(table: pa.Table, pivots: Iterable[int] = (0,), **options: Any) -> list[LogAgent]:
    return agents(job_of(TRAINING, **options), table, set(pivots))


def drained(agent: LogAgent) -> list[Message]:
    messages: list[Message] = []
    while (told := agent.advance()) is not None:
        messages += told
    return messages


def rows(messages: Iterable[Message], topic: Any) -> list[dict[str, Any]]:
    return [row for m in messages if m.topic == topic.name for row in decode(m, topic).to_pylist()]


def request(ranks: Sequence[int], first: int, last: int, request_id: str = "r", **columns: object) -> Message:
    row = {"request_id": request_id, "ranks": ranks, "iteration_from": first, "iteration_to": last, "what": "rows"}
    batch = LOG_REQUESTS.from_rows([{**row, "deadline_ns": 10, **columns}])
    return replace(encode(LOG_REQUESTS, batch, job="job"), offset=7, timestamp_ns=5)


def test_an_agent_is_a_processor() -> None:
    assert isinstance(agents_of(TRAINING.table())[0], Processor)


def test_summaries_tell_every_rank_of_the_host() -> None:
    agent = agents_of(TRAINING.table())[0]
    summaries = rows(drained(agent), ITERATION_SUMMARIES)
    assert [(s["iteration"], s["rank"]) for s in summaries] == [(i, r) for i in range(5) for r in range(4)]
    first = summaries[0]
    assert (first["start_ns"], first["end_ns"]) == (STARTED_NS, STARTED_NS + ITERATION_NS)
    assert first["operators"] == sum(o["count"] for o in first["by_operator"])
    tensor = next(o for o in first["by_operator"] if o["communicator"] == "tp0")
    assert tensor == {
        "communicator": "tp0",
        "op": "all_reduce",
        "count": 16,
        "duration_sum_ns": 16 * 499_000,
        "duration_max_ns": 499_000,
    }
    assert [s["last"] for s in summaries] == [None] * 16 + [True] * 4


def test_the_last_iteration_ends_with_its_last_end() -> None:
    summaries = rows(drained(agents_of(TRAINING.table())[0]), ITERATION_SUMMARIES)
    table = TRAINING.table().filter(pa.compute.field("rank") == 0)
    assert summaries[-4]["end_ns"] == pa.compute.max(table.column("end_ns")).as_py()


def test_an_iteration_that_the_log_cuts_short_has_no_end() -> None:
    table = TRAINING.table()
    last = table.num_rows - 1
    summaries = rows(drained(agents_of(table.slice(0, last))[1]), ITERATION_SUMMARIES)
    ends = {(s["rank"], s["iteration"]): s["end_ns"] for s in summaries}
    assert ends[7, 4] is None
    assert ends[6, 4] is not None
    assert ends[7, 3] is not None


def test_a_pending_operator_leaves_the_last_iteration_open() -> None:
    table = TRAINING.table()
    ends = table.column("end_ns").to_pylist()[:-1]
    at = table.schema.get_field_index("end_ns")
    table = table.set_column(at, table.schema.field(at), pa.array([*ends, None], pa.int64()))
    summaries = rows(drained(agents_of(table)[1]), ITERATION_SUMMARIES)
    assert [s["end_ns"] for s in summaries if s["rank"] == 7][-1] is None


def test_a_lost_first_call_hides_both_durations_that_it_bounds() -> None:
    table = TRAINING.table()
    per_iteration = table.num_rows // (8 * 5)
    opener = 2 * per_iteration
    table = pa.concat_tables([table.slice(0, opener), table.slice(opener + 1)])
    summaries = [s for s in rows(drained(agents_of(table)[0]), ITERATION_SUMMARIES) if s["rank"] == 0]
    assert [s["end_ns"] is None for s in summaries] == [False, True, True, False, False]
    assert [s["lost_lines"] for s in summaries] == [0, 0, 1, 0, 0]


def test_a_gap_hides_the_end_before_it() -> None:
    table = TRAINING.table()
    gone = (pa.compute.field("rank") == 0) & (pa.compute.field("iteration") == 2)
    summaries = [s for s in rows(drained(agents_of(table.filter(~gone))[0]), ITERATION_SUMMARIES) if s["rank"] == 0]
    assert [(s["iteration"], s["end_ns"] is None) for s in summaries] == [(0, False), (1, True), (3, False), (4, False)]


def test_only_the_pivots_rows_travel_unasked() -> None:
    messages = [m for agent in agents_of(TRAINING.table(), pivots=(1, 6)) for m in drained(agent)]
    unasked = rows(messages, COMM_OPS)
    assert {row["rank"] for row in unasked} == {1, 6}
    assert len(unasked) == 2 * TRAINING.table().num_rows // 8
    assert not any("request_id" in m.headers for m in messages)


def test_rows_come_before_the_summary_of_their_iteration() -> None:
    told = agents_of(TRAINING.table())[0].advance() or []
    assert [m.topic for m in told] == [COMM_OPS.name, ITERATION_SUMMARIES.name]


def test_an_answer_holds_the_rows_of_the_own_ranks() -> None:
    agent = agents_of(TRAINING.table())[1]
    drained(agent)
    (answer,) = agent.process(request([3, 4, 6], 1, 2))
    assert {k: answer.headers[k] for k in ("request_id", "outcome", "host", "ranks", "part", "parts")} == {
        "request_id": "r",
        "outcome": "complete",
        "host": "h1",
        "ranks": "4,6",
        "part": "0",
        "parts": "1",
    }
    got = rows([answer], COMM_OPS)
    assert {(row["rank"], row["iteration"]) for row in got} == {(4, 1), (4, 2), (6, 1), (6, 2)}


def test_an_agent_without_the_ranks_says_nothing() -> None:
    agent = agents_of(TRAINING.table())[1]
    drained(agent)
    assert list(agent.process(request([0, 3], 1, 2))) == []


def test_another_jobs_request_is_not_answered() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    other = request([0], 1, 1)
    assert list(agent.process(replace(other, headers={**other.headers, "job": "another"}))) == []


def test_a_request_waits_for_its_iterations() -> None:
    agent = agents_of(TRAINING.table())[0]
    agent.advance()
    assert list(agent.process(request([0], 0, 2))) == []
    assert agent.safe_offsets() == {LOG_REQUESTS: 7}
    assert not any("request_id" in m.headers for m in agent.advance() or [])
    told = agent.advance() or []
    (answer,) = [m for m in told if "request_id" in m.headers]
    assert {row["iteration"] for row in rows([answer], COMM_OPS)} == {0, 1, 2}
    assert agent.safe_offsets() == {LOG_REQUESTS: 8}


def test_at_the_end_of_the_log_what_there_is_is_answered() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    (answer,) = agent.process(request([0], 4, 9))
    assert answer.headers["outcome"] == "partial"
    assert {row["iteration"] for row in rows([answer], COMM_OPS)} == {4}


def test_a_held_request_is_forgotten_after_its_deadline() -> None:
    agent = agents_of(TRAINING.table())[0]
    agent.advance()
    list(agent.process(request([0], 0, 2, "late")))
    list(agent.process(replace(request([0], 0, 0, "later"), timestamp_ns=11)))
    assert not any("request_id" in m.headers for m in drained(agent))


def test_rows_of_one_request_make_one_answer() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    batches = [decode(request([0], i, i), LOG_REQUESTS).to_pylist()[0] for i in (0, 3)]
    both = encode(LOG_REQUESTS, LOG_REQUESTS.from_rows(batches), job="job")
    (answer,) = agent.process(both)
    assert {row["iteration"] for row in rows([answer], COMM_OPS)} == {0, 3}


def test_ranks_that_are_differently_complete_are_answered_apart() -> None:
    """What is lost of one rank must not be told of another."""
    table = TRAINING.table()
    gone = (pa.compute.field("rank") == 5) & (pa.compute.field("iteration") == 2)
    agent = agents_of(table.filter(~gone))[1]
    drained(agent)
    told = list(agent.process(request([4, 5, 6], 1, 2)))
    assert {(m.headers["ranks"], m.headers["outcome"]) for m in told} == {("4,6", "complete"), ("5", "partial")}
    for message in told:
        assert {str(row["rank"]) for row in rows([message], COMM_OPS)} == set(message.headers["ranks"].split(","))


def test_a_log_that_was_overwritten_is_told_so() -> None:
    (agent,) = agents(job_of(TRAINING, None), TRAINING.table(), (), keep_iterations=2)
    drained(agent)
    (answer,) = agent.process(request([0, 3], 0, 1))
    assert (answer.headers["outcome"], answer.headers["ranks"]) == ("overwritten", "0,3")
    assert rows([answer], COMM_OPS) == []
    (partly,) = agent.process(request([0], 2, 3))
    assert partly.headers["outcome"] == "partial"


def test_rows_of_one_place_are_those_of_one_operator_an_iteration() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    (answer,) = agent.process(request([0], 1, 3, communicator="tp0", positions=[2]))
    got = rows([answer], COMM_OPS)
    assert [(row["iteration"], row["communicator"], row["position"]) for row in got] == [
        (i, "tp0", 2) for i in (1, 2, 3)
    ]


def windows(agent: LogAgent, *asked: Message) -> list[dict[str, Any]]:
    batches = [decode(message, LOG_REQUESTS).to_pylist()[0] for message in asked]
    both = encode(LOG_REQUESTS, LOG_REQUESTS.from_rows(batches), job="job")
    messages = list(agent.process(both))
    assert {m.topic for m in messages} == {OPERATOR_WINDOWS.name}
    return rows(messages, OPERATOR_WINDOWS)


def lasted(agent: LogAgent, rank: int, *stretches: tuple[int, int]) -> dict[int, int]:
    """How long the operator in the fourth place of its tensor communicator took in each iteration."""
    told = [
        rows(agent.process(request([rank], *s, communicator=f"tp{rank // 2}", positions=[3])), COMM_OPS)
        for s in stretches
    ]
    return {row["iteration"]: row["end_ns"] - row["call_ns"] for of in told for row in of}


def test_statistics_are_of_all_stretches_of_a_window_together() -> None:
    agent = agents_of(TRAINING.table())[1]
    drained(agent)
    told = windows(agent, *(request([4, 0], first, last, what="statistics") for first, last in ((0, 1), (3, 4))))
    assert {row["rank"] for row in told} == {4}
    assert sum(row["samples"] for row in told) == 4 * TRAINING.table().num_rows // 40
    row = next(row for row in told if (row["communicator"], row["position"]) == ("tp2", 3))
    durations = np.array([*lasted(agent, 4, (0, 1), (3, 4)).values()])
    expected = [durations.mean(), durations.std(ddof=1), *np.quantile(durations, [0.25, 0.5, 0.75])]
    assert [row[f"{name}_ns"] for name in ("mean", "std", "q1", "q2", "q3")] == pytest.approx(expected, abs=0.5)
    assert (row["samples"], row["series"]) == (4, None)


def test_statistics_of_one_place_are_one_row() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    told = windows(agent, request([0, 1], 0, 4, what="statistics", communicator="tp0", positions=[3]))
    assert [(row["rank"], row["communicator"], row["position"], row["samples"]) for row in told] == [
        (0, "tp0", 3, 5),
        (1, "tp0", 3, 5),
    ]


def test_a_series_is_an_operators_durations_beside_its_iterations() -> None:
    agent = agents_of(TRAINING.table())[0]
    summaries = {s["iteration"]: s for s in rows(drained(agent), ITERATION_SUMMARIES) if s["rank"] == 1}
    (row,) = windows(agent, request([1], 1, 99, what="series", communicator="tp0", positions=[3]))
    assert row["series"] == [
        {
            "iteration": iteration,
            "operator_ns": duration,
            "iteration_ns": summaries[iteration]["end_ns"] - summaries[iteration]["start_ns"],
        }
        for iteration, duration in lasted(agent, 1, (1, 4)).items()
    ]
    assert (row["samples"], row["mean_ns"]) == (4, None)


def test_what_has_no_end_has_no_statistics() -> None:
    table = TRAINING.table()
    at = table.schema.get_field_index("end_ns")
    agent = agents_of(table.set_column(at, table.schema.field(at), pa.nulls(len(table), pa.int64())))[0]
    drained(agent)
    assert windows(agent, request([0], 0, 4, what="statistics")) == []
    assert windows(agent, request([0], 0, 4, what="series", communicator="tp0", positions=[3])) == []
    assert windows(agent, request([0], 0, 4, what="series")) == []  # of no operator in particular


def test_where_no_end_is_logged_a_communicators_rows_tell_when_the_rank_went_on() -> None:
    table = TRAINING.table()
    at = table.schema.get_field_index("end_ns")
    bare = table.set_column(at, table.schema.field(at), pa.nulls(len(table), pa.int64()))
    agent = agents_of(bare)[0]
    drained(agent)
    whole = rows(agent.process(request([1], 1, 2)), COMM_OPS)
    following = {row["call_order"]: after["call_ns"] for row, after in pairwise(whole)}
    collectives = [row for row in whole if row["peer"] is None]
    assert [row["next_call_ns"] for row in collectives] == [following.get(row["call_order"]) for row in collectives]
    for asked in ({"communicator": "tp0"}, {"communicator": "tp0", "positions": [2]}):
        told = rows(agent.process(request([1], 1, 2, **asked)), COMM_OPS)
        assert told
        assert {row["communicator"] for row in told} == {"tp0"}
        assert [row["next_call_ns"] for row in told] == [following.get(row["call_order"]) for row in told]
    some = told[-1]["seq"]
    (one,) = rows(agent.process(request([1], 1, 2, communicator="tp0", seq_from=some, seq_to=some)), COMM_OPS)
    assert (one["seq"], one["next_call_ns"]) == (some, told[-1]["next_call_ns"])


def test_where_ends_are_logged_nothing_else_need_tell() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    told = rows(agent.process(request([1], 1, 2, communicator="tp0")), COMM_OPS)
    assert {row["next_call_ns"] for row in told} == {None}


def test_rows_and_statistics_of_one_request_are_an_answer_each() -> None:
    agent = agents_of(TRAINING.table())[0]
    drained(agent)
    asked = [request([0], 3, 3), request([0, 1], 0, 2, what="statistics")]
    both = LOG_REQUESTS.from_rows([decode(message, LOG_REQUESTS).to_pylist()[0] for message in asked])
    told = list(agent.process(encode(LOG_REQUESTS, both, job="job")))
    assert [(m.topic, m.headers["ranks"]) for m in told] == [(COMM_OPS.name, "0"), (OPERATOR_WINDOWS.name, "0,1")]


def test_ranks_of_unknown_hosts_share_an_agent() -> None:
    (agent,) = agents_of(TRAINING.table(), gpus_per_host=None)
    assert (agent.host, agent.ranks) == (UNKNOWN_HOST, tuple(range(8)))


def test_rows_beyond_a_bound_come_in_parts() -> None:
    table = TRAINING.table()
    small = replace(COMM_OPS, max_bytes=20_000, max_rows=500)
    messages = encode_parts(small, table, job="job", watermark_ns=1, headers={"host": "h"})
    assert len(messages) > table.num_rows / 500
    assert all(len(m.value or b"") <= 20_000 for m in messages)
    assert [m.headers["part"] for m in messages] == [str(i) for i in range(len(messages))]
    assert {m.headers["parts"] for m in messages} == {str(len(messages))}
    assert rows(messages, COMM_OPS) == table.to_pylist()


def test_ranks_that_are_too_many_to_be_looked_up_at_once_are_all_answered() -> None:
    index = LogIndex(label(TRAINING.table()).table)
    whole = all_closed(RecordingStore(job_of(TRAINING), index)).rows(range(8), RowQuery(0, 4, seq_to=9)).table
    bounded = all_closed(RecordingStore(job_of(TRAINING), index, max_rows=whole.num_rows // 3))
    assert set(bounded.rows(range(8), RowQuery(0, 4, seq_to=9)).outcomes) < set(range(8))
    (message,) = LogAgent(bounded, "h", ()).process(request(range(8), 0, 4, seq_to=9))
    assert (message.headers["outcome"], message.headers["ranks"]) == ("complete", "0,1,2,3,4,5,6,7")
    assert rows([message], COMM_OPS) == whole.to_pylist()


def test_a_rank_that_alone_has_too_many_rows_does_not_keep_others_from_being_answered() -> None:
    index = LogIndex(label(TRAINING.table()).table)
    of_rank = TRAINING.table().num_rows // 8
    store = all_closed(RecordingStore(job_of(TRAINING), index, max_rows=of_rank - 1))
    (message,) = LogAgent(store, "h", ()).process(request(range(8), 0, 4, seq_from=0))
    assert (message.headers["outcome"], message.headers["ranks"]) == ("partial", "0,1,2,3,4,5,6,7")
    assert len(rows([message], COMM_OPS)) == 8 * (of_rank - 1)


def test_summaries_of_ranks_that_are_too_many_to_be_looked_up_at_once_are_told_all_the_same() -> None:
    index = LogIndex(label(TRAINING.table()).table)
    an_iteration = TRAINING.table().num_rows // 40
    told, expected = (
        drained(LogAgent(RecordingStore(job_of(TRAINING), index, max_rows=most), "h", (0, 2, 3)))
        for most in (2 * an_iteration, 100 * an_iteration)
    )
    assert rows(told, ITERATION_SUMMARIES) == rows(expected, ITERATION_SUMMARIES)
    assert rows(told, COMM_OPS) == rows(expected, COMM_OPS)


def all_closed(store: RecordingStore) -> RecordingStore:
    while store.advance():
        pass
    return store


def test_no_rows_make_one_empty_part() -> None:
    (message,) = encode_parts(COMM_OPS, COMM_OPS.schema.empty_table(), job="job", watermark_ns=0, headers={})
    assert decode(message, COMM_OPS).num_rows == 0
    assert message.headers["parts"] == "1"


def test_the_job_is_told_first_and_its_end_last() -> None:
    job = replace(job_of(TRAINING), started_ns=STARTED_NS)
    told = agents_of(TRAINING.table())
    source = JobSource(job, told)
    (first,) = source.advance() or []
    assert decode(first, JOBS).to_pylist()[0]["ended_ns"] is None
    assert source.advance() == []
    for agent in told:
        drained(agent)
    (last,) = source.advance() or []
    ended = decode(last, JOBS).to_pylist()[0]["ended_ns"]
    assert ended == max(agent.watermark_ns for agent in told) > STARTED_NS + 4 * ITERATION_NS
    assert source.advance() is None


def test_a_job_survives_its_record() -> None:
    job = replace(job_of(TRAINING), started_ns=5)
    again = Job.from_row(decode(job_message(job), JOBS).to_pylist()[0])
    assert (again.places, again.communicators, again.started_ns) == (job.places, job.communicators, 5)


@pytest.mark.parametrize("rank", [0, 5])
def test_a_recording_tells_its_iterations(example: Recording, rank: int) -> None:
    (agent,) = agents(example.job, example.table, {0})
    summaries = [s for s in rows(drained(agent), ITERATION_SUMMARIES) if s["rank"] == rank]
    assert [s["iteration"] for s in summaries] == list(range(60))
    lengths = [(s["end_ns"] - s["start_ns"]) / 1e9 for s in summaries]
    assert all(0.8 < length < 1.0 for length in lengths[1:30])
    assert all(1.0 < length < 1.3 for length in lengths[30:])
