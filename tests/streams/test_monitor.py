"""The step that judges iterations: when it does, what it says, missing and late pivots, restarts, a job's end."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streams.monitor
from diagnosis.irregularity.monitor import IterationMonitor, Judgement
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.job import Job, Place, pivots
from schemas.catalogue import DEAD_LETTERS, ITERATION_SUMMARIES, ITERATIONS
from schemas.errors import UndecodableMessage, UnknownJob, WrongSchema
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from streams import giving_up, in_process
from streams.monitor import Monitor
from streams.step import Step

Row = dict[str, Any]

SETTINGS = MonitorSettings(delta=1.5, window=4, least_baseline=3, warm_up=1, degradation_after=3, quiet_after=4)
READY = 4
"""Iterations before the first that is judged."""


def job(name: str = "j", **fields: Any) -> Job:
    return Job(name, tuple(Place(rank, f"h{rank // 2}") for rank in range(8)), (), **fields)


A, B, C = PIVOTS = pivots(job(), 3)


def summary(
    iteration: int,
    durations: Mapping[int, int | None],
    *,
    last: bool = False,
    name: str = "j",
    pauses: Mapping[int, int] | None = None,
) -> Message:
    """What an agent tells of some ranks."""
    rows = [
        {
            "rank": rank,
            "iteration": iteration,
            "start_ns": 1000 * iteration + rank,
            "end_ns": None if duration is None else 1000 * iteration + rank + duration,
            "pause_ns": (pauses or {}).get(rank),
            "operators": 1,
            "lost_lines": 0,
            "last": last or None,
        }
        for rank, duration in durations.items()
    ]
    return encode(
        ITERATION_SUMMARIES, ITERATION_SUMMARIES.from_rows(rows), job=name, watermark_ns=1000 * (iteration + 1)
    )


def all_pivots(iteration: int, duration: int | None = 100, *, last: bool = False, name: str = "j") -> Message:
    return summary(iteration, dict.fromkeys(PIVOTS, duration), last=last, name=name)


def monitor(*jobs: Job) -> Monitor:
    return Monitor({one.job: one for one in jobs or (job(),)}, SETTINGS, pivot_count=3)


def told(step: Monitor, messages: Iterable[Message]) -> list[Message]:
    placed = (replace(message, offset=offset) for offset, message in enumerate(messages))
    return [output for message in placed for output in step.process(message)]


def rows(outputs: Iterable[Message]) -> list[Row]:
    return [row for output in outputs for row in decode(output, ITERATIONS).to_pylist()]


def judged(messages: Iterable[Message]) -> list[Row]:
    return rows(told(monitor(), messages))


def iterations(found: Sequence[Row]) -> list[int]:
    return list(dict.fromkeys(row["iteration"] for row in found))


def test_an_iteration_is_judged_once_all_pivots_have_told_of_it() -> None:
    step = monitor()
    assert told(step, [summary(0, {A: 100, 7: 900}), summary(0, {B: 110})]) == []
    [message] = told(step, [summary(0, {C: 120})])
    assert [(row["pivot"], row["start_ns"], row["duration_ns"]) for row in rows([message])] == [
        (A, A, 100),
        (B, B, 110),
        (C, C, 120),
    ]
    assert (message.job, message.watermark_ns) == ("j", 1000)


def test_what_was_judged_before_it_failed_is_told_and_not_again_when_the_message_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = IterationMonitor.judge

    def failing(
        self: IterationMonitor, iteration: int, duration_ns: int | None, pause_ns: int | None = None
    ) -> Judgement:
        if iteration == 1:
            raise ValueError("too much")
        return judge(self, iteration, duration_ns, pause_ns)

    step = Step(monitor())
    of_both = [row for iteration in (0, 1) for row in decode(all_pivots(iteration), ITERATION_SUMMARIES).to_pylist()]
    message = encode(ITERATION_SUMMARIES, ITERATION_SUMMARIES.from_rows(of_both), job="j")
    with monkeypatch.context() as broken:
        broken.setattr(IterationMonitor, "judge", failing)
        *judged, letter = step.take(replace(message, offset=0))
    assert (iterations(rows(judged)), letter.topic) == ([0], DEAD_LETTERS.name)
    again = [*step.take(replace(message, offset=1)), *step.take(replace(all_pivots(2), offset=2))]
    assert iterations(rows(again)) == [2]


def test_settings_change_between_two_messages() -> None:
    step = monitor()
    found = rows(told(step, [all_pivots(i) for i in range(READY)] + [all_pivots(READY, 130)]))
    assert not any(row["irregular"] for row in found)
    step.tune(replace(SETTINGS, delta=1.2))
    assert all(row["irregular"] for row in rows(told(step, [all_pivots(READY + 1, 130)])))


def test_the_median_of_the_pivots_is_the_iterations_duration() -> None:
    calm = [all_pivots(i) for i in range(READY)]
    found = judged([*calm, summary(READY, {A: 100, B: 250, C: 100}), summary(READY + 1, {A: 250, B: 100, C: 250})])
    assert [row["irregular"] for row in found] == [None] * 12 + [False] * 3 + [True] * 3
    assert found[-1]["excess_ns"] == 150


def test_an_iteration_during_which_a_clock_was_set_forward_is_unknown_and_no_baseline() -> None:
    calm = [all_pivots(i) for i in range(READY)]
    found = judged([*calm, summary(READY, {A: 100, B: 100, C: 3_600_000}), all_pivots(READY + 1, 200)])
    assert [(row["duration_ns"], row["irregular"]) for row in found[-6:-3]] == [
        (100, None),
        (100, None),
        (3_600_000, None),
    ]
    assert [row["baseline"] for row in found[-3:]] == [[*range(1, READY)]] * 3


def test_what_an_irregular_run_is_told_as() -> None:
    durations = [100] * READY + [200, 200, 200, 100, 100, 100, 100, 100]
    found = judged(all_pivots(i, duration) for i, duration in enumerate(durations))
    of_first_pivot = [row for row in found if row["pivot"] == A]
    columns = ("pattern", "pattern_from", "pattern_to", "pattern_ordinal", "pattern_state", "excess_ns")
    assert [tuple(row[name] for name in columns) for row in of_first_pivot[READY:]] == [
        ("abnormal_spike", 4, 4, 1, "open", 100),
        ("abnormal_spike", 4, 5, 2, "open", 200),
        ("persistent_degradation", 4, 6, 3, "open", 300),
        ("persistent_degradation", 4, 6, 3, "open", 300),
        ("persistent_degradation", 4, 6, 3, "closed", 300),
        (None, None, None, None, None, None),
        (None, None, None, None, "quiet", None),
        (None, None, None, None, None, None),
    ]
    assert of_first_pivot[READY]["baseline"] == [1, 2, 3]
    assert {row["delta"] for row in found} == {1.5}
    assert {row["expected_ns"] for row in found[3 * READY :]} == {100}
    assert {(row["irregular"], row["scatter_ns"]) for row in found[3 * READY :]} == {(True, 0), (False, None)}


def test_what_comes_on_top_of_a_run_is_told() -> None:
    durations = [100] * READY + [200, 200, 300, 300]
    rows = [row for row in judged(all_pivots(i, d) for i, d in enumerate(durations)) if row["pivot"] == A]
    told = [(row["step_ordinal"], row["step_from"], row["step_excess_ns"]) for row in rows[READY:]]
    assert told == [(None, None, None)] * 2 + [(1, READY + 2, 200), (2, READY + 2, 400)]


def test_a_fluctuation_is_told_with_its_period_and_its_own_delta() -> None:
    durations = [1000] * READY + [1000, 1000, 1000, 1200, 1000] * 8
    found = [row for row in judged(all_pivots(i, d) for i, d in enumerate(durations)) if row["pivot"] == A]
    long_ones = [row for row in found if row["irregular"]]
    assert {(row["pattern"], row["delta"]) for row in long_ones} == {("performance_fluctuation", 1.05)}
    assert {round(row["period"]) for row in long_ones} == {5}
    assert len({row["pattern_from"] for row in long_ones}) == 1
    assert [row["delta"] for row in found[:READY]] == [1.5] * READY


def test_a_duration_that_nobody_knows_is_unknown() -> None:
    found = judged([*(all_pivots(i) for i in range(READY)), all_pivots(READY, None)])
    assert [(row["duration_ns"], row["irregular"]) for row in found[-3:]] == [(None, None)] * 3
    one_knows = judged([*(all_pivots(i) for i in range(READY)), summary(READY, {A: None, B: 400, C: None})])
    assert [row["irregular"] for row in one_knows[-3:]] == [True] * 3


def test_a_pivot_that_is_gone_is_waited_for_two_iterations_and_then_no_more() -> None:
    without = [summary(i, {A: 100, B: 100}) for i in range(2, 6)]
    step = monitor()
    outputs = [told(step, [message]) for message in [all_pivots(0), all_pivots(1), *without]]
    assert [iterations(rows(output)) for output in outputs] == [[0], [1], [], [], [2, 3, 4], [5]]
    assert [row["pivot"] for row in rows(outputs[-1])] == [A, B]


def test_a_pivot_that_was_never_there_does_not_hold_the_job_up() -> None:
    assert iterations(judged([summary(i, {A: 100, B: 100}) for i in range(5)])) == [0, 1, 2, 3, 4]


def test_a_pivot_that_is_back_in_time_is_waited_for_again() -> None:
    """It missed an iteration; from then on its reports come just after the others'."""
    step = monitor()
    told(step, [all_pivots(0), *(summary(i, {A: 100, B: 100}) for i in range(1, 4))])
    late = [summary(3, {C: 100}), summary(4, {A: 100, B: 100}), summary(4, {C: 100})]
    outputs = [told(step, [message]) for message in late]
    assert [[row["pivot"] for row in rows(output)] for output in outputs] == [[], [], [A, B, C]]


