"""Saved states: which record counts, and what a step may commit."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BusError, ImpossibleValue
from schemas.message import Message
from schemas.processor import SavedState
from schemas.topic import Topic
from streams.checkpoints import Checkpoints, skipped_below, state_record, tombstone
from streams.step import Step
from tests.streams.examples import END, FATAL, TOPICS, Sums, number

names = st.text("abc/", min_size=1, max_size=4)
states = st.builds(
    SavedState,
    offsets=st.dictionaries(names, st.integers(0, 2**40), max_size=3),
    format=names,
    state=st.binary(max_size=30),
)


def restored(processor: str, records: Iterable[Message], partition: int = 0) -> dict[str, SavedState]:
    checkpoints = Checkpoints(processor)
    for record in records:
        checkpoints.take(record)
    return checkpoints.of(partition)


@given(job=names, partition=st.integers(0, 100), state=states)
def test_a_state_comes_back_as_it_was(job: str, partition: int, state: SavedState) -> None:
    record = state_record("monitor", job, partition, state)
    assert restored("monitor", [record], partition) == {job: state}
    assert restored("monitor", [record], partition + 1) == {}
    assert restored("search", [record], partition) == {}


@given(offsets=st.lists(st.integers(0, 50), min_size=1, max_size=10))
def test_the_highest_offsets_count_and_not_the_last_record(offsets: list[int]) -> None:
    records = [state_record("m", "a", 0, SavedState({"in": offset}, "f", str(offset).encode())) for offset in offsets]
    [(job, state)] = restored("m", records).items()
    assert (job, state.offsets) == ("a", {"in": max(offsets)})


def test_of_equal_offsets_the_later_record_counts() -> None:
    records = [state_record("m", "a", 0, SavedState({"in": 3}, "f", state)) for state in (b"old", b"new")]
    assert restored("m", records)["a"].state == b"new"


@given(before=st.lists(states, max_size=3), after=st.lists(states, max_size=1))
def test_a_tombstone_ends_what_was_before_it(before: list[SavedState], after: list[SavedState]) -> None:
    records = [state_record("m", "a", 0, state) for state in before] + [tombstone("m", "a")]
    records += [state_record("m", "a", 0, state) for state in after]
    assert restored("m", records) == dict(zip("a", after, strict=False))


def test_an_unreadable_state_of_this_processor_stops_it() -> None:
    record = replace(state_record("monitor", "a", 0, SavedState({}, "f", b"")), value=b"?", partition=2, offset=9)
    with pytest.raises(BusError, match=r"control\.state partition 2 offset 9: the saved state of monitor/a cannot"):
        restored("monitor", [record])
    assert restored("search", [record]) == {}


def test_a_state_without_its_partition_stops_it() -> None:
    record = state_record("monitor", "a", 0, SavedState({}, "f", b""))
    headers = {name: text for name, text in record.headers.items() if name != "partition"}
    with pytest.raises(BusError, match="header partition"):
        restored("monitor", [replace(record, headers=headers)])


def test_only_what_a_state_counted_in_is_skipped() -> None:
    saved = {"a": SavedState({"numbers": 5}, "f", b"")}

    def at(topic: str, job: str, offset: int) -> bool:
        return skipped_below(saved, Message(topic, job, b"", {"job": job}, offset=offset))

    assert at("numbers", "a", 4)
    assert not at("numbers", "a", 5)
    assert not at("more_numbers", "a", 4)
    assert not at("numbers", "b", 4)


class Holder(Sums):
    """Holds the offsets it is told to hold; its bookkeeping ends at the last message that was good."""

    def __init__(self, held: int | None) -> None:
        super().__init__()
        self._held = held
        self._last = 0

    def process(self, message: Message) -> Iterable[Message]:
        if message.value == b"bad":
            raise ImpossibleValue("bad")
        self._last = message.offset + 1
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {TOPICS.numbers: self._last if self._held is None else self._held}


@given(
    bad=st.lists(st.booleans(), min_size=1, max_size=20),
    gaps=st.lists(st.integers(0, 3), min_size=20, max_size=20),
    held=st.none() | st.integers(0, 30),
)
def test_bad_messages_are_passed_and_held_ones_are_not(bad: list[bool], gaps: list[int], held: int | None) -> None:
    step, offset, last_good = Step(Holder(held)), -1, -1
    for is_bad, gap in zip(bad, gaps, strict=False):
        offset += 1 + gap
        step.take(Message(TOPICS.numbers.name, "a", b"bad" if is_bad else b"good", {"job": "a"}, offset=offset))
        last_good = last_good if is_bad else offset
    following = offset + 1
    holds = held is not None and held <= last_good
    assert step.offsets() == {TOPICS.numbers.name: held if holds else following}


def test_what_could_not_be_processed_is_not_passed(tmp_path: Path) -> None:
    step = Step(Sums(mended=tmp_path / "mended"))
    step.take(replace(number(TOPICS.numbers, "a", 1), offset=4))
    with pytest.raises(RuntimeError):
        step.take(replace(number(TOPICS.numbers, "a", FATAL), offset=5))
    assert step.offsets() == {TOPICS.numbers.name: 5}


def test_an_ended_job_is_dropped_once_all_its_inputs_are_committed() -> None:
    step = Step(Sums())
    for offset, value in enumerate((4, 5, END)):
        step.take(replace(number(TOPICS.numbers, "a", value), offset=offset))
    step.take(replace(number(TOPICS.more_numbers, "b", 1), offset=7))
    assert [state.key for state in step.changed_states()] == ["sums/b"]
    assert step.committed({TOPICS.numbers.name: 2, TOPICS.more_numbers.name: 8}) == []
    assert step.committed({TOPICS.numbers.name: 3}) == []
    dropped = step.committed({TOPICS.numbers.name: 3, TOPICS.more_numbers.name: 8})
    assert [(message.key, message.value) for message in dropped] == [("sums/a", None)]
    assert step.committed({TOPICS.numbers.name: 3, TOPICS.more_numbers.name: 8}) == []


def test_a_job_that_goes_on_after_its_end_keeps_its_state() -> None:
    step = Step(Sums())
    step.take(replace(number(TOPICS.numbers, "a", END), offset=0))
    assert step.changed_states() == []
    step.take(replace(number(TOPICS.numbers, "a", 3), offset=1))
    assert [state.key for state in step.changed_states()] == ["sums/a"]
    assert step.committed({TOPICS.numbers.name: 2}) == []
