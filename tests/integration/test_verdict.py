"""What counts as a difference, a lost page, a repeated one."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.outcome import Stored
from tests.integration.verdict import Verdict
from tests.sinks.webhook.local_receiver import Received

OPEN = {"id": "i", "revision": 2, "state": "resolved"}
RIGHT = Stored(iterations={}, findings={}, incidents={("i",): OPEN}, comm_ops={(): {"rows": 1, "digest": 7}})


def page(revision: int, status: str, incident: str = "i") -> Received:
    return Received("/hook", {"idempotency-key": f"{incident}/{revision}"}, f'{{"status": "{status}"}}'.encode())


FIRING, RESOLVED = page(1, "firing"), page(2, "resolved")


def test_a_verdict_on_an_undisturbed_job() -> None:
    verdict = Verdict.of(RIGHT, RIGHT, [FIRING, RESOLVED])
    assert (verdict.pages, verdict.differences, verdict.lost, verdict.repeated) == (2, (), (), Counter())


@pytest.mark.parametrize("taken", [[], [FIRING], [RESOLVED, FIRING]], ids=["none", "not the last", "the last too soon"])
def test_a_lost_page_is_seen(taken: list[Received]) -> None:
    assert Verdict.of(RIGHT, RIGHT, taken).lost == ("i",)


def test_a_repeated_page_is_counted_and_no_difference() -> None:
    verdict = Verdict.of(RIGHT, RIGHT, [FIRING, RESOLVED, FIRING, RESOLVED, RESOLVED])
    assert verdict.repeated == {"i/1": 1, "i/2": 2}
    assert not verdict.differences
    assert not verdict.lost


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"incidents": {("i",): {**OPEN, "revision": 3}}}, "revision is 3, not 2"),
        ({"comm_ops": {(): {"rows": 2, "digest": 7}}}, "rows is 2, not 1"),
        ({"findings": {("f",): {"id": "f"}}}, "findings: too much"),
        ({"incidents": {}}, "incidents: missing"),
    ],
)
def test_other_rows_are_differences(changed: Mapping[str, Any], said: str) -> None:
    [difference] = Verdict.of(replace(RIGHT, **changed), RIGHT, [FIRING, RESOLVED]).differences
    assert said in difference


def test_a_page_of_no_incident_is_a_difference() -> None:
    [difference] = Verdict.of(RIGHT, RIGHT, [RESOLVED, page(1, "firing", "other")]).differences
    assert difference == "incident other was paged, and is none"