def test_a_late_report_does_not_change_what_was_judged() -> None:
    messages = [all_pivots(0), *(summary(i, {A: 100, B: 100}) for i in range(1, 6))]
    late = [*messages, summary(2, {C: 100_000}), summary(1, {A: 5})]
    assert judged(late) == judged(messages)


@pytest.mark.parametrize("wrong", PIVOTS)
def test_one_wrong_number_does_not_pass_for_all_before_it(wrong: int) -> None:
    story = [summary(i, {pivot: 300 if i == 7 else 100}) for i in range(10) for pivot in PIVOTS]
    expected = judged(story)
    assert iterations(expected) == list(range(10))
    far = summary(200_000_000, {wrong: 100})
    for at in (0, 10, len(story)):
        assert judged([*story[:at], far, *story[at:]]) == expected


def test_nor_do_two_that_do_not_bear_out_each_other() -> None:
    story = [all_pivots(i) for i in range(10)]
    wrong = [summary(200_000_000, {A: 100}), summary(150_000_000, {B: 100})]
    assert judged([*story[:3], wrong[0], *story[3:6], wrong[1], *story[6:]]) == judged(story)


def test_a_single_pivot_that_is_heard_of_is_believed() -> None:
    """Of a job that goes on from a checkpoint, of which one host alone has an agent."""
    assert iterations(judged([summary(310_000 + i, {A: 100}) for i in range(5)])) == [310_000 + i for i in range(5)]


