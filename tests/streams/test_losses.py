"""Losses told by the numbers of producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.message import Message
from streams.losses import Losses

FIRST, RESTARTED = "agent/1f", "agent/2c"


def message(number: int | str, producer: str = FIRST, topic: str = "t", key: str = "job") -> Message:
    return Message(topic, key, b"", {"producer": producer, "seq": str(number)})


def lost(messages: Iterable[Message], losses: Losses | None = None) -> int:
    losses = losses or Losses()
    return sum([losses.take(each) for each in messages])


def test_a_gap_is_a_loss_where_it_is() -> None:
    losses = Losses()
    assert [losses.take(message(number)) for number in (4, 5, 8, 9, 20)] == [0, 0, 2, 0, 10]


def test_a_producer_that_starts_anew_has_lost_nothing() -> None:
    assert lost([message(7), message(0, RESTARTED), message(1, RESTARTED)]) == 0
    assert lost([message(7), message(9, RESTARTED)]) == 0


def test_two_producers_of_one_name_are_told_apart_by_their_starts() -> None:
    assert lost([message(7), message(0, RESTARTED), message(8), message(1, RESTARTED), message(10)]) == 1


def test_what_is_read_again_is_no_loss_and_hides_none() -> None:
    again = [message(number) for number in (3, 4, 5, 3, 4, 5, 6)]
    assert lost(again) == 0
    assert lost([*again, message(3), message(8)]) == 1


def test_topics_and_keys_are_numbered_by_themselves() -> None:
    messages = [
        message(0),
        message(5, topic="other"),
        message(9, key="another"),
        message(1),
        message(10, key="another"),
    ]
    assert lost(messages) == 0


@pytest.mark.parametrize(
    "foreign",
    [
        Message("t", "job", b""),
        Message("t", "job", b"", {"seq": "9"}),
        Message("t", "", b"", {"producer": FIRST, "seq": "9"}),
        *(message(text) for text in ("", "-1", "9.5", "\u0669", "9" * 30)),
    ],
    ids=["no headers", "no producer", "no key", "no number", "negative", "broken", "other digits", "absurd"],
)
def test_messages_that_are_not_numbered_tell_nothing(foreign: Message) -> None:
    assert lost([message(0), foreign, message(1)]) == 0


def test_producers_not_heard_of_for_long_are_forgotten() -> None:
    losses = Losses(most=2)
    assert lost([message(0, "a/1"), message(0, "b/1"), message(1, "a/1"), message(0, "c/1")], losses) == 0
    assert losses.take(message(5, "b/1")) == 0, "forgotten: it begins again"
    assert losses.take(message(9, "c/1")) == 8


@given(
    st.lists(st.booleans(), min_size=1, max_size=30),
    st.lists(st.integers(0, 29), max_size=8),
    st.lists(st.sampled_from("ab"), min_size=30, max_size=30),
)
def test_every_message_missing_between_two_that_came_counts_once(
    arrived: Sequence[bool], repeated: Sequence[int], keys: Sequence[str]
) -> None:
    """However readers are set back to places that they have passed."""
    numbered = [message(keys[: number + 1].count(keys[number]) - 1, key=keys[number]) for number in range(len(arrived))]
    came = [each for each, here in zip(numbered, arrived, strict=True) if here]
    losses, found = Losses(), 0
    for number, each in enumerate(came):
        found += losses.take(each)
        found += lost([came[at] for at in repeated if at <= number], losses)
    expected = 0
    for key in "ab":
        own = [int(each.headers["seq"]) for each in came if each.key == key]
        expected += own[-1] - own[0] + 1 - len(own) if own else 0
    assert found == expected
