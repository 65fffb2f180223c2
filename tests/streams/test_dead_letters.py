"""What happens to a bad message."""

import os
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue
from schemas.errors import ImpossibleValue, TooMuchPoison, UndecodableMessage, WrongSchema
from schemas.message import Message, decode
from schemas.processor import SavedState
from streams.checkpoints import Checkpoints, counted_record
from streams.dead_letters import DeadLetters, dead_letter
from streams.redelivery import letters_of
from streams.step import Step
from tests.streams.examples import TOPICS, Sums, number, value_of

texts = st.text(max_size=20)
messages = st.builds(
    Message,
    topic=st.text(min_size=1, max_size=20),
    key=texts,
    value=st.none() | st.binary(max_size=50),
    headers=st.dictionaries(texts, texts, max_size=4),
    partition=st.integers(0, 1000),
    offset=st.integers(0, 2**62),
    timestamp_ns=st.integers(0, 2**62),
)


def kept(letter: Message) -> Message:
    """The message in a letter of one."""
    [one] = letters_of([letter], pytest.fail)
    return one.message


@given(message=messages, reason=texts)
def test_a_letter_keeps_the_message_whole(message: Message, reason: str) -> None:
    letter = dead_letter(message, ImpossibleValue(reason), "monitor")
    assert kept(letter) == message
    [row] = decode(letter, catalogue.DEAD_LETTERS).to_pylist()
    assert (row["error"], row["reason"], row["processor"]) == ("ImpossibleValue", reason, "monitor")
    assert letter.key == message.topic


def test_a_tombstone_comes_back_as_a_tombstone() -> None:
    message = Message("numbers", "a", None, {"job": "a"})
    assert kept(dead_letter(message, UndecodableMessage("a tombstone"), "monitor")) == message


def test_a_message_without_a_job_has_a_letter_too() -> None:
    letter = dead_letter(Message("numbers", "", b"?"), UndecodableMessage("no"), "monitor")
    assert letter.job == "unknown"
    assert decode(letter, catalogue.DEAD_LETTERS).num_rows == 1


def test_what_is_too_large_for_a_letter_is_left_out_and_said_so() -> None:
    message = Message("numbers", "a", os.urandom(9 << 20), {"job": "a"})
    [row] = decode(dead_letter(message, UndecodableMessage("no"), "monitor"), catalogue.DEAD_LETTERS).to_pylist()
    assert row["value"] == b""
    assert "9437184 bytes exceed" in row["reason"]


def test_endless_texts_are_cut() -> None:
    message = Message("numbers", "k" * 5_000_000, b"?", {"job": "j" * 5_000_000, "schema": "s" * 5_000_000})
    [row] = decode(dead_letter(message, UndecodableMessage("r" * 5_000_000), "m"), catalogue.DEAD_LETTERS).to_pylist()
    assert all(len(row[name]) < 5000 for name in ("key", "schema", "reason"))


@given(bad=st.lists(st.booleans(), max_size=40), most=st.integers(1, 5))
def test_only_bad_messages_in_a_row_stop_the_worker(bad: list[bool], most: int) -> None:
    letters, in_a_row = DeadLetters("monitor", most_in_a_row=most), 0
    message = Message("numbers", "a", b"?", {"job": "a"}, partition=3, offset=17)
    for is_bad in bad:
        in_a_row = in_a_row + 1 if is_bad else 0
        if in_a_row == most:
            with pytest.raises(TooMuchPoison, match="numbers partition 3 offset 17: UndecodableMessage: no"):
                letters.bury(message, UndecodableMessage("no"))
            return
        if is_bad:
            letters.bury(message, UndecodableMessage("no"))
        else:
            letters.good(message)
    assert letters.count == sum(bad)


def at(offset: int, topic: str = "numbers") -> Message:
    return Message(topic, "a", b"?", {"job": "a"}, partition=3, offset=offset)


class Lives:
    """One partition number, whose worker is started again and again from what was saved."""

    def __init__(self, most: int) -> None:
        self.checkpoints = Checkpoints("monitor")
        self._most = most
        self._following: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        saved = self.checkpoints.bad_in_a_row(3)
        self._letters = DeadLetters("monitor", most_in_a_row=self._most, saved=saved)

    def take(self, message: Message, *, bad: bool) -> None:
        self._letters.meet(message)
        if bad:
            self._letters.bury(message, UndecodableMessage("no"))
        else:
            self._letters.good(message)
        self._following[message.topic] = message.offset + 1

    def save(self) -> bool:
        changed = self._letters.changed(self._following)
        for topic, saved in changed.items():
            self.checkpoints.take(counted_record("monitor", topic, 3, saved))
        return bool(changed)


@given(
    lives=st.lists(st.lists(st.booleans(), max_size=6), max_size=8),
    again=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    most=st.integers(2, 6),
)
def test_bad_messages_in_a_row_are_counted_over_restarts(lives: list[list[bool]], again: list[int], most: int) -> None:
    """However little each life takes, and though the last messages before a restart come again after it."""
    worker, taken = Lives(most), list[bool]()
    for life, repeated in zip(lives, again, strict=False):
        worker.begin()
        for offset in range(max(len(taken) - repeated, 0), len(taken)):
            worker.take(at(offset), bad=taken[offset])
        for bad in life:
            taken.append(bad)
            if taken[-most:] == [True] * most:
                with pytest.raises(TooMuchPoison):
                    worker.take(at(len(taken) - 1), bad=True)
                return
            worker.take(at(len(taken) - 1), bad=bad)
        worker.save()