def test_numbers_that_two_pivots_tell_are_believed() -> None:
    """As of a job that goes on with other numbers."""
    story = [all_pivots(i) for i in (0, 1, 2, 50_000, 50_001)]
    assert iterations(judged(story)) == [0, 1, 2, 50_000, 50_001]


def test_what_one_pivot_tells_without_end_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams.monitor, "MOST_PENDING", 64)
    step = monitor()
    told(step, [all_pivots(0), *(summary(10_000 + i, {A: 100}) for i in range(67))])
    [record] = caplog.records
    assert record.getMessage().startswith("j: 64 iterations wait for other pivots")
    [state] = step.changed_states().values()
    assert state is not None
    assert len(json.loads(state.state)["pending"]) == 64


def test_a_wrong_number_does_not_keep_a_job_from_being_given_up() -> None:
    step = monitor()
    ended = summary(3, {A: 100}, last=True)
    told(step, [*(all_pivots(i) for i in range(3)), summary(200_000_000, {B: 100}), ended])
    [over] = step.tick(ended.now_ns + giving_up.GONE_NS + 1)
    found = rows(told(step, [replace(over, timestamp_ns=ended.now_ns + giving_up.GONE_NS + 1)]))
    assert [(row["iteration"], row["last"]) for row in found] == [(3, True)]


