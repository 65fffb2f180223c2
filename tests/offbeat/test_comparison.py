"""Two diagnoses side by side: what is the same thing, and what was said otherwise."""

from __future__ import annotations

from typing import Any

from offbeat.comparison import Said, compare
from tests.sinks.webhook.incidents import incident

Row = dict[str, Any]


def said(*rows: Row, job: str = "j") -> Said:
    return Said(incidents={(job, row["id"]): row for row in rows})


def verdicts(then: Said, now: Said) -> list[tuple[str, tuple[str, ...]]]:
    return [(difference.verdict, difference.columns) for difference in compare(then, now)]


def test_one_id_is_one_thing() -> None:
    then, now = incident("a"), incident("a", lost_ns=7, confidence=0.5, explanation="otherwise")
    assert verdicts(said(then), said(now)) == [("same", ())]
    assert verdicts(said(then), said(incident("a", cause="host_slow", ranks=[2, 3]))) == [
        ("changed", ("cause", "ranks"))
    ]


def test_order_makes_no_difference() -> None:
    assert verdicts(said(incident("a", ranks=[1, 2])), said(incident("a", ranks=[2, 1]))) == [("same", ())]


def test_a_rank_in_common_at_the_same_time_is_one_thing_said_otherwise() -> None:
    then = incident("a", ranks=[2], first_iteration=4, last_iteration=9)
    later = incident("b", ranks=[2, 3], first_iteration=9, last_iteration=12)
    assert verdicts(said(then), said(later)) == [("changed", ("ranks", "first_iteration", "last_iteration"))]
    apart = [
        incident("b", ranks=[3], first_iteration=4, last_iteration=9),
        incident("b", ranks=[2], first_iteration=10, last_iteration=12),
    ]
    for other in apart:
        assert sorted(verdicts(said(then), said(other))) == [("gone", ()), ("new", ())]
    assert sorted(verdicts(said(then), said(later, job="k"))) == [("gone", ()), ("new", ())]


def test_one_of_now_stands_for_one_of_then() -> None:
    then = said(incident("a", ranks=[2]), incident("b", ranks=[2]))
    assert sorted(verdicts(then, said(incident("c", ranks=[2])))) == [("gone", ()), ("same", ())]


def test_what_was_said_is_kept_of_the_iterations_asked_for() -> None:
    whole = said(
        incident("a", first_iteration=4, last_iteration=9), incident("b", first_iteration=20, last_iteration=21)
    )
    assert set(whole.about({"j": range(9, 12)}).incidents) == {("j", "a")}
    assert whole.about({}).incidents == {}
