"""Segmenting what hosts tell: in whatever order, late, or not at all."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from diagnosis.traffic.host import StepRules
from producers.simulation.nic import NicScenario, simulate_nics
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from streams.segment import _GONE_NS, Segment
from tests.streams import traffic_cases

RUN = traffic_cases.runs()[0]
HOST = "h1"
TOLD = [message for message in RUN.messages() if message.headers["host"] == HOST]
STEPS = StepRules(step_ns=20_000_000)


def told(messages: Iterable[Message], step: Segment | None = None) -> list[dict[str, Any]]:
    """Rows of analysis.traffic_metrics that come of messages."""
    step = step or Segment({RUN.job.job: RUN.job}, STEPS)
    outputs = [output for message in messages for output in step.process(message)]
    metrics = [output for output in outputs if output.topic == catalogue.TRAFFIC_METRICS.name]
    return [row for output in metrics for row in decode(output, catalogue.TRAFFIC_METRICS).to_pylist()]


def of(topic: str, messages: Sequence[Message] = TOLD) -> list[Message]:
    return [message for message in messages if message.topic == topic]


def test_every_operator_is_told_once() -> None:
    rows = told(TOLD)
    assert {row["state"] for row in rows} == {"complete"}
    assert len({row["seq"] for row in rows}) == len(rows) == RUN.scenario.iterations


def test_how_inputs_come_in_between_each_other_does_not_matter() -> None:
    topics = [topic.name for topic in Segment.reads]
    in_turn = told(TOLD)
    assert told([message for topic in topics for message in of(topic)]) == in_turn
    assert told([message for topic in reversed(topics) for message in of(topic)]) == in_turn


def test_a_poll_counts_once_all_of_its_parts_have_come() -> None:
    """Everything else is known by then, so that nothing but the last part is waited for."""
    known = [message for topic in (catalogue.OP_CALLS, catalogue.QUEUE_PAIRS) for message in of(topic.name)]
    parts = [part for message in of(catalogue.NIC_EPOCHS.name) for part in halves(message)]
    assert told([*known, *parts]) == told(TOLD)


def halves(message: Message) -> list[Message]:
    """The same polls in two records, half of the queue pairs in each."""
    rows = decode(message, catalogue.NIC_EPOCHS).to_pylist()

    def half(part: int) -> Message:
        mine = []
        for row in rows:
            queue_pairs = sorted(set(row["qpn"]))
            own = set(queue_pairs[: len(queue_pairs) // 2] if part == 0 else queue_pairs[len(queue_pairs) // 2 :])
            kept = [at for at, qpn in enumerate(row["qpn"]) if qpn in own]
            columns = {name: [row[name][at] for at in kept] for name in ("qpn", "epoch", "units")}
            mine.append({**row, **columns, "part": part, "parts": 2})
        batch = catalogue.NIC_EPOCHS.from_rows(mine)
        headers = {"host": message.headers["host"]}
        return encode(
            catalogue.NIC_EPOCHS,
            batch,
            job=message.job,
            key=message.key,
            watermark_ns=message.watermark_ns,
            headers=headers,
        )

    return [half(0), half(1)]


def test_what_comes_late_changes_nothing() -> None:
    step = Segment({RUN.job.job: RUN.job}, STEPS)
    assert told(TOLD, step)
    assert told(TOLD, step) == []


def test_a_host_that_has_told_more_by_the_time_its_job_is_known_to_have_ended_is_over() -> None:
    """Else it would hold offsets for as long as others tell."""
    jobs = {RUN.job.job: replace(RUN.job, ended_ns=None)}
    step = Segment(jobs, STEPS)
    assert told(TOLD[:-1], step)
    jobs[RUN.job.job] = replace(RUN.job, ended_ns=(RUN.job.ended_ns or 0) - 200_000_000)
    assert told(TOLD[-1:], step) == []
    assert not step.holds()
    assert step.changed_states() == {f"{RUN.job.job}/{HOST}": None}


def test_what_a_lost_poll_would_have_told_is_unknown() -> None:
    first = of(catalogue.NIC_EPOCHS.name)[0]
    rows = told(message for message in TOLD if message is not first)
    assert {row["state"] for row in rows} <= {"complete", "unknown"}
    assert all(row["coverage"] < 1 for row in rows if row["state"] == "unknown")


def test_without_calls_nothing_is_told() -> None:
    assert told(message for message in TOLD if message.topic != catalogue.OP_CALLS.name) == []


def test_a_record_that_does_not_say_whose_it_is_is_refused() -> None:
    message = TOLD[0]
    step = Segment({RUN.job.job: RUN.job}, STEPS)
    with pytest.raises(WrongSchema, match="expected job/host"):
        list(step.process(Message(message.topic, RUN.job.job, message.value, message.headers)))


def test_rows_tell_what_their_communicator_serves() -> None:
    """By the calls of each host's own ranks; a third of the rows are told before it is known."""
    run = simulate_nics(NicScenario(30_001, tp=2, dp=2, pp=2, iterations=12, shrink=64, poll_s=0.2, forward_s=0.005))
    step = Segment({run.job.job: run.job}, StepRules(step_ns=100_000_000))
    outputs = [output for message in run.messages() for output in step.process(message)]
    rows = [row for output in outputs for row in decode(output, catalogue.TOPICS[output.topic]).to_pylist()]
    served = [(row["op"], row["parallelism"]) for row in rows if row["parallelism"] is not None]
    assert len(served) * 3 > 2 * len(rows)
    assert set(served) == {
        *((op, "dp") for op in ("all_gather", "all_reduce", "reduce_scatter")),
        *((op, "pp") for op in ("custom", "send")),
    }


