"""The runner without a broker."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from schemas import catalogue
from schemas.errors import TooMuchPoison
from schemas.message import Message, decode
from schemas.topic import Topic
from streams.control_view import Jobs
from streams.in_process import run
from tests.streams.examples import TOPICS, UNREACHABLE, Answerer, Asker, LineSink, Sums, job_record, number, value_of


class Recorded:
    """A source that brings its messages in portions."""

    def __init__(self, name: str, *portions: list[Message]) -> None:
        self.name = name
        self._portions = list(portions)

    def advance(self) -> Iterable[Message] | None:
        return self._portions.pop(0) if self._portions else None


def results(messages: Iterable[Message], topic: Topic) -> list[tuple[str, int]]:
    return [(message.job, value_of(message, topic)) for message in messages if message.topic == topic.name]


def test_messages_are_stamped_and_numbered() -> None:
    seen: list[Message] = []
    values = [number(TOPICS.numbers, "a", value) for value in (1, 2)]
    run([Recorded("agent", values)], [Sums()], on_message=seen.append)
    numbers = [message for message in seen if message.topic == TOPICS.numbers.name]
    sums = [message for message in seen if message.topic == TOPICS.sums.name]
    assert [message.offset for message in numbers] == [0, 1]
    assert [message.headers["seq"] for message in numbers] == ["0", "1"]
    assert {message.headers["producer"] for message in numbers} == {"agent/in-process"}
    assert {message.headers["producer"] for message in sums} == {"sums/in-process"}
    assert [message.headers["seq"] for message in sums] == ["0", "1"]
    assert all(message.headers["produced_ns"] == "1" for message in seen)


def test_an_output_without_a_time_takes_that_of_its_cause() -> None:
    class Forwarder(Sums):
        def process(self, message: Message) -> Iterable[Message]:
            yield replace(number(TOPICS.sums, message.job, 7), timestamp_ns=0)

    seen: list[Message] = []
    run(
        [Recorded("agent", [replace(number(TOPICS.numbers, "a", 1), timestamp_ns=42)])],
        [Forwarder()],
        on_message=seen.append,
    )
    assert [message.timestamp_ns for message in seen] == [42, 42]


def test_sources_take_turns_and_what_one_brings_is_worked_off_first() -> None:
    seen: list[Message] = []
    one = Recorded("one", [number(TOPICS.numbers, "a", 1)], [], [number(TOPICS.numbers, "a", 2)])
    two = Recorded("two", [number(TOPICS.numbers, "b", 3)])
    run([one, two], [Sums()], on_message=seen.append)
    assert [(message.topic, message.job) for message in seen] == [
        (TOPICS.numbers.name, "a"),
        (TOPICS.sums.name, "a"),
        (TOPICS.numbers.name, "b"),
        (TOPICS.sums.name, "b"),
        (TOPICS.numbers.name, "a"),
        (TOPICS.sums.name, "a"),
    ]


def test_deadlines_are_kept_when_nothing_else_can_happen() -> None:
    seen: list[Message] = []
    values = [number(TOPICS.numbers, "a", value) for value in (2, 3, 5)]
    run([Recorded("agent", values)], [Asker(), Answerer()], on_message=seen.append)
    answered = [("a", 20)]
    assert results(seen, TOPICS.results) == [*answered, ("a", UNREACHABLE), ("a", UNREACHABLE)]


def test_a_deadline_never_passes_while_a_source_may_still_bring_the_answer() -> None:
    seen: list[Message] = []
    late = number(TOPICS.answers, "a", 30, request="a/0")
    run([Recorded("agent", [number(TOPICS.numbers, "a", 3)], [], [], [late])], [Asker()], on_message=seen.append)
    assert results(seen, TOPICS.results) == [("a", 30)]


def test_who_waits_and_does_nothing_at_the_deadline_is_an_error_and_no_endless_loop() -> None:
    class Mute(Asker):
        def tick(self, now_ns: int) -> Iterable[Message]:
            return ()

    with pytest.raises(RuntimeError, match="asker waits until"):
        run([Recorded("agent", [number(TOPICS.numbers, "a", 3)])], [Mute()])


def test_dead_letters_are_messages_like_the_others() -> None:
    seen: list[Message] = []
    bad = replace(number(TOPICS.numbers, "a", 1), value=b"not Arrow")
    run([Recorded("agent", [bad, number(TOPICS.numbers, "a", 5)])], [Sums()], on_message=seen.append)
    [letter] = [message for message in seen if message.topic == catalogue.DEAD_LETTERS.name]
    [row] = decode(letter, catalogue.DEAD_LETTERS).to_pylist()
    assert (row["topic"], row["offset"], row["value"]) == (TOPICS.numbers.name, 0, b"not Arrow")
    assert results(seen, TOPICS.sums) == [("a", 5)]


def test_too_much_poison_stops_the_run() -> None:
    bad = [replace(number(TOPICS.numbers, "a", 1), value=b"not Arrow")] * 60
    with pytest.raises(TooMuchPoison, match="sums: 50 bad messages in a row"):
        run([Recorded("agent", bad)], [Sums()])


def test_other_errors_are_not_swallowed(tmp_path: Path) -> None:
    broken = Sums(mended=tmp_path / "mended")
    with pytest.raises(RuntimeError, match="broken"):
        run([Recorded("agent", [number(TOPICS.numbers, "a", 13)])], [broken])


def test_an_undeclared_output_is_an_error() -> None:
    class Sneaky(Sums):
        def process(self, message: Message) -> Iterable[Message]:
            yield number(TOPICS.results, message.job, 1)

    with pytest.raises(ValueError, match=r"sums published to example\.results"):
        run([Recorded("agent", [number(TOPICS.numbers, "a", 1)])], [Sneaky()])


def test_the_view_of_jobs_is_fed_before_the_others_ask() -> None:
    seen: list[Message] = []
    jobs = Jobs()
    messages = [number(TOPICS.numbers, "a", 1), job_record("a"), number(TOPICS.numbers, "a", 2)]
    run([Recorded("agent", messages)], [jobs, Sums(jobs=jobs)], on_message=seen.append)
    assert list(jobs) == ["a"]
    letters = [message for message in seen if message.topic == catalogue.DEAD_LETTERS.name]
    [row] = [row for letter in letters for row in decode(letter, catalogue.DEAD_LETTERS).to_pylist()]
    assert row["error"] == "UnknownJob"
    assert results(seen, TOPICS.sums) == [("a", 2)]


def test_sinks_are_flushed_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    counts: list[int] = []

    def count(_: Message) -> None:
        counts.append(len(lines.read_text().splitlines()) if lines.exists() else 0)

    portions = [[number(TOPICS.numbers, "a", value)] for value in range(5)]
    run([Recorded("agent", *portions)], [LineSink(lines)], on_message=count, flush_every=2)
    assert counts == [0, 0, 2, 2, 4]
    assert lines.read_text().splitlines() == [f"a {value}" for value in range(5)]
