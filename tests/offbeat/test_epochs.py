"""What agents answer who are asked for raw epochs: whole answers, each host's first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offbeat.epochs import Fetched
from schemas.catalogue import NIC_EPOCHS
from schemas.log_answers import COMPLETE, PARTIAL, AnswerHeaders
from schemas.message import Message, encode
from tests.schemas.samples import first_row


def answer(*nics: tuple[str, ...], host: str = "h0", rank: int = 3, by: str = "agent/1") -> list[Message]:
    """A part for each group of NICs, with a poll of each."""
    parts = []
    for number, group in enumerate(nics):
        rows = [{**first_row(NIC_EPOCHS), "nic": nic} for nic in group]
        outcome = COMPLETE if by == "agent/1" else PARTIAL
        headers = AnswerHeaders("r", host, (rank,), outcome, number, len(nics)).to_headers()
        parts.append(encode(NIC_EPOCHS, NIC_EPOCHS.from_rows(rows), job="j", headers={**headers, "producer": by}))
    return parts


def told(fetched: Fetched) -> list[tuple[str, str]]:
    return sorted((row["host"], row["nic"]) for row in fetched.rows)


FIRST = answer(("a",), ("b",))
RECUT = answer(("a", "b"), ("c",), by="agent/2")
OTHER = answer(("d",), host="h1", rank=4)


def test_parts_of_two_answers_do_not_make_one() -> None:
    """An agent that starts again answers again, and has more to tell by then."""
    fetched = Fetched({3, 4})
    for message in (FIRST[0], *OTHER, RECUT[1]):
        fetched.take(message)
    assert (fetched.silent, fetched.outcomes) == ({3}, {"h1": COMPLETE})
    assert told(fetched) == [("h1", "d")]  # of an answer with a hole nothing
    fetched.take(RECUT[0])
    assert (fetched.silent, fetched.outcomes) == (set(), {"h0": PARTIAL, "h1": COMPLETE})
    assert told(fetched) == [("h0", "a"), ("h0", "b"), ("h0", "c"), ("h1", "d")]


@given(st.permutations([*FIRST, *FIRST, *RECUT]))
def test_the_first_whole_answer_of_a_host_counts(messages: list[Message]) -> None:
    fetched = Fetched({3})
    for message in messages:
        fetched.take(message)
    assert not fetched.silent
    nics = [nic for _, nic in told(fetched)]
    assert nics == (["a", "b"] if fetched.outcomes == {"h0": COMPLETE} else ["a", "b", "c"])
