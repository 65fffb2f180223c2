"""Who hears of an incident: what is told, held back, summarised; and that a restart decides as before."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sinks.webhook.content import Row
from sinks.webhook.ledger import MOST_TITLES, Ledger, Verdict
from sinks.webhook.verdicts import RateLimit, judge, pending, pending_summaries
from tests.sinks.webhook.incidents import MINUTE_NS, OPENED_NS, incident
from tests.sinks.webhook.test_inhibition import gpu, host

LIMIT = RateLimit(pages=2, window_s=600.0)


def nobody(_: Row) -> bool:
    return False


def everything(_: Row) -> bool:
    return True


class Judged:
    """A ledger that takes records."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()

    def take(self, *rows: dict[str, Any], silenced: Callable[[Row], bool] = nobody) -> dict[str, Verdict]:
        for row in rows:
            self.ledger.take(row)
        return judge("llama", self.ledger, silenced, LIMIT)

    def tell(self) -> list[str]:
        """Deliver what is pending; its keys."""
        told = pending(self.ledger, nobody)
        keys = [f"{name}/{self.ledger.incidents[name].revision}" for name in told]
        for name in told:
            self.ledger.incidents[name].delivered_revision = self.ledger.incidents[name].revision
        self.ledger.settle(0, 0)
        return keys


def test_an_incident_is_told_from_its_first_page_to_its_end() -> None:
    judged = Judged()
    assert judged.take(incident("a")) == {"a": Verdict.TOLD}
    assert judged.tell() == ["a/1"]
    assert judged.take(incident("a", 2)) == {}
    assert judged.tell() == ["a/2"]
    judged.take(incident("a", 3, "resolved"))
    assert judged.tell() == ["a/3"]
    assert judged.ledger.empty
    assert not judged.ledger.take(incident("a", 3, "resolved"))


def test_a_consequence_is_held_back_and_nobody_hears_of_its_end() -> None:
    judged = Judged()
    assert judged.take(gpu(), host()) == {"host": Verdict.TOLD, "gpu": Verdict.INHIBITED}
    assert judged.tell() == ["host/1"]
    judged.take(gpu(revision=2, state="resolved"))
    judged.take(host(revision=2, state="resolved"))
    assert judged.tell() == ["host/2"]
    assert judged.ledger.empty
    judged.take(gpu(revision=2, state="resolved"), gpu(revision=3, state="resolved"))
    assert judged.tell() == []


def test_what_was_told_stays_told_though_its_cause_is_found_later() -> None:
    judged = Judged()
    judged.take(gpu())
    assert judged.tell() == ["gpu/1"]
    judged.take(host())
    judged.take(gpu(revision=2))
    assert judged.tell() == ["gpu/2", "host/1"]


def test_a_consequence_that_outlasts_its_cause_is_told() -> None:
    judged = Judged()
    judged.take(host(last_iteration=9), gpu(last_iteration=9))
    judged.tell()
    assert judged.take(host(revision=2, state="resolved", last_iteration=9)) == {}
    assert judged.tell() == ["host/2"]
    assert judged.take(gpu(last_iteration=9)) == {}  # its end may be on the way
    assert judged.take(gpu(last_iteration=10)) == {"gpu": Verdict.TOLD}
    assert judged.tell() == ["gpu/1"]


def test_a_consequence_that_costs_more_than_its_cause_is_told() -> None:
    judged = Judged()
    judged.take(host(), gpu())
    assert judged.take(gpu(lost_ns=2 * 10**11)) == {"gpu": Verdict.TOLD}
    assert judged.take(host(lost_ns=3 * 10**11)) == {}


def test_a_silenced_cause_is_known() -> None:
    judged = Judged()
    judged.take(host(), silenced=everything)
    assert judged.ledger.incidents["host"].verdict is Verdict.SILENCED
    assert judged.take(gpu(), silenced=lambda row: bool(row["id"] == "host")) == {"gpu": Verdict.INHIBITED}


def test_a_silence_that_ends_lets_through_what_goes_on() -> None:
    judged = Judged()
    assert judged.take(incident("a"), incident("b"), silenced=everything) == dict.fromkeys("ab", Verdict.SILENCED)
    judged.take(incident("b", 2, "resolved"), silenced=everything)
    assert judged.tell() == []
    assert judged.take() == {"a": Verdict.TOLD}
    assert judged.tell() == ["a/1"]


def test_what_ends_with_its_silence_is_not_told() -> None:
    judged = Judged()
    judged.take(incident("a"), silenced=everything)
    assert judged.take(incident("a", 2, "resolved")) == {}
    assert judged.tell() == []


def test_a_cause_that_is_over_explains_nothing_more() -> None:
    judged = Judged()
    judged.take(host())
    judged.take(host(revision=2, state="resolved"))
    assert judged.take(gpu()) == {"gpu": Verdict.TOLD}


def test_of_a_told_incident_that_is_silenced_only_the_end_is_told() -> None:
    judged = Judged()
    judged.take(incident("a"))
    judged.tell()
    judged.take(incident("a", 2), silenced=everything)
    assert pending(judged.ledger, everything) == []
    judged.take(incident("a", 3, "resolved"), silenced=everything)
    assert pending(judged.ledger, everything) == ["a"]


