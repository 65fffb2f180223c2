"""The step that searches: what it asks for, waits for and finds; restarts, deadlines, jobs side by side."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from diagnosis.operator_graph.locate import LocateSettings
from producers.log_agent import LogAgent
from schemas.catalogue import COMM_OPS, FINDINGS, ITERATIONS, LOG_REQUESTS, OPERATOR_WINDOWS, TOPICS
from schemas.errors import ImpossibleValue, MessageError, MessageTooLarge
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from streams.search import Search, SearchSettings
from streams.search_metrics import SearchMetrics
from tests.streams.searched_jobs import SearchedJob, offsets

Row = dict[str, Any]
A, B = SearchedJob("a", slow=3), SearchedJob("b", slow=0)
WITHIN_NS = 5_000


def step(*jobs: SearchedJob) -> Search:
    return Search({one.name: one.job for one in jobs or (A, B)}, SearchSettings(answer_within_ns=WITHIN_NS))


def rows(messages: Iterable[Message], topic: Topic = FINDINGS) -> list[Row]:
    return [row for m in messages if m.topic == topic.name for row in decode(m, topic).to_pylist()]


class Bus:
    """Carries what a search asks to the agents and back, first in first out."""

    def __init__(self, search: Search, *jobs: SearchedJob, agents: Sequence[LogAgent] | None = None) -> None:
        self.search = search
        self.agents = [a for one in jobs or (A, B) for a in one.agents] if agents is None else agents
        self.published: list[Message] = []

    def carry(self, messages: Iterable[Message], change: Callable[[Message], list[Message]] = lambda m: [m]) -> None:
        """``change`` says what becomes of an answer on its way."""
        waiting = list(messages)
        while waiting:
            message = waiting.pop(0)
            for output in self.search.process(message):
                self.published.append(output)
                if output.topic == LOG_REQUESTS.name:
                    waiting += [m for agent in self.agents for a in agent.process(output) for m in change(a)]

    @property
    def findings(self) -> list[Row]:
        return rows(self.published)

    @property
    def requests(self) -> list[str]:
        return [row["request_id"] for row in rows(self.published, LOG_REQUESTS)]


def searched(messages: Sequence[Message]) -> list[Row]:
    bus = Bus(step())
    bus.carry(offsets(messages))
    return bus.findings


def culprits(findings: Iterable[Row]) -> list[tuple[int, list[int]]]:
    return [(row["iteration"], row["ranks"]) for row in findings if row["active"]]


def held(search: Search) -> int:
    return search.safe_offsets()[ITERATIONS]


def test_an_irregular_iteration_is_searched_and_its_culprit_named() -> None:
    bus = Bus(step())
    bus.carry(offsets([A.record(11), A.irregular(scatter_ns=9_000_000)]))
    [found] = bus.findings
    assert (found["ranks"], found["cause"], found["level"]) == ([3], "compute_slow", "device")
    assert (found["iteration"], found["pattern"], found["first_iteration"], found["last_iteration"]) == (
        12,
        "abnormal_spike",
        12,
        12,
    )
    assert (found["iteration_ns"], found["expected_ns"], found["coverage"]) == (85_000_000, 35_000_000, 1.0)
    assert found["scatter_ns"] == 9_000_000
    assert found["evidence"]["delta"] == pytest.approx(85 / 35)
    assert found["evidence"]["fetched_bytes"] > 0
    assert found["found_ns"] == 1012
    assert [device["device"] for device in found["devices"]] == ["gpu:h3/0"]
    assert bus.published[-1].watermark_ns == 1012
    of_request = [{row["request_id"] for row in rows([m], LOG_REQUESTS)} for m in bus.published[:-1]]
    assert len(of_request) == len(set.union(*of_request)) > 1
    assert held(bus.search) == 2


def test_regular_iterations_ask_for_nothing() -> None:
    search = step()
    assert [list(search.process(m)) for m in offsets([A.record(10), A.record(11)])] == [[], []]
    assert (held(search), search.next_deadline_ns()) == (2, None)


def test_settings_change_between_two_messages() -> None:
    search = step()
    search.tune(SearchSettings(answer_within_ns=2 * WITHIN_NS))
    [request] = search.process(replace(A.irregular(), offset=0, taken_ns=9_000))
    search.tune(SearchSettings(answer_within_ns=3 * WITHIN_NS))
    assert {row["deadline_ns"] for row in rows([request], LOG_REQUESTS)} == {9_000 + 2 * WITHIN_NS}
    assert search.next_deadline_ns() == 9_000 + 2 * WITHIN_NS


def test_what_is_asked_for_is_what_the_pivots_need_and_due_in_time() -> None:
    search = step()
    [request] = search.process(replace(A.irregular(), offset=0, taken_ns=9_000))
    [needed] = [row for row in rows([request], LOG_REQUESTS) if row["iteration_from"] == 0]
    assert (needed["ranks"], needed["iteration_to"], needed["communicator"]) == ([0, 2], 12, None)
    assert needed["deadline_ns"] == 9_000 + WITHIN_NS == search.next_deadline_ns()


def test_an_iterations_offset_is_held_until_its_search_ends() -> None:
    search = step()
    first, second, third = offsets([A.record(11), A.irregular(), A.record(13)])
    assert list(search.process(first)) == []
    assert held(search) == 1
    [request] = search.process(second)
    assert held(search) == 1
    assert list(search.process(third)) == []
    assert held(search) == 1
    waiting = [request]
    while waiting:
        request = waiting.pop()
        answers = [answer for agent in A.agents for answer in agent.process(request)]
        assert held(search) == 1
        waiting = [m for a in answers for m in search.process(a) if m.topic == LOG_REQUESTS.name]
    assert held(search) == 3


def test_a_restart_asks_again_under_the_same_ids_and_finds_the_same() -> None:
    undisturbed = Bus(step())
    messages = offsets([A.record(11), A.irregular(), B.irregular()])
    undisturbed.carry(messages)
    for answers_before in range(1, 6):
        first = Bus(step())
        count = 0

        def counted(answer: Message, most: int = answers_before) -> list[Message]:
            nonlocal count
            count += 1
            return [answer] if count <= most else []

        first.carry(messages, counted)
        second = Bus(step())
        second.carry(messages[held(first.search) :])
        assert first.requests == undisturbed.requests[: len(first.requests)]
        assert set(second.requests) <= set(undisturbed.requests)
        found = {row["id"]: row for row in [*first.findings, *second.findings]}
        assert found == {row["id"]: row for row in undisturbed.findings}


def test_a_restart_with_other_settings_asks_under_other_ids_where_it_asks_for_other_rows() -> None:
    """Answers to what was asked before the restart may still come."""
    fewer = SearchSettings(WITHIN_NS, locate=LocateSettings(baseline_iterations=3))
    buses = [Bus(step(A), A), Bus(Search({A.name: A.job}, fewer), A)]
    ids: list[set[str]] = []
    for bus in buses:
        bus.carry(offsets([A.irregular()]))
        ids.append({row["request_id"] for row in rows(bus.published, LOG_REQUESTS) if row["what"] == "rows"})
    assert ids[0].isdisjoint(ids[1])


def test_agents_that_answer_twice_change_nothing() -> None:
    once, twice = Bus(step()), Bus(step())
    once.carry(offsets([A.irregular()]))
    twice.carry(offsets([A.irregular()]), lambda answer: [answer, answer])
    assert once.findings == twice.findings


def test_nobody_answers_until_the_deadline() -> None:
    search = step()
    list(search.process(replace(A.irregular(), offset=0, timestamp_ns=1_000)))
    assert list(search.tick(1_000 + WITHIN_NS - 1)) == []
    [unreachable] = search.tick(1_000 + WITHIN_NS)
    assert (unreachable.topic, unreachable.headers["outcome"], unreachable.job) == (COMM_OPS.name, "unreachable", "a")
    assert search.next_deadline_ns() is not None  # a tick alone changes nothing
    assert held(search) == 0
    [message] = search.process(unreachable)
    [found] = rows([message])
    assert (found["ranks"], found["cause"], found["coverage"], found["active"]) == ([], None, 0.0, True)
    assert (held(search), search.next_deadline_ns()) == (1, None)


def test_a_culprit_whose_host_is_away_is_unknown_and_nobody_else_is_blamed() -> None:
    bus = Bus(step(), agents=[agent for agent in A.agents if agent.host != "h3"])
    bus.carry(offsets([A.irregular()]))
    assert bus.findings == []
    while (deadline_ns := bus.search.next_deadline_ns()) is not None:
        bus.carry(list(bus.search.tick(deadline_ns)))
    [found] = bus.findings
    assert found["ranks"] == []
    assert 0 < found["coverage"] < 1
    asked = [rank for row in rows(bus.published, LOG_REQUESTS) for rank in row["ranks"]]
    assert asked.count(3) == 2  # two stretches of iterations or communicators of one request: asked once, no more


def test_parts_are_put_together() -> None:
    def cut(answer: Message) -> list[Message]:
        batch = decode(answer, TOPICS[answer.topic])
        half = batch.num_rows // 2
        return [_part(answer, batch.slice(half), 1), _part(answer, batch.slice(0, half), 0)]

    whole, parts = Bus(step()), Bus(step())
    whole.carry(offsets([A.irregular()]))
    parts.carry(offsets([A.irregular()]), cut)
    assert culprits(parts.findings) == culprits(whole.findings) == [(12, [3])]


def _part(answer: Message, batch: Any, part: int) -> Message:
    headers = {**answer.headers, "part": str(part), "parts": "2"}
    topic = TOPICS[answer.topic]
    return encode(topic, topic.from_rows(batch.to_pylist()), job=answer.job, headers=headers)


def answered_with(outcome: str, *ranks: int) -> Callable[[Message], list[Message]]:
    """Answers of which those for the ranks say that nothing is left of them."""

    def change(answer: Message) -> list[Message]:
        told = {int(rank) for rank in answer.headers["ranks"].split(",")}
        if answer.topic != COMM_OPS.name or not told & set(ranks):
            return [answer]
        return [encode(COMM_OPS, COMM_OPS.from_rows([]), job="a", headers={**answer.headers, "outcome": outcome})]

    return change


@pytest.mark.parametrize("search", ["attribution", "algorithm_1"])
def test_a_log_that_was_overwritten_is_unknown_and_nobody_is_blamed(
    search: Literal["attribution", "algorithm_1"],
) -> None:
    """Neither the rank whose log is gone, nor those that waited for it."""
    settings = SearchSettings(WITHIN_NS, locate=LocateSettings(search=search))
    known, gone = (Bus(Search({A.name: A.job}, settings), A) for _ in range(2))
    known.carry(offsets([A.irregular()]))
    assert culprits(known.findings) == [(12, [3])]
    gone.carry(offsets([A.irregular()]), answered_with("overwritten", 3))
    assert culprits(gone.findings) == [(12, [])]
    assert 0 < gone.findings[0]["coverage"] < 1
    assert gone.search.next_deadline_ns() is None


def test_a_log_that_is_known_in_part_lowers_the_coverage() -> None:
    def halved(answer: Message) -> list[Message]:
        if answer.headers["ranks"] != "3" or answer.topic != COMM_OPS.name:
            return [answer]
        batch = decode(answer, COMM_OPS)
        kept = pc.less(batch.column("iteration"), 6)
        headers = {**answer.headers, "outcome": "partial"}
        return [encode(COMM_OPS, COMM_OPS.from_rows(batch.filter(kept).to_pylist()), job="a", headers=headers)]

    bus = Bus(step(), A)
    bus.carry(offsets([A.irregular()]), halved)
    [found] = bus.findings
    assert found["ranks"] == []
    assert 0 < found["coverage"] < 1


def test_algorithm_1_asks_for_one_iterations_rows_and_for_statistics() -> None:
    bus = Bus(Search({A.name: A.job}, SearchSettings(locate=LocateSettings(search="algorithm_1"))), A)
    bus.carry(offsets([A.irregular()]))
    [found] = bus.findings
    assert (found["ranks"], found["cause"]) == ([3], "compute_slow")
    asked = rows(bus.published, LOG_REQUESTS)
    assert {(r["iteration_from"], r["iteration_to"]) for r in asked if r["what"] == "rows"} == {(12, 12)}
    assert {(r["iteration_from"], r["iteration_to"]) for r in asked if r["what"] == "statistics"} == {(0, 11)}
    single = [r for r in asked if r["what"] == "rows" and r["communicator"]]
    assert single
    assert all(r["seq_from"] == r["seq_to"] is not None for r in single)


def test_the_rate_is_of_a_series_that_is_asked_for_last_and_of_the_root_operator_alone() -> None:
    bus = Bus(step(), A)
    bus.carry(offsets([A.irregular()]))
    [found] = bus.findings
    *_, last = rows(bus.published, LOG_REQUESTS)
    assert [r["what"] for r in rows(bus.published, LOG_REQUESTS)].count("series") == 1
    assert (last["what"], last["iteration_from"], last["iteration_to"]) == ("series", 5, 12)
    assert last["ranks"] != [3]  # a victim's operator is the one that lasted long
    evidence = found["evidence"]
    assert len(evidence["operator_ns"]) == len(evidence["iteration_ns"]) == 8
    assert evidence["irregularity_rate"] > 0.9


@pytest.mark.parametrize(("job_from", "since"), [(None, 5), (0, 5), (3, 8)])
def test_the_rate_leaves_out_the_jobs_first_iterations(job_from: int | None, since: int) -> None:
    """A job that goes on from a checkpoint warms up as well, whatever number it begins with."""
    bus = Bus(step(), A)
    bus.carry(offsets([A.irregular(job_from=job_from)]))
    *_, last = rows(bus.published, LOG_REQUESTS)
    assert (last["what"], last["iteration_from"], last["iteration_to"]) == ("series", since, 12)


def test_a_series_that_does_not_come_is_done_without() -> None:
    bus = Bus(step(), A)
    bus.carry(offsets([A.irregular()]), lambda m: [] if m.topic == OPERATOR_WINDOWS.name else [m])
    assert bus.findings == []
    while (deadline_ns := bus.search.next_deadline_ns()) is not None:
        bus.carry(list(bus.search.tick(deadline_ns)))
    [found] = bus.findings
    assert (found["ranks"], found["coverage"]) == ([3], 1.0)
    assert found["evidence"]["irregularity_rate"] > 0.9
    assert len(found["evidence"]["iteration_ns"]) == 13


def test_every_answer_counts_as_fetched() -> None:
    told = 0

    def counted(answer: Message) -> list[Message]:
        nonlocal told
        told += len(answer.value or b"")
        return [answer]

    bus = Bus(step(), A)
    bus.carry(offsets([A.irregular()]), counted)
    assert bus.findings[0]["evidence"]["fetched_bytes"] == told


def test_searches_of_one_job_come_in_their_order() -> None:
    closed: Row = {"pattern": "abnormal_spike", "pattern_from": 12, "pattern_to": 12, "pattern_state": "closed"}
    messages = [A.irregular(), A.irregular(2), A.record(14, **closed, excess_ns=5), A.record(15, last=True)]
    search = step()
    requests = [output for message in offsets(messages) for output in search.process(message)]
    assert len(requests) == 1  # the second search begins when the first has ended
    found = searched(messages)
    assert [(row["iteration"], row["active"], row["first_iteration"]) for row in found] == [
        (12, True, 12),
        (12, True, 12),
        (14, False, 12),
        (15, False, None),
    ]


@settings(max_examples=20)
@given(st.permutations("aabb"), st.integers(0, 2**32))
def test_jobs_side_by_side_find_what_each_finds_alone(turns: list[str], seed: int) -> None:
    """Two records of each job, and answers in whatever order they come."""
    of = {"a": [A.record(11), A.irregular()], "b": [B.irregular(), B.record(13, last=True)]}
    alone = {name: searched(messages) for name, messages in of.items()}
    mixed, agents, random = [of[name].pop(0) for name in turns], A.agents + B.agents, Random(seed)
    search, found, under_way = step(), list[Row](), list[Message]()

    def process(message: Message) -> None:
        for output in search.process(message):
            found.extend(rows([output]))
            if output.topic == LOG_REQUESTS.name:
                under_way.extend(answer for agent in agents for answer in agent.process(output))

    for message in offsets(mixed):
        process(message)
        while under_way and random.random() < 0.7:
            process(under_way.pop(random.randrange(len(under_way))))
    while under_way:
        process(under_way.pop(random.randrange(len(under_way))))
    for name in of:
        ids = {row["id"] for row in alone[name]}
        assert [row for row in found if row["id"] in ids] == alone[name]
    assert held(search) == 4


def test_the_offset_of_the_slowest_job_is_held() -> None:
    search = step()
    list(search.process(replace(A.irregular(), offset=0)))
    bus = Bus(search, B)
    bus.carry([replace(B.irregular(), offset=1), replace(B.record(13), offset=2)])
    assert culprits(bus.findings) == [(12, [0])]
    assert held(search) == 0


@pytest.mark.parametrize(
    ("ordinal", "is_searched"),
    [
        (1, True),
        (2, True),
        (3, False),
        (4, True),
        (6, False),
        (17, True),
        (24, False),
        (48, True),
        (49, True),
        (50, False),
        (64, True),
        (128, False),
    ],
)
def test_of_a_run_the_first_second_fourth_and_so_on_are_searched(ordinal: int, is_searched: bool) -> None:
    search = step()
    assert bool(list(search.process(replace(A.irregular(ordinal), offset=0)))) == is_searched
    assert held(search) == (0 if is_searched else 1)


@pytest.mark.parametrize(
    ("ordinal", "step", "is_searched"),
    [(9, 1, True), (10, 2, True), (11, 3, False), (63, 4, True), (1000, 1, True), (1063, 64, True), (1127, 128, False)],
)
def test_what_comes_on_top_of_a_run_is_searched_anew(ordinal: int, step: int, is_searched: bool) -> None:
    searching = Search({A.name: A.job})
    record = replace(A.irregular(ordinal, step_ordinal=step), offset=0)
    assert bool(list(searching.process(record))) == is_searched


RUN = {"pattern": "persistent_degradation", "pattern_from": 3, "pattern_to": 8, "excess_ns": 77}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({**RUN, "pattern_state": "closed"}, [(3, 8, 77, None)]),
        ({**RUN, "pattern": "abnormal_spike", "pattern_state": "closed"}, [(3, 8, 77, None)]),
        ({**RUN, "pattern_state": "open"}, []),
        ({"pattern_state": "quiet"}, [(None, None, None, None)]),
        ({"last": True}, [(None, None, None, True)]),
        ({**RUN, "pattern_state": "open", "last": True}, [(3, 8, 77, None), (None, None, None, True)]),
    ],
    ids=["closed", "spike", "open", "quiet", "last", "open at the end"],
)
def test_what_is_over_is_cleared(columns: Row, told: list[tuple[int | None, ...]]) -> None:
    found = searched([A.record(10, **columns)])
    names = ("first_iteration", "last_iteration", "run_excess_ns", "last")
    assert [tuple(row[name] for name in names) for row in found] == told
    assert all((row["active"], row["iteration"], row["ranks"]) == (False, 10, []) for row in found)
    assert len({row["id"] for row in found}) == len(found)


def test_a_bad_answer_is_poison_and_the_good_one_still_counts() -> None:
    bus = Bus(step())
    refused: list[str] = []

    def spoilt(answer: Message) -> list[Message]:
        for bad in (replace(answer, value=b"junk"), replace(answer, headers={**answer.headers, "parts": "0"})):
            with pytest.raises(MessageError) as error:
                list(bus.search.process(bad))
            refused.append(type(error.value).__name__)
        return [answer]

    bus.carry(offsets([A.irregular()]), spoilt)
    assert culprits(bus.findings) == [(12, [3])]
    assert set(refused) == {"UndecodableMessage", "WrongSchema"}


def test_rows_that_nobody_asked_for_are_not_even_looked_at() -> None:
    search = step()
    [request] = search.process(replace(A.irregular(), offset=0))
    [answer, *_] = [answer for agent in A.agents for answer in agent.process(request)]
    unasked = {k: v for k, v in answer.headers.items() if k != "request_id"}
    other = {**answer.headers, "request_id": "another"}
    for headers in (unasked, other, {**answer.headers, "job": "nobody's"}):
        assert list(search.process(replace(answer, value=b"junk", headers=headers))) == []
    assert held(search) == 0


@pytest.mark.parametrize(("expected_ns", "said"), [(None, "null"), (0, "0")])
def test_an_iteration_that_is_longer_than_nothing_is_poison(expected_ns: int | None, said: str) -> None:
    search = step()
    with pytest.raises(ImpossibleValue, match=f"iteration 12 is irregular, but its expected_ns is {said}: "):
        list(search.process(replace(A.irregular(expected_ns=expected_ns), offset=0)))
    assert list(search.process(replace(A.record(13), offset=1))) == []
    assert held(search) == 2


def test_an_irregular_iteration_that_no_pivot_timed_is_passed() -> None:
    search = step()
    assert list(search.process(replace(A.irregular(duration_ns=None), offset=0))) == []
    assert held(search) == 1


def test_a_pivot_that_the_job_does_not_know_is_unknown_at_its_deadline() -> None:
    bus = Bus(step())
    bus.carry(offsets([A.irregular(pivots=(0, 99))]))
    while (deadline_ns := bus.search.next_deadline_ns()) is not None:
        bus.carry(list(bus.search.tick(deadline_ns)))
    [found] = bus.findings
    assert found["ranks"] == [3]
    assert found["coverage"] < 1


def test_a_search_that_fails_names_nobody_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Iterator[Any]:
        yield from (1 // 0 for _ in range(1))

    bus = Bus(step(A))
    with monkeypatch.context() as patched:
        patched.setattr("streams.search.locate", fails)
        bus.carry(offsets([A.irregular()]))
    assert [(row["ranks"], row["coverage"]) for row in bus.findings] == [([], 0.0)]
    assert "failed" in caplog.text
    assert bus.search.safe_offsets()[ITERATIONS] == 1
    bus.carry([replace(A.irregular(), offset=1)])
    assert bus.findings[-1]["ranks"] == [A.slow]


def test_an_answer_that_is_too_much_ends_its_search_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is waited for any more by then: the job's offset would be held for ever."""

    def fails(_: object) -> None:
        raise KeyError("no")

    bus = Bus(step(A))
    with monkeypatch.context() as patched:
        patched.setattr("streams.search.Fetch.answer", fails)
        bus.carry(offsets([A.irregular()]))
    assert [(row["ranks"], row["coverage"]) for row in bus.findings] == [([], 0.0)]
    assert "failed" in caplog.text
    assert bus.search.next_deadline_ns() is None
    assert held(bus.search) == 1