def test_two_jobs_do_not_touch_each_other() -> None:
    def of(name: str, slow: int) -> list[Message]:
        return [all_pivots(i, 300 if i == slow else 100, name=name) for i in range(8)]

    one, other = of("j", 5), of("k", 6)
    step = monitor(job(), job("k"))
    mixed = told(step, [message for pair in zip(one, other, strict=True) for message in pair])
    assert rows(m for m in mixed if m.job == "j") == rows(told(monitor(), one))
    assert [row["iteration"] for row in rows(m for m in mixed if m.job == "k") if row["irregular"]] == [6] * 3


def test_a_job_that_is_not_watched_is_left_alone() -> None:
    step = monitor(job(monitoring=False))
    assert told(step, [all_pivots(i) for i in range(3)]) == []
    assert step.changed_states() == {}


def test_an_unknown_job_and_one_without_ranks() -> None:
    with pytest.raises(UnknownJob):
        told(Monitor(_NoJobs()), [all_pivots(0)])
    assert told(monitor(Job("j", (), ())), [all_pivots(0)]) == []


class _NoJobs(dict[str, Job]):
    def __missing__(self, key: str) -> Job:
        raise UnknownJob(key)


def test_the_end_of_the_log_is_told_and_the_state_dropped() -> None:
    step = monitor()
    found = rows(told(step, [all_pivots(0), all_pivots(1, last=True)]))
    assert [row["last"] for row in found] == [None] * 3 + [True] * 3
    assert step.changed_states() == {"j": None}
    assert told(step, [summary(1, {A: 100}, last=True), all_pivots(2)]) == []
    assert step.changed_states() == {}


def test_a_run_under_the_name_of_a_job_that_is_over_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    step = monitor()
    told(step, [all_pivots(0), all_pivots(1, None, last=True)])
    late = summary(1, {A: 100}, last=True)
    assert told(step, [summary(0, {A: 100}), late]) == []
    assert not caplog.records
    anew = [all_pivots(iteration) for iteration in (5, 6)]
    assert told(step, anew) == []
    assert [record.message.partition(":")[0] for record in caplog.records] == ["j is over, but runs again"]


def test_one_pivot_alone_does_not_end_the_job() -> None:
    step = monitor()
    assert told(step, [summary(0, {A: 100}, last=True), summary(0, {B: 100, C: 100})]) == []
    assert step.changed_states()["j"] is not None
    assert iterations(rows(told(step, [summary(i, {B: 100, C: 100}) for i in (1, 2, 3)]))) == [0, 1, 2, 3]


def test_a_pivot_whose_log_ended_early_is_not_waited_for() -> None:
    """Its last line was cut off, or lost: the others' last iteration is judged, and the job ends with it."""
    step = monitor()
    told(step, [all_pivots(0), summary(1, {A: 100}, last=True)])
    told(step, [summary(1, {B: 100, C: 100})])
    step = restarted(step, {})
    found = rows(told(step, [summary(2, {B: 100, C: 100}, last=True)]))
    assert [(row["iteration"], row["last"]) for row in found] == [(1, None)] * 3 + [(2, True)] * 2
    assert step.changed_states() == {"j": None}


SECOND = 1_000_000_000

DIED = {
    "before it told of the last iteration": (1, [summary(1, {A: 100, B: 100}, last=True)]),
    "two iterations before": (2, [summary(1, {A: 100, B: 100}), summary(2, {A: 100, B: 100}, last=True)]),
    "before it told that it was the last": (1, [summary(1, {A: 100, B: 100}, last=True), summary(1, {C: 100})]),
}


@pytest.mark.parametrize(("newest", "end"), DIED.values(), ids=list(DIED))
def test_a_pivot_whose_host_died_at_the_end_of_the_job_is_not_waited_for_for_ever(
    newest: int, end: list[Message]
) -> None:
    step, heard_ns = monitor(), 5 * SECOND
    told(step, [all_pivots(0)])
    before = rows(told(step, [replace(message, timestamp_ns=heard_ns) for message in end]))
    assert not any(row["last"] for row in before)
    step = restarted(step, {})
    deadline_ns = step.next_deadline_ns()
    assert deadline_ns == heard_ns + 600 * SECOND
    assert not list(step.tick(deadline_ns - 1))
    [record] = step.tick(deadline_ns)
    assert decode(record, ITERATION_SUMMARIES).num_rows == 0
    found = rows(told(step, [replace(record, timestamp_ns=deadline_ns)]))
    assert {row["iteration"] for row in found if row["last"]} == {newest}
    assert step.next_deadline_ns() is None
    assert step.changed_states() == {"j": None}
    assert told(step, [replace(record, timestamp_ns=deadline_ns)]) == []


