"""The test data: what must be read, and what must be refused and how."""

import pytest

from schemas import errors
from schemas.catalogue import TOPICS
from schemas.message import decode, encode
from tests.schemas.samples import JOB, TESTDATA, Bad, Good, bad_samples, good_samples, message_of


def test_every_topic_has_good_and_bad_samples_and_nothing_else_does() -> None:
    expected = {f"{name}.{kind}.json" for name in TOPICS for kind in ("good", "bad")}
    assert {path.name for path in TESTDATA.iterdir()} == expected
    assert {sample.topic.name for sample in good_samples()} == set(TOPICS)
    assert {sample.topic.name for sample in bad_samples()} == set(TOPICS)


@pytest.mark.parametrize("sample", good_samples(), ids=str)
def test_a_good_record_is_read_as_it_was_written(sample: Good) -> None:
    batch = sample.topic.from_rows(sample.rows)
    decoded = decode(encode(sample.topic, batch, job=JOB), sample.topic)
    assert decoded.schema == sample.topic.schema
    absent = dict.fromkeys(decoded.schema.names)
    assert decoded.to_pylist() == [absent | row for row in sample.rows]


@pytest.mark.parametrize("sample", good_samples(), ids=str)
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_another_compression_is_read_as_well(sample: Good, compression: str | None) -> None:
    batch = sample.topic.from_rows(sample.rows)
    assert decode(message_of(sample.topic, [batch], compression=compression), sample.topic).equals(batch)


@pytest.mark.parametrize("sample", bad_samples(), ids=str)
def test_a_bad_record_is_refused_and_the_error_says_why(sample: Bad) -> None:
    with pytest.raises(errors.MessageError) as caught:
        decode(sample.message, sample.topic)
    assert type(caught.value).__name__ == sample.error
    assert sample.says in str(caught.value)
    assert str(caught.value).startswith(f"{sample.topic.name}: ")
