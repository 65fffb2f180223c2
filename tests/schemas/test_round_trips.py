"""What is encoded is decoded: any batch that a topic allows, and its envelope."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.catalogue import TOPICS
from schemas.message import decode, encode
from schemas.topic import Topic
from tests.schemas.batches import rows_of

TOPIC = pytest.mark.parametrize("topic", TOPICS.values(), ids=lambda topic: topic.name)


@TOPIC
@given(data=st.data())
@settings(max_examples=30)
def test_every_value_survives(topic: Topic, data: st.DataObject) -> None:
    rows = data.draw(rows_of(topic))
    batch = topic.from_rows(rows)
    decoded = decode(encode(topic, batch, job="j"), topic)
    assert decoded.schema == topic.schema
    assert decoded.equals(batch)
    assert decoded.to_pylist() == rows


@TOPIC
@given(data=st.data())
@settings(max_examples=10)
def test_a_decoded_batch_can_be_sent_on(topic: Topic, data: st.DataObject) -> None:
    first = encode(topic, topic.from_rows(data.draw(rows_of(topic))), job="j")
    again = encode(topic, decode(first, topic), job="j")
    assert decode(again, topic).equals(decode(first, topic))


@TOPIC
@given(data=st.data())
@settings(max_examples=10)
def test_a_slice_is_sent_as_the_rows_it_shows(topic: Topic, data: st.DataObject) -> None:
    rows = data.draw(rows_of(topic))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
    batch = topic.from_rows(rows).slice(first, last - first)
    assert decode(encode(topic, batch, job="j"), topic).to_pylist() == rows[first:last]


@given(
    job=st.text(min_size=1),
    key=st.none() | st.text(),
    watermark_ns=st.integers(0, 2**63 - 1),
    headers=st.dictionaries(
        st.text(min_size=1).filter(lambda n: n not in {"schema", "job", "watermark_ns"}), st.text()
    ),
)
def test_the_envelope_holds_what_it_was_given(
    job: str, key: str | None, watermark_ns: int, headers: dict[str, str]
) -> None:
    topic = TOPICS["analysis.iterations"]
    message = encode(topic, topic.from_rows([]), job=job, key=key, watermark_ns=watermark_ns, headers=headers)
    assert message.topic == topic.name
    assert message.job == job
    assert message.key == (job if key is None else key)
    assert message.watermark_ns == message.timestamp_ns == watermark_ns
    assert message.headers == {**headers, "schema": "iterations/1", "job": job, "watermark_ns": str(watermark_ns)}
