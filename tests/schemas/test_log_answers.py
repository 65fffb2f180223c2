"""The headers of answers: what is written is read again, and what says nothing is refused."""

from __future__ import annotations

import pytest

from schemas.catalogue import COMM_OPS
from schemas.errors import WrongSchema
from schemas.log_answers import COMPLETE, OUTCOMES, AnswerHeaders
from schemas.message import Message, encode

SAID = AnswerHeaders("r", "h", (0, 3), COMPLETE, 1, 2)


def record(headers: dict[str, str]) -> Message:
    return encode(COMM_OPS, COMM_OPS.from_rows([]), job="j", headers=headers)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("ranks", [(), (5,), (0, 3)])
def test_what_is_written_is_read_again(ranks: tuple[int, ...], outcome: str) -> None:
    said = AnswerHeaders("r", "h", ranks, outcome, 1, 2)
    assert AnswerHeaders.of(record(said.to_headers())) == said
    assert said.answer == AnswerHeaders("r", "h", ranks, outcome, 0, 2)


def test_logs_that_nobody_asked_for_have_parts_as_well() -> None:
    found = AnswerHeaders.of(record({"host": "h", "part": "1", "parts": "2"}))
    assert found == AnswerHeaders("", "h", (), "", 1, 2)


@pytest.mark.parametrize("header", ["ranks", "outcome"])
def test_an_answer_says_for_whom_and_how_completely(header: str) -> None:
    said = {name: value for name, value in SAID.to_headers().items() if name != header}
    with pytest.raises(WrongSchema, match=f"needs the headers .*{header}"):
        AnswerHeaders.of(record(said))


@pytest.mark.parametrize(
    ("header", "value", "reason"),
    [
        ("ranks", "0,x", "needs the headers"),
        ("parts", "many", "needs the headers"),
        ("part", "2", "part 2 of 2"),
        ("part", "-1", "part -1 of 2"),
        ("outcome", "whole", "outcome is 'whole'; known are complete, "),
    ],
)
def test_what_cannot_be_is_refused(header: str, value: str, reason: str) -> None:
    with pytest.raises(WrongSchema, match=reason):
        AnswerHeaders.of(record({**SAID.to_headers(), header: value}))
