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
            ledger.incidents[name].delivered_revision = ledger.incidents[name].revision
            ledger.incidents[name].delivered_ns = number
        ledger.settle(number, 2)
    restored = Ledger.from_bytes(ledger.to_bytes())
    assert restored.to_bytes() == ledger.to_bytes()
    assert restored.incidents == ledger.incidents
    assert restored.summaries == ledger.summaries
    assert restored.empty == ledger.empty


def test_memory_is_bounded_and_open_incidents_are_never_forgotten() -> None:
    ledger = Ledger()
    ledger.take(incident("open", 7, findings=["f"] * 1000))
    ledger.incidents["open"].delivered_revision = 7
    for number in range(10_000):
        name = f"{number:016x}"
        ledger.take(incident(name, 2, "resolved"))
        ledger.incidents[name].delivered_revision = 2
        ledger.settle(0, 0)
    assert ledger.incidents["open"].delivered_revision == 7
    assert not ledger.take(incident(f"{9_999:016x}", 2, "resolved"))
    assert len(ledger.to_bytes()) < 250_000


def test_what_is_over_is_kept_for_as_long_as_the_receiver_wants_to_hear_of_it() -> None:
    ledger = Ledger()
    ledger.take(incident("a", 2, "resolved"))
    ledger.incidents["a"].delivered_revision, ledger.incidents["a"].delivered_ns = 2, 1000
    assert not ledger.settle(1099, 100)
    assert ledger.settle(1100, 100)
    assert ledger.empty
    assert not ledger.take(incident("a", 2, "resolved"))


def test_the_former_format_is_read() -> None:
    former = json.dumps({"open": {"a": 3}, "resolved": {"b": 2}}).encode()
    ledger = Ledger.from_bytes(former, FORMER_FORMAT)
    assert not ledger.take(incident("a", 3))
    assert not ledger.take(incident("b", 2))
    assert ledger.take(incident("a", 4, "resolved"))
    assert ledger.incidents["a"].delivered_revision == 3


def test_the_saved_form_is_what_other_builds_read() -> None:
    """Whatever fields are called by now."""
    row = {**incident("a"), "findings": []}
    known = {"row": row, "extent": {"first": 4, "last": 5, "lost_ns": 12_700_000_000}, "verdict": "told"}
    summary = {"id": "more-b", "opened_ns": 9, "revision": 2, "count": 2, "titles": ["b", "c"], "open": ["b"]}
    saved = {
        "incidents": [{**known, "told": 1, "told_ns": 5, "because": "", "because_last": None}],
        "summaries": [{**summary, "ended_ns": None, "told": 1, "told_ns": 7}],
        "admitted": [9],
        "past": [["d", 2, True]],
    }
    ledger = Ledger.from_bytes(json.dumps(saved).encode())
    delivered = ledger.incidents["a"], ledger.summaries["more-b"]
    assert [(one.delivered_revision, one.delivered_ns) for one in delivered] == [(1, 5), (1, 7)]
    assert json.loads(ledger.to_bytes()) == saved


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