def test_a_job_of_which_something_came_meanwhile_goes_on() -> None:
    step = monitor()
    told(step, [all_pivots(0), replace(summary(1, {A: 100, B: 100}, last=True), timestamp_ns=5 * SECOND)])
    deadline_ns = step.next_deadline_ns() or 0
    [record] = step.tick(deadline_ns)
    told(step, [replace(summary(1, {7: 100}), timestamp_ns=9 * SECOND)])
    assert told(step, [replace(record, timestamp_ns=deadline_ns)]) == []
    assert step.next_deadline_ns() == deadline_ns + 4 * SECOND


@pytest.mark.parametrize(
    "meanwhile",
    [
        [summary(1, {A: 100, B: 100})],
        [
            summary(1, {A: 100}, last=True),
            summary(1, {B: 100, C: 100}),
            summary(2, {B: 100, C: 100}),
            summary(3, {B: 1}),
        ],
    ],
    ids=["a pivot is late", "one hangs, another's log ended long ago"],
)
def test_a_job_that_runs_is_waited_for(meanwhile: list[Message]) -> None:
    step = monitor()
    told(step, [all_pivots(0), *meanwhile])
    assert step.next_deadline_ns() is None
    assert not list(step.tick(10**19))


def test_of_a_job_that_is_not_known_any_more_nothing_is_given_up() -> None:
    jobs = {"j": job()}
    step = Monitor(jobs, SETTINGS, pivot_count=3)
    told(step, [all_pivots(0), summary(1, {A: 100, B: 100}, last=True)])
    assert step.next_deadline_ns() is not None
    del jobs["j"]
    assert step.next_deadline_ns() is None
    assert not list(step.tick(10**19))


def test_in_process_a_job_ends_whose_pivots_host_died() -> None:
    seen: list[Message] = []
    messages = [replace(m, timestamp_ns=5 * SECOND) for m in (all_pivots(0), summary(1, {A: 100, B: 100}, last=True))]
    in_process.run([in_process.Recorded(messages)], [monitor()], on_message=seen.append)
    found = rows(message for message in seen if message.topic == ITERATIONS.name)
    assert [(row["iteration"], row["last"]) for row in found] == [(0, None)] * 3 + [(1, True)] * 2


def test_that_a_job_was_given_up_once_does_not_hurry_it_later() -> None:
    """As where another number of pivots is waited for in a replay."""
    step = monitor()
    told(step, [replace(all_pivots(0), timestamp_ns=SECOND)])
    record = giving_up.record(ITERATION_SUMMARIES, "j", 601 * SECOND)
    assert told(step, [replace(record, timestamp_ns=601 * SECOND), summary(1, {A: 100})]) == []


def test_the_first_iteration_of_a_job_that_goes_on_is_told_after_a_restart_too() -> None:
    step = monitor()
    found = rows(told(step, [all_pivots(50_000)]))
    step = restarted(step, {})
    found += rows(told(step, [all_pivots(50_001)]))
    assert [row["job_from"] for row in found] == [50_000] * 6


def test_a_state_of_another_form_is_refused() -> None:
    step = monitor()
    told(step, [all_pivots(0)])
    [state] = step.changed_states().values()
    assert state is not None
    with pytest.raises(WrongSchema, match="'monitor/1', this version reads 'monitor/10'"):
        monitor().restore({"j": replace(state, format="monitor/1")})


@pytest.mark.parametrize("saved", [b"", b"\xff", b"{}", b"[" * 100_000, b"1" * 5000, b'{"pending": {"a": {}}}'])
def test_a_damaged_state_is_refused(saved: bytes) -> None:
    step = monitor()
    told(step, [all_pivots(0)])
    [state] = step.changed_states().values()
    assert state is not None
    with pytest.raises(UndecodableMessage, match="a saved state of the form 'monitor/10' cannot be read"):
        monitor().restore({"j": replace(state, state=saved)})


