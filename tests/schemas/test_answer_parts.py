"""Parts of answers: when one is whole, what belongs together, and how much is held."""

from __future__ import annotations

import pytest

from schemas.answer_parts import AnswerParts
from schemas.catalogue import COMM_OPS
from schemas.errors import WrongSchema
from schemas.log_answers import COMPLETE, AnswerHeaders
from schemas.message import Message, encode

SIZE = len(encode(COMM_OPS, COMM_OPS.from_rows([]), job="j").value or b"")


def part(
    number: int, of: int = 2, *, request_id: str = "r", host: str = "h", producer: str = "p", at: int = 1
) -> Message:
    said = AnswerHeaders(request_id, host, (0, 3) if request_id else (), COMPLETE if request_id else "", number, of)
    headers = {name: value for name, value in said.to_headers().items() if request_id or name != "request_id"}
    own = {**headers, "producer": producer}
    return encode(COMM_OPS, COMM_OPS.from_rows([]), job="j", watermark_ns=at, headers=own)


def test_an_answer_is_given_out_once_it_is_whole_and_its_parts_in_their_order() -> None:
    parts = AnswerParts[str]()
    assert parts.add(part(2, 3), "c") is None
    assert parts.add(part(0, 3), "a") is None
    whole = parts.add(part(1, 3), "b")
    assert whole is not None
    assert whole.headers == AnswerHeaders("r", "h", (0, 3), COMPLETE, 0, 3)
    assert (whole.parts, whole.bytes) == (("a", "b", "c"), 3 * SIZE)


def test_of_a_part_that_comes_again_the_first_counts() -> None:
    parts = AnswerParts[str]()
    assert [parts.add(part(0), each) for each in "ab"] == [None, None]
    assert [part(number) in parts for number in (0, 1)] == [True, False]
    whole = parts.add(part(1), "c")
    assert whole is not None
    assert whole.parts == ("a", "c")
    assert [part(number) in parts for number in (0, 1)] == [True, True]
    assert [parts.add(part(number), "again") for number in (0, 1)] == [None, None]


def test_what_nobody_asked_for_may_be_told_again() -> None:
    parts = AnswerParts[str]()
    for _ in range(2):
        assert parts.add(part(0, request_id=""), "a") is None
        assert parts.add(part(1, request_id=""), "b") is not None


@pytest.mark.parametrize(
    "other", [{"producer": "q"}, {"at": 2}, {"host": "g"}, {"request_id": "s"}, {"of": 3}], ids=str
)
def test_parts_of_different_answers_are_not_put_together(other: dict[str, object]) -> None:
    parts = AnswerParts[str]()
    assert parts.add(part(0), "a") is None
    assert parts.add(part(1, **other), "b") is None  # type: ignore[arg-type]
    assert parts.add(part(1), "c") is not None


def test_of_answers_that_do_not_become_whole_the_oldest_go_first() -> None:
    parts = AnswerParts[str](most_bytes=2 * SIZE)
    for host in ("old", "new", "newest"):
        assert parts.add(part(0, host=host), host) is None
    assert parts.add(part(1, host="old"), "alone") is None  # in the place of the new one's
    assert parts.add(part(1, host="newest"), "b") is not None
    assert parts.add(part(0, host="new"), "a") is None
    assert parts.add(part(0, host="old"), "its other one") is not None


def test_what_does_not_say_which_part_it_is_is_refused() -> None:
    with pytest.raises(WrongSchema, match="part 2 of 2"):
        AnswerParts[str]().add(part(2), "a")