def test_beyond_the_limit_one_summary_tells_of_the_others() -> None:
    judged = Judged()
    assert judged.take(*(incident(name) for name in "abcd")) == {
        "a": Verdict.TOLD,
        "b": Verdict.TOLD,
        "c": Verdict.SUMMARISED,
        "d": Verdict.SUMMARISED,
    }
    assert judged.tell() == ["a/1", "b/1"]
    [summary] = pending_summaries(judged.ledger, LIMIT, 0)
    assert (summary.id, summary.revision, summary.count, len(summary.titles)) == ("more-c", 2, 2, 2)


def test_a_hang_has_a_page_of_its_own_whatever_was_told_before_or_comes_with_it() -> None:
    judged = Judged()
    slow = [incident(name) for name in "abc"]
    hang = incident("hang") | {"cause": "hang_hardware"}
    assert judged.take(*slow, hang) == {
        "hang": Verdict.TOLD,
        "a": Verdict.TOLD,
        "b": Verdict.SUMMARISED,
        "c": Verdict.SUMMARISED,
    }
    assert judged.take(incident("another") | {"cause": "hang_not_entered"}) == {"another": Verdict.TOLD}


def test_a_summary_is_told_at_once_then_once_a_window_and_at_its_end() -> None:
    judged = Judged()
    judged.take(*(incident(name) for name in "abc"))
    [summary] = pending_summaries(judged.ledger, LIMIT, 0)
    summary.delivered_revision, summary.delivered_ns = summary.revision, 0
    judged.take(incident("d"))
    assert pending_summaries(judged.ledger, LIMIT, LIMIT.window_ns - 1) == []
    assert pending_summaries(judged.ledger, LIMIT, LIMIT.window_ns) == [summary]
    judged.take(incident("c", 2, "resolved"))
    assert (summary.open, summary.ended_ns) == (["d"], None)
    judged.take(incident("d", 2, "resolved"))
    assert (summary.open, summary.resolved) == ([], True)
    assert pending_summaries(judged.ledger, LIMIT, 1) == [summary]


def test_many_short_incidents_share_a_summary_though_they_do_not_overlap() -> None:
    judged = Judged()
    judged.take(incident("a"), incident("b"))
    for number in range(50):
        judged.take(incident(f"short{number}", updated_ns=OPENED_NS + number))
        judged.take(incident(f"short{number}", 2, "resolved", updated_ns=OPENED_NS + number))
    [summary] = judged.ledger.summaries.values()
    assert (summary.count, summary.revision, len(summary.titles)) == (50, 100, MOST_TITLES)
    assert summary.resolved


def test_after_a_window_incidents_are_paged_again_and_a_summary_is_a_new_one() -> None:
    judged = Judged()
    judged.take(*(incident(name) for name in "abc"))
    judged.take(incident("c", 2, "resolved"))
    [first] = judged.ledger.summaries.values()
    first.delivered_revision = first.revision
    later: dict[str, Any] = {"updated_ns": OPENED_NS + MINUTE_NS + LIMIT.window_ns}
    assert judged.take(*(incident(name, **later) for name in "def")) == {
        "d": Verdict.TOLD,
        "e": Verdict.TOLD,
        "f": Verdict.SUMMARISED,
    }
    assert list(judged.ledger.summaries) == ["more-f"]


def test_a_summary_whose_end_is_untold_is_not_forgotten_for_a_new_one() -> None:
    judged = Judged()
    judged.take(*(incident(name) for name in "abc"))
    judged.take(incident("c", 2, "resolved"))
    later: dict[str, Any] = {"updated_ns": OPENED_NS + MINUTE_NS + LIMIT.window_ns}
    judged.take(*(incident(name, **later) for name in "def"))
    assert [one.id for one in pending_summaries(judged.ledger, LIMIT, 0)] == ["more-c", "more-f"]


records = st.lists(
    st.tuples(st.sampled_from(["host", "gpu", "x", "y", "z"]), st.integers(1, 6), st.booleans()), max_size=30
)


@given(records, st.integers(0, 30), st.integers(0, 30))
def test_a_restart_that_reads_records_again_decides_as_before(
    told: list[tuple[str, int, bool]], saved_at: int, back: int
) -> None:
    """The state is saved somewhere, and records before it come once more."""
    rows = [made(*one) for one in told]
    straight = Judged()
    state = Ledger().to_bytes()
    for number, row in enumerate(rows):
        straight.take(row)
        if number == saved_at:
            state = straight.ledger.to_bytes()
    again = Judged(Ledger.from_bytes(state))
    for row in rows[max(saved_at - back, 0) if saved_at < len(rows) else 0 :]:
        again.take(row)
    assert again.ledger.to_bytes() == straight.ledger.to_bytes()


def made(name: str, revision: int, over: bool) -> dict[str, Any]:
    build = {"host": host, "gpu": gpu}.get(name, lambda **columns: incident(name, **columns))
    # One revision is one content, however often it is published; what is over stays so.
    return build(revision=revision, state="resolved" if revision > 4 else "open")
