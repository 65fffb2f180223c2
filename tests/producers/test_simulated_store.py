"""The store of a lazily expanded job answers as one that holds all of its log."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.labels import label
from producers.log_agent import LogAgent
from producers.log_index import LogIndex
from producers.log_store import RecordingStore
from producers.row_query import RowQuery
from producers.simulated_store import SimulatedStore, simulated_agents
from producers.simulation import DEFAULT, FabricShape, LazyLog, LazyRun, NoiseProfile, Omissions, Scenario
from schemas.catalogue import COMM_OPS, ITERATION_SUMMARIES
from schemas.message import decode

WHOLE = replace(DEFAULT, lost_share=0.0, ring_gap_probability=0.0)


@cache
def log(noise: NoiseProfile = WHOLE, *, bare: bool = False) -> LazyLog:
    """16 ranks on two hosts; ``bare``: without labels and ends."""
    return LazyLog(
        LazyRun(
            Scenario(
                seed=6,
                tp=2,
                pp=2,
                dp=4,
                layers=4,
                hidden=4096,
                microbatches=3,
                iterations=5,
                fabric=FabricShape(),
                noise=noise,
                omissions=Omissions(labels=bare, ends=bare),
            )
        )
    )


@cache
def index(of: LazyLog) -> LogIndex:
    """The whole log of all ranks."""
    return LogIndex(label(of.rows(range(16), range(5))[0]).table)


@cache
def recorded(of: LazyLog, last: int = 3, keep_iterations: int | None = None) -> RecordingStore:
    """A store over the whole log of all ranks."""
    store = RecordingStore(of.run.job, index(of), keep_iterations=keep_iterations)
    while store.closed < last:
        assert store.advance()
    return store


def lazily(of: LazyLog, last: int = 3, keep_iterations: int | None = None) -> SimulatedStore:
    store = SimulatedStore(of, keep_iterations=keep_iterations)
    while store.closed < last:
        assert store.advance()
    return store


Asked = tuple[set[int], RowQuery]

ASKED = st.tuples(
    st.sets(st.integers(0, 17), max_size=4),
    st.builds(
        RowQuery,
        st.integers(0, 5),
        st.integers(0, 5),
        st.none() | st.sampled_from(sorted(log().run.job.members)),
        st.none() | st.integers(0, 60),
        st.none() | st.integers(0, 400),
    ),
)


@settings(max_examples=40, deadline=None)
@given(asked=ASKED, keep=st.none() | st.integers(1, 3))
def test_it_answers_as_a_store_of_the_whole_log(asked: Asked, keep: int | None) -> None:
    rows, outcomes = lazily(log(), keep_iterations=keep).rows(*asked)
    expected, told = recorded(log(), keep_iterations=keep).rows(*asked)
    assert rows.to_pylist() == expected.to_pylist()
    assert outcomes == told


@settings(max_examples=40, deadline=None)
@given(asked=ASKED, lost=st.sampled_from([0.0, 0.05, 0.97]))
def test_where_no_ends_are_logged_it_tells_when_ranks_went_on_as_a_store_of_the_whole_log(
    asked: Asked, lost: float
) -> None:
    bare = log(replace(WHOLE, lost_share=lost), bare=True)
    stores = (lazily(bare), recorded(bare))
    rows, expected = (store.rows(*asked, next_calls=True)[0] for store in stores)
    for column in ("rank", "seq", "call_ns", "next_call_ns"):
        assert rows.column(column).to_pylist() == expected.column(column).to_pylist()


@pytest.mark.parametrize("bare", [False, True])
def test_the_next_call_is_told_where_it_is_asked_for_and_no_end_is_known(bare: bool) -> None:
    for store in (lazily(log(bare=bare)), recorded(log(bare=bare))):
        rows = store.rows([3], RowQuery(1, 2))[0]
        assert rows.column("next_call_ns").null_count == rows.num_rows
        rows = store.rows([3], RowQuery(1, 2), next_calls=True)[0]
        assert rows.column("next_call_ns").null_count == (1 if bare else rows.num_rows)


def test_lost_lines_make_it_partial() -> None:
    lossy = log(replace(WHOLE, lost_share=0.02))
    rows, outcomes = lazily(lossy).rows(range(16), RowQuery(1, 2))
    expected = recorded(lossy).rows(range(16), RowQuery(1, 2))
    assert rows.to_pylist() == expected.table.to_pylist()
    assert outcomes == expected.outcomes
    assert set(outcomes.values()) == {"partial", "complete"}


def test_spans_and_watermark_are_those_of_the_whole_log() -> None:
    for last in range(5):
        one, other = lazily(log(), last), recorded(log(), last)
        assert abs(one.watermark_ns - other.watermark_ns) < 2e6  # the last operator but for the optimizer's step
        assert one.ended == other.ended
        for column in ("rank", "start_ns", "end_ns", "lost"):
            assert getattr(one.spans(last), column).tolist() == getattr(other.spans(last), column).tolist()


def test_spans_are_told_on_request_of_ranks_of_which_no_summary_travels() -> None:
    store = SimulatedStore(log(), told=[3])
    store.advance()
    assert store.spans(0).rank.tolist() == [3]
    for column in ("rank", "start_ns", "end_ns", "lost"):
        expected = getattr(recorded(log(), 0).spans(0, [7]), column).tolist()
        assert getattr(store.spans(0, [7]), column).tolist() == expected


def test_an_answer_has_a_bound() -> None:
    store = SimulatedStore(log(), max_rows=10)
    store.advance()
    rows, outcomes = store.rows([3, 4], RowQuery(0, 0))
    assert (rows.num_rows, outcomes) == (10, {3: "partial"})
    a_rank = lazily(log()).rows([3], RowQuery(0, 0)).table.num_rows
    roomy = SimulatedStore(log(), max_rows=2 * a_rank + 1)
    roomy.advance()
    assert roomy.rows([3, 4, 5], RowQuery(0, 0)).outcomes == {3: "complete", 4: "complete"}
    assert roomy.rows([3, 4, 5], RowQuery(0, 0)).table.num_rows == 2 * a_rank


def test_logs_without_labels_are_numbered_by_their_agents() -> None:
    rows = lazily(log(bare=True)).rows([3], RowQuery(1, 2))[0]
    assert set(rows.column("iteration").to_pylist()) == {1, 2}
    for name in ("phase", "microbatch", "end_ns"):
        assert rows.column(name).null_count == rows.num_rows


def test_agents_tell_of_pivots_and_know_all_ranks() -> None:
    agents: list[LogAgent] = simulated_agents(log(), [3, 12], hosts_an_agent=1)
    assert [agent.ranks for agent in agents] == [tuple(range(8)), tuple(range(8, 16))]
    messages = [message for agent in agents for message in agent.advance() or []]
    summaries = [decode(m, ITERATION_SUMMARIES) for m in messages if m.topic == ITERATION_SUMMARIES.name]
    rows = [decode(m, COMM_OPS) for m in messages if m.topic == COMM_OPS.name]
    assert [batch.column("rank").to_pylist() for batch in summaries] == [[3], [12]]
    assert pa.Table.from_batches(rows).num_rows == sum(batch.column("operators")[0].as_py() for batch in summaries)
    assert len(simulated_agents(log(), [3])) == 1
