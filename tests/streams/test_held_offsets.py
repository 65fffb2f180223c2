"""What a restart has to read again beside a saved state."""

from dataclasses import replace

import pytest

from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import Message, encode
from schemas.topic import Topic
from streams.held_offsets import HeldOffsets, needed_of_all


def message(topic: Topic, offset: int) -> Message:
    return replace(encode(topic, topic.from_rows([]), job="j", key="j/h"), offset=offset)


def held(*times_ns: int | None, topic: Topic = NIC_EPOCHS, first: int = 10) -> HeldOffsets:
    """Messages of one input, one a newest time."""
    offsets = HeldOffsets()
    for offset, newest_ns in enumerate(times_ns, first):
        offsets.hold(message(topic, offset), newest_ns)
    return offsets


def test_before_anything_is_saved_all_is_needed() -> None:
    offsets = held(100, 200, None)
    offsets.hold(message(QUEUE_PAIRS, 3), None)
    assert offsets.needed == {NIC_EPOCHS.name: 10, QUEUE_PAIRS.name: 3}


def test_what_is_not_saved_is_read_again_from_the_first_on_that_tells_of_what_is_needed() -> None:
    offsets = held(100, 300, 200)
    assert offsets.save({NIC_EPOCHS.name: 101}) == {NIC_EPOCHS.name: 11}
    assert offsets.needed == {NIC_EPOCHS.name: 11}
    assert offsets.save({NIC_EPOCHS.name: 300}) == {NIC_EPOCHS.name: 11}, "the time itself is needed too"
    assert offsets.save({NIC_EPOCHS.name: 301}) == {NIC_EPOCHS.name: 13}


def test_what_a_saved_state_holds_all_of_holds_nothing_back() -> None:
    """Its offsets are saved with it, but others need not wait for it."""
    offsets = held(100, None)
    assert offsets.save({NIC_EPOCHS.name: 101}) == {NIC_EPOCHS.name: 12}
    assert offsets.needed == {}
    offsets.hold(message(NIC_EPOCHS, 12), None)
    assert offsets.needed == {NIC_EPOCHS.name: 12}, "this one is not saved yet"


def test_each_input_is_needed_since_a_time_of_its_own() -> None:
    offsets = held(100, 200)
    for offset, newest_ns in ((5, 100), (6, 200)):
        offsets.hold(message(OP_CALLS, offset), newest_ns)
    saved = offsets.save({NIC_EPOCHS.name: 150, OP_CALLS.name: 50})
    assert saved == {NIC_EPOCHS.name: 11, OP_CALLS.name: 5}


def test_a_restart_needs_what_its_state_was_saved_with_until_it_is_saved_again() -> None:
    saved = held(100, 200, 300).save({NIC_EPOCHS.name: 150})
    again = HeldOffsets(saved)
    assert again.needed == saved == {NIC_EPOCHS.name: 11}
    assert again.save({NIC_EPOCHS.name: 150}) == saved, "nothing has come again yet"
    for offset, newest_ns in ((11, 200), (12, 300)):
        again.hold(message(NIC_EPOCHS, offset), newest_ns)
    assert again.save({NIC_EPOCHS.name: 250}) == {NIC_EPOCHS.name: 12}


@pytest.mark.parametrize("first", [7, 20])
def test_of_all_states_the_earliest_offset_is_needed(first: int) -> None:
    settled = held(100)
    settled.save({NIC_EPOCHS.name: 101})
    states = [held(100), settled, held(100, first=first), held(100, topic=OP_CALLS, first=2)]
    assert needed_of_all(states) == {NIC_EPOCHS: min(10, first), OP_CALLS: 2}
    assert needed_of_all([settled]) == {}