def restarted(step: Monitor, states: dict[str, SavedState]) -> Monitor:
    states |= {name: state for name, state in step.changed_states().items() if state is not None}
    fresh = monitor(job(), job("k"))
    fresh.restore(states)
    return fresh


def test_no_cut_of_an_eventful_job_is_noticed() -> None:
    """A pivot is gone, comes late, is back; iterations are irregular and unknown."""
    messages = [all_pivots(i) for i in range(READY)]
    messages += [summary(4, {A: 300, B: 300}), summary(5, {A: 300, B: None}), summary(6, {A: 100, B: 100})]
    messages += [summary(7, {A: 300, B: 300}), summary(7, {C: 100}), summary(8, {A: 100, B: 100}), summary(8, {C: 90})]
    messages += [summary(10, {C: 90}), summary(9, {A: 100, B: 100, C: 100}), summary(10, {A: 100})]
    messages += [all_pivots(11), all_pivots(12)]
    messages = [replace(message, offset=offset) for offset, message in enumerate(messages)]
    expected = rows(told(monitor(), messages))
    assert iterations(expected) == list(range(13))
    for cut in range(len(messages)):
        first = monitor()
        found = [out for message in messages[:cut] for out in first.process(message)]
        second = restarted(first, {})
        found += [out for message in messages[cut:] for out in second.process(message)]
        assert rows(found) == expected


reports = st.tuples(
    st.sampled_from(["j", "k"]),
    st.dictionaries(st.sampled_from(PIVOTS), st.none() | st.sampled_from([90, 100, 110, 200, 300]), min_size=1),
    st.integers(0, 2),
)


@given(st.lists(reports, max_size=40), st.sets(st.integers(0, 40), max_size=5))
def test_a_step_that_is_restarted_anywhere_tells_what_one_that_never_was_does(
    drawn: list[tuple[str, dict[int, int | None], int]], cuts: set[int]
) -> None:
    at = {"j": 0, "k": 0}
    messages = []
    for offset, (name, durations, ahead) in enumerate(drawn):
        at[name] += ahead
        messages.append(replace(summary(at[name], durations, name=name), offset=offset))
    undisturbed = monitor(job(), job("k"))
    expected = [decode(out, ITERATIONS).to_pylist() for m in messages for out in undisturbed.process(m)]
    step, states, found = monitor(job(), job("k")), dict[str, SavedState](), []
    for offset, message in enumerate(messages):
        if offset in cuts:
            step = restarted(step, states)
        found += [decode(out, ITERATIONS).to_pylist() for out in step.process(message)]
    assert found == expected


def with_pauses(*rests: Mapping[int, int]) -> list[Row]:
    """What is told of regular iterations of 100 and then of one for each of ``rests``: 100, and what pivots rest."""
    usual = [summary(i, dict.fromkeys(PIVOTS, 105), pauses=dict.fromkeys(PIVOTS, 5)) for i in range(READY)]
    later = [
        summary(READY + i, {pivot: 100 + rest[pivot] for pivot in rest}, pauses=rest) for i, rest in enumerate(rests)
    ]
    return [row for row in judged([*usual, *later]) if row["iteration"] >= READY and row["pivot"] == A]


def test_what_all_pivots_pause_beyond_the_usual_is_not_judged() -> None:
    everybody = {A: 95, B: 125, C: 85}
    paused, following = with_pauses(everybody, dict.fromkeys(PIVOTS, 5))
    assert (paused["irregular"], paused["pause_ns"], paused["pause_before_ns"]) == (False, 80, None)
    assert (following["irregular"], following["pause_ns"], following["pause_before_ns"]) == (False, None, 80)


def test_what_one_of_them_pauses_is() -> None:
    [row] = with_pauses({A: 95, B: 95, C: 5})
    assert (row["irregular"], row["pause_ns"]) == (True, None)


def test_a_pause_that_not_all_tell_of_is() -> None:
    [row] = [
        row
        for row in judged(
            [
                *(summary(i, dict.fromkeys(PIVOTS, 105), pauses=dict.fromkeys(PIVOTS, 5)) for i in range(READY)),
                summary(READY, dict.fromkeys(PIVOTS, 195), pauses={A: 95, B: 95}),
            ]
        )
        if row["iteration"] == READY and row["pivot"] == A
    ]
    assert (row["irregular"], row["pause_ns"]) == (True, None)