def too_large(most_culprits: int) -> Callable[..., Message]:
    """Refuses findings that name more."""

    def encoded(topic: Topic, batch: pa.RecordBatch, **columns: Any) -> Message:
        if topic is FINDINGS and sum(bool(row["ranks"]) for row in batch.to_pylist()) > most_culprits:
            raise MessageTooLarge("too large")
        return encode(topic, batch, **columns)

    return encoded


def test_of_what_no_record_takes_it_is_told_that_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bus = Bus(step(A))
    monkeypatch.setattr("streams.search.encode", too_large(0))
    bus.carry(offsets([A.irregular(), A.irregular(2)]))
    assert [(row["ranks"], row["coverage"]) for row in bus.findings] == [([], 0.0)] * 2
    assert "cannot be told" in caplog.text
    assert held(bus.search) == 2


def test_what_waits_in_line_is_held_whatever_becomes_of_the_search_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    search, asked = step(A), offsets([A.irregular(), A.irregular(2), A.irregular(4)])
    requests = [output for message in asked[:2] for output in search.process(message)]
    bus = Bus(search, A)
    with monkeypatch.context() as patched:
        patched.setattr("streams.search.encode", too_large(-1))
        with pytest.raises(MessageTooLarge):
            bus.carry(answer for agent in A.agents for request in requests for answer in agent.process(request))
    assert held(search) == 1
    bus.carry(asked[2:])
    assert culprits(bus.findings) == [(12, [3])] * 2
    assert held(search) == 3


