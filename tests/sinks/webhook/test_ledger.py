"""What paging remembers across a restart."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UndecodableMessage
from sinks.webhook.ledger import FORMER_FORMAT, Ledger
from sinks.webhook.verdicts import RateLimit, judge
from tests.sinks.webhook.incidents import incident

records = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 9), st.booleans(), st.booleans()))


@given(records)
def test_a_saved_state_restores_everything(noted: list[tuple[str, int, bool, bool]]) -> None:
    ledger = Ledger()
    for number, (name, revision, over, told) in enumerate(noted):
        ledger.take(incident(name, revision, "resolved" if over else "open"))
        judge("llama", ledger, lambda row: bool(row["id"] == "h"), RateLimit(pages=3))
        if told and name in ledger.incidents:
            ledger.incidents[name].told = ledger.incidents[name].revision
            ledger.incidents[name].told_ns = number
        ledger.settle(number, 2)
    restored = Ledger.from_bytes(ledger.to_bytes())
    assert restored.to_bytes() == ledger.to_bytes()
    assert restored.incidents == ledger.incidents
    assert restored.summaries == ledger.summaries
    assert [restored[name] for name in "abcdefgh"] == [ledger[name] for name in "abcdefgh"]
    assert restored.empty == ledger.empty


def test_memory_is_bounded_and_open_incidents_are_never_forgotten() -> None:
    ledger = Ledger()
    ledger.take(incident("open", 7, findings=["f"] * 1000))
    ledger.incidents["open"].told = 7
    for number in range(10_000):
        name = f"{number:016x}"
        ledger.take(incident(name, 2, "resolved"))
        ledger.incidents[name].told = 2
        ledger.settle(0, 0)
    assert ledger["open"] == 7
    assert ledger[f"{9_999:016x}"] == 2
    assert len(ledger.to_bytes()) < 250_000


def test_what_is_over_is_kept_for_as_long_as_the_receiver_wants_to_hear_of_it() -> None:
    ledger = Ledger()
    ledger.take(incident("a", 2, "resolved"))
    ledger.incidents["a"].told, ledger.incidents["a"].told_ns = 2, 1000
    assert not ledger.settle(1099, 100)
    assert ledger.settle(1100, 100)
    assert ledger.empty
    assert ledger["a"] == 2


def test_the_former_format_is_read() -> None:
    former = json.dumps({"open": {"a": 3}, "resolved": {"b": 2}}).encode()
    ledger = Ledger.from_bytes(former, FORMER_FORMAT)
    assert (ledger["a"], ledger["b"]) == (3, 2)
    assert not ledger.take(incident("a", 3))
    assert ledger.take(incident("a", 4, "resolved"))
    assert ledger["a"] == 3


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'{"incidents": []}',
        b'{"incidents": [{}], "summaries": [], "admitted": [], "past": []}',
        b'{"incidents": [], "summaries": [{"id": 1}], "admitted": [], "past": []}',
        b'{"incidents": [], "summaries": [], "admitted": [true], "past": []}',
        b'{"incidents": [], "summaries": [], "admitted": [], "past": [["a", "1", true]]}',
        b'{"incidents": [], "summaries": [], "admitted": [], "past": [["a"]]}',
        pytest.param(b"[" * 100_000, id="nested deeply"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused(state: bytes) -> None:
    with pytest.raises(UndecodableMessage, match="a saved state"):
        Ledger.from_bytes(state)
