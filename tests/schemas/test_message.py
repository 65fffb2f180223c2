"""The envelope."""

import pytest

from schemas.catalogue import ITERATIONS
from schemas.errors import WrongSchema
from schemas.message import Message, encode


def test_the_sender_signs_without_losing_headers() -> None:
    message = encode(ITERATIONS, ITERATIONS.from_rows([]), job="j", watermark_ns=7, headers={"part": "1"})
    stamped = message.stamped("agent@1", 12, 99)
    assert stamped.headers == {**message.headers, "producer": "agent@1", "seq": "12", "produced_ns": "99"}
    assert stamped.value == message.value
    assert "producer" not in message.headers


def test_without_a_watermark_the_records_own_time_counts() -> None:
    assert Message("t", "k", None, {}, timestamp_ns=5).watermark_ns == 5
    assert Message("t", "k", None, {"watermark_ns": "3"}, timestamp_ns=5).watermark_ns == 3


@pytest.mark.parametrize("watermark", ["", "soon", "1.5", "0x10"])
def test_a_watermark_that_is_no_number_is_poison(watermark: str) -> None:
    with pytest.raises(WrongSchema, match="t: header watermark_ns"):
        _ = Message("t", "k", None, {"watermark_ns": watermark}).watermark_ns


def test_deadlines_count_from_when_a_record_was_taken() -> None:
    assert Message("t", "k", None, timestamp_ns=5, taken_ns=9).now_ns == 9
    assert Message("t", "k", None, timestamp_ns=5).now_ns == 5


def test_a_record_without_a_job_belongs_to_none() -> None:
    assert Message("t", "k", None).job == ""