def held_back(messages: Iterable[Message]) -> set[str]:
    """Inputs of which a restart needs something again once the state is saved with each message; the job goes on."""
    step = Segment({RUN.job.job: replace(RUN.job, ended_ns=None)}, STEPS, save_every_ns=0)
    for offset, message in enumerate(messages):
        list(step.process(replace(message, offset=offset)))
    return {topic.name for topic in step.safe_offsets()}


def test_what_the_saved_state_holds_is_not_read_again() -> None:
    """Queue pairs are told of once: jobs that begin and end meanwhile do not wait for others."""
    assert held_back(TOLD) == {catalogue.NIC_EPOCHS.name, catalogue.OP_CALLS.name}


def test_records_without_calls_are_not_read_again() -> None:
    nothing = [
        replace(message, value=encode(catalogue.OP_CALLS, catalogue.OP_CALLS.from_rows([]), job=message.job).value)
        if message.topic == catalogue.OP_CALLS.name
        else message
        for message in TOLD
    ]
    assert held_back(nothing) == {catalogue.NIC_EPOCHS.name}


def slowly(messages: Iterable[Message]) -> list[Message]:
    """Messages each a fifth of the time later that makes a host forgotten."""
    return [
        replace(message, timestamp_ns=message.timestamp_ns + number * _GONE_NS // 5)
        for number, message in enumerate(messages)
    ]


@pytest.mark.parametrize(
    "silent_in",
    [
        (catalogue.NIC_EPOCHS.name,),
        (catalogue.OP_CALLS.name,),
        (catalogue.NIC_EPOCHS.name, catalogue.OP_CALLS.name, catalogue.QUEUE_PAIRS.name),
    ],
)
@pytest.mark.parametrize("restored", [False, True])
def test_who_is_not_heard_of_in_an_input_is_let_go(silent_in: Sequence[str], restored: bool) -> None:
    """Of epochs or calls alone nothing is told. Of a job that goes on there may be no word at all after a restart."""
    job = replace(RUN.job, ended_ns=None)
    messages = [replace(message, offset=offset) for offset, message in enumerate(RUN.messages())]
    messages = [message for message in messages if message.headers["host"] in {"h0", HOST}]
    half = len(messages) // 2 if restored else 0
    step, states = Segment({job.job: job}, STEPS, save_every_ns=0), dict[str, SavedState]()
    for message in messages[:half]:
        list(step.process(message))
        states |= {key: state for key, state in step.changed_states().items() if state is not None}
    if restored:
        step = Segment({job.job: job}, STEPS, save_every_ns=0)
        step.restore(states)
    let_go = set[str]()
    told_by_then = [
        message for message in messages[half:] if message.headers["host"] != HOST or message.topic not in silent_in
    ]
    of_other = [message for message in messages if message.headers["host"] != HOST]
    for message in slowly((*told_by_then, *of_other, *of_other, *of_other)):
        list(step.process(message))
        let_go |= {key for key, state in step.changed_states().items() if state is None}
    everything = len(silent_in) == len(Segment.reads)
    assert let_go == (set() if everything and not restored else {f"{job.job}/{HOST}"})


@pytest.mark.parametrize("ahead", [catalogue.NIC_EPOCHS.name, catalogue.OP_CALLS.name])
def test_an_input_that_is_read_far_ahead_of_the_other_loses_nothing(ahead: str) -> None:
    """Another job goes on for long in it before the other input is read at all."""
    job = replace(RUN.job, ended_ns=None)
    later = replace(job, job="later")
    messages = list(RUN.messages())
    end_ns = max(message.timestamp_ns for message in messages) + 3 * _GONE_NS
    of_later = [
        replace(
            message,
            key=message.key.replace(job.job, later.job),
            headers={**message.headers, "job": later.job},
            timestamp_ns=end_ns,
        )
        for message in messages
    ]
    both = {job.job: job, "later": later}
    first = [message for message in (*messages, *of_later) if message.topic != ahead]
    read = [message for message in (*messages, *of_later) if message.topic == ahead]
    in_turn = told([*messages, *of_later], Segment(both, STEPS))
    assert len(in_turn) == 2 * len(told(messages, Segment(both, STEPS)))
    assert Counter(map(str, told([*read, *first], Segment(both, STEPS, save_every_ns=0)))) == Counter(map(str, in_turn))


def test_what_is_polled_of_none_is_not_held_for_ever() -> None:
    """No NIC is polled at all: after an hour of calls nobody is waited for any more."""
    step = Segment({RUN.job.job: replace(RUN.job, ended_ns=None)}, STEPS, save_every_ns=0)
    calls = of(catalogue.OP_CALLS.name)
    for number, message in enumerate([calls[0]] * 20):
        later_ns = number * _GONE_NS // 2
        list(step.process(replace(message, offset=number, timestamp_ns=message.timestamp_ns + later_ns)))
    assert step.safe_offsets()[catalogue.OP_CALLS] > 0