def test_a_worker_that_stopped_stops_at_the_same_message_until_it_is_passed_by() -> None:
    worker = Lives(3)
    for offset in (4, 5):
        worker.take(at(offset), bad=True)
        worker.save()
    for _ in range(2):
        worker.begin()
        with pytest.raises(TooMuchPoison, match="3 bad messages in a row, the last at numbers partition 3 offset 6"):
            worker.take(at(6), bad=True)
    worker.begin()
    worker.take(at(7), bad=True)
    worker.take(at(8), bad=True)
    with pytest.raises(TooMuchPoison):
        worker.take(at(9), bad=True)


def test_good_messages_of_another_input_do_not_hide_a_poisoned_one() -> None:
    """Nor do its bad ones count for another, over restarts as within one life."""
    worker = Lives(4)
    for offset in range(3):
        worker.begin()
        worker.take(at(offset), bad=True)
        worker.take(at(offset + 7, "more_numbers"), bad=offset == 1)
        assert worker.save()
    saved = worker.checkpoints.bad_in_a_row(3)
    assert {topic: (state.state, state.offsets) for topic, state in saved.items()} == {
        "numbers": (b"3", {"numbers": 3}),
        "more_numbers": (b"0", {"more_numbers": 10}),
    }
    worker.begin()
    worker.take(at(10, "more_numbers"), bad=True)
    with pytest.raises(TooMuchPoison, match="4 bad messages in a row, the last at numbers partition 3 offset 3"):
        worker.take(at(3), bad=True)


def test_what_builds_saved_that_counted_over_all_inputs_is_passed_over() -> None:
    worker = Lives(3)
    over_all = SavedState({"numbers": 4, "more_numbers": 7}, "bad_in_a_row/1", b"2")
    worker.checkpoints.take(replace(counted_record("monitor", "numbers", 3, over_all), key="monitor#3"))
    assert worker.checkpoints.bad_in_a_row(3) == {}
    assert worker.checkpoints.of(3) == {}


class Surprised(Sums):
    """Fails on threes, with which nothing is wrong."""

    def process(self, message: Message) -> Iterable[Message]:
        yield from super().process(message)
        if value_of(message, TOPICS.numbers) == 3:
            raise ZeroDivisionError("division by zero")


def test_what_a_processor_fails_on_is_buried_and_the_stream_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    step = Step(Surprised())
    told = [step.take(replace(number(TOPICS.numbers, "a", value), offset=value)) for value in (1, 2, 3, 4)]
    [letter] = [message for messages in told for message in messages if message.topic == catalogue.DEAD_LETTERS.name]
    [row] = decode(letter, catalogue.DEAD_LETTERS).to_pylist()
    assert (row["error"], row["offset"]) == ("Unprocessable", 3)
    assert row["reason"] == "sums failed on it: ZeroDivisionError: division by zero"
    assert "Traceback" in caplog.text
    assert step.offsets() == {TOPICS.numbers.name: 5}


def test_what_was_made_of_a_message_before_its_processor_failed_is_published() -> None:
    step = Step(Surprised())
    told = [step.take(replace(number(TOPICS.numbers, "a", value), offset=value)) for value in (1, 3, 4)]
    assert [message.topic for message in told[1]] == [TOPICS.sums.name, catalogue.DEAD_LETTERS.name]
    sums = [value_of(message, TOPICS.sums) for messages in told for message in messages[:1]]
    assert sums == [1, 4, 8], "they tell how far the state came"


def test_what_a_failing_processor_publishes_must_be_declared_too() -> None:
    processor = Surprised()
    step = Step(processor)
    processor.writes = (TOPICS.results,)  # where it publishes now
    with pytest.raises(ValueError, match="which it does not declare"):
        step.take(replace(number(TOPICS.numbers, "a", 3), offset=0))


def test_a_processor_that_fails_on_everything_stops() -> None:
    step = Step(Surprised(), most_in_a_row=2)
    step.take(replace(number(TOPICS.numbers, "a", 3), offset=0))
    with pytest.raises(TooMuchPoison, match="Unprocessable: sums failed on it"):
        step.take(replace(number(TOPICS.numbers, "a", 3), offset=1))


def test_partitions_and_topics_with_like_names_are_told_apart() -> None:
    worker = Lives(3)
    for partition, topic in ((3, "numbers"), (31, "numbers"), (3, "numbers.more")):
        saved = SavedState({topic: 1}, "bad_in_a_row/1", str(partition).encode())
        worker.checkpoints.take(counted_record("monitor", topic, partition, saved))
    assert {topic: state.state for topic, state in worker.checkpoints.bad_in_a_row(3).items()} == {
        "numbers": b"3",
        "numbers.more": b"3",
    }


def test_a_stream_without_bad_messages_saves_nothing() -> None:
    worker = Lives(3)
    worker.take(at(0), bad=False)
    assert not worker.save()
    worker.take(at(1), bad=True)
    assert worker.save()
    assert not worker.save()
    worker.take(at(2), bad=False)
    assert worker.save()
    worker.take(at(3), bad=False)
    assert not worker.save()


@pytest.mark.parametrize(
    ("saved", "error"),
    [
        (SavedState({}, "bad_in_a_row/1", b"-1"), UndecodableMessage),
        (SavedState({}, "bad_in_a_row/1", b"many"), UndecodableMessage),
        (SavedState({}, "bad_in_a_row/2", b"1"), WrongSchema),
    ],
)
def test_a_count_that_cannot_be_read_is_refused(saved: SavedState, error: type[Exception]) -> None:
    with pytest.raises(error):
        DeadLetters("monitor", saved={"numbers": saved})


def test_letters_tell_their_time_in_the_messages_time() -> None:
    message = replace(Message("numbers", "a", b"?", {"job": "a"}), timestamp_ns=42)
    [row] = decode(dead_letter(message, UndecodableMessage("no"), "m"), catalogue.DEAD_LETTERS).to_pylist()
    assert row["at_ns"] == 42