class Counted:
    """A bus whose search counts; answers take 1.5 s."""

    def __init__(self, settings: SearchSettings) -> None:
        self._registry = CollectorRegistry()
        self._bus = Bus(Search({A.name: A.job}, settings, metrics=SearchMetrics(self._registry)), A)

    def search(self) -> None:
        asked = A.irregular()
        self._bus.carry([asked], lambda answer: [replace(answer, timestamp_ns=asked.timestamp_ns + 1_500_000_000)])

    def told(self) -> dict[str, float | None]:
        names = ("searches_total", "searches_failed_total", "searches_bounded_total", "search_seconds_sum")
        return {name: self._registry.get_sample_value(f"offbeat_{name}") for name in names}


def test_searches_are_counted_and_timed() -> None:
    counted = Counted(SearchSettings())
    counted.search()
    counted.search()
    assert list(counted.told().values()) == [2, 0, 0, 3.0]


def test_searches_that_stop_at_their_bound_are_counted() -> None:
    counted = Counted(SearchSettings(locate=LocateSettings(most_rows=1)))
    counted.search()
    assert list(counted.told().values()) == [1, 0, 1, 1.5]


def test_searches_that_fail_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Iterator[Any]:
        yield from (1 // 0 for _ in range(1))

    counted = Counted(SearchSettings())
    monkeypatch.setattr("streams.search.locate", fails)
    counted.search()
    assert list(counted.told().values()) == [1, 1, 0, 0.0]


def test_searches_whose_finding_no_record_takes_count_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(SearchSettings())
    monkeypatch.setattr("streams.search.encode", too_large(0))
    counted.search()
    assert list(counted.told().values()) == [1, 1, 0, 1.5]
