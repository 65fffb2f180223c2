"""What happens to a bad message."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import catalogue
from schemas.errors import ImpossibleValue, TooMuchPoison, UndecodableMessage
from schemas.message import Message, decode
from streams.dead_letters import DeadLetters, dead_letter, revived

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


@given(message=messages, reason=texts)
def test_a_letter_keeps_the_message_whole(message: Message, reason: str) -> None:
    letter = dead_letter(message, ImpossibleValue(reason), "monitor")
    assert list(revived(letter)) == [message]
    [row] = decode(letter, catalogue.DEAD_LETTERS).to_pylist()
    assert (row["error"], row["reason"], row["processor"]) == ("ImpossibleValue", reason, "monitor")
    assert letter.key == message.topic


def test_a_tombstone_comes_back_as_a_tombstone() -> None:
    message = Message("numbers", "a", None, {"job": "a"})
    assert list(revived(dead_letter(message, UndecodableMessage("a tombstone"), "monitor"))) == [message]


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
            letters.good()
    assert letters.count == sum(bad)


def test_letters_tell_their_time_in_the_messages_time() -> None:
    message = replace(Message("numbers", "a", b"?", {"job": "a"}), timestamp_ns=42)
    [row] = decode(dead_letter(message, UndecodableMessage("no"), "m"), catalogue.DEAD_LETTERS).to_pylist()
    assert row["at_ns"] == 42
