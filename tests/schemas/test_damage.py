"""Damaged records: whatever happens to their bytes, they are refused as poison or read, and nothing else."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from schemas.catalogue import COMM_OPS, ITERATIONS, OP_CALLS, TOPICS
from schemas.errors import MessageError
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from tests.schemas.samples import JOB, batch_of, first_row, message_of
from tests.schemas.used import use

DAMAGES = 400
SMALL = (0, 1, 2, 5, 1 << 17, (1 << 31) - 1, (1 << 32) - 1)
EXTREMES = (0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def outcome(message: Message, topic: Topic) -> str:
    """What becomes of a message; only poison is an acceptable error."""
    try:
        batch = decode(message, topic)
    except MessageError as error:
        return type(error).__name__
    assert batch.schema == topic.schema
    use(batch)
    return "read"


def damaged(value: bytes, chance: np.random.Generator) -> bytes:
    """The bytes with some replaced, removed, repeated or moved."""
    data = bytearray(value)
    first, last = sorted(int(at) for at in chance.integers(0, len(data), 2))
    match chance.integers(0, 7):
        case 0:
            for at in chance.integers(0, len(data), chance.integers(1, 9)):
                data[at] = chance.integers(0, 256)
        case 1:
            data[chance.integers(0, len(data))] ^= 1 << int(chance.integers(0, 8))
        case 2:
            del data[first:last]
        case 3:
            data[first:first] = data[first:last]
        case 4:
            data[first:last] = bytes(last - first)
        case 5:
            at = len(data) // 2 + first // 2 & ~3  # a word of the body, most likely
            data[at : at + 4] = SMALL[chance.integers(0, len(SMALL))].to_bytes(4, "little")
        case _:
            word = EXTREMES[chance.integers(0, len(EXTREMES))]
            data[first : first + 8] = word.to_bytes(8, "little")
    return bytes(data)


@pytest.mark.parametrize("compression", ["zstd", None])
@pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)
def test_damage_is_poison(topic: Topic, compression: str | None) -> None:
    chance = np.random.default_rng(len(topic.name))
    whole = message_of(topic, [batch_of(topic, first_row(topic))], compression=compression)
    assert whole.value is not None
    outcomes: Counter[str] = Counter()
    for _ in range(DAMAGES):
        outcomes[outcome(dataclasses.replace(whole, value=damaged(whole.value, chance)), topic)] += 1
    assert outcomes["UndecodableMessage"] > DAMAGES / 4
    assert len(outcomes) > 1


@pytest.mark.parametrize("compression", ["zstd", None])
def test_a_record_that_is_cut_off_is_refused_wherever_it_is_cut(compression: str | None) -> None:
    whole = message_of(ITERATIONS, [batch_of(ITERATIONS, first_row(ITERATIONS))], compression=compression)
    assert whole.value is not None
    # The last eight bytes mark the stream's end: without any of them nothing is missing.
    complete = {len(whole.value) - 8, len(whole.value)}
    for length in range(len(whole.value) + 1):
        expected = "read" if length in complete else "UndecodableMessage"
        assert outcome(dataclasses.replace(whole, value=whole.value[:length]), ITERATIONS) == expected


def test_one_topics_record_on_another_topic_is_refused_by_its_columns() -> None:
    for topic in TOPICS.values():
        message = encode(topic, topic.from_rows([first_row(topic)]), job=JOB)
        for other in TOPICS.values():
            forged = Message(other.name, JOB, message.value, {"schema": other.schema_id, "job": JOB})
            read = other is topic or (topic, other) == (OP_CALLS, COMM_OPS)  # a call has all that an operator needs
            assert (outcome(forged, other) == "read") == read


def test_a_batch_of_no_columns_is_refused() -> None:
    message = message_of(ITERATIONS, [pa.RecordBatch.from_arrays([], names=[])])
    assert outcome(message, ITERATIONS) == "WrongSchema"
