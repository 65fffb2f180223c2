"""What a person reads on a page."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.job import Job, Place
from schemas.findings import CAUSES
from sinks.webhook.content import NEXT, WHAT, names, ranges
from sinks.webhook.page import Page
from tests.sinks.webhook import incidents

JOB = Job("llama", tuple(Place(rank, f"host{rank // 8}", rank % 8) for rank in range(16)), ())


def page(placement: Job | None = JOB, **columns: Any) -> Page:
    """The page of a slow GPU whose place is known, with columns replaced."""
    return incidents.page(placement, **columns)


def test_every_cause_has_words() -> None:
    assert set(WHAT) == set(NEXT) == set(CAUSES)


def test_the_facts_say_what_where_since_when_how_sure_and_what_it_costs() -> None:
    assert page(revision=3).facts == {
        "cause": "compute_slow",
        "level": "device",
        "ranks": "2",
        "hosts": "host0",
        "devices": "gpu:host0/2",
        "iterations": "4-7",
        "pattern": "persistent_degradation",
        "stage": "forward, pipeline stage 1, all_reduce",
        "confidence": "0.97",
        "lost_seconds": "38.1",
        "lost_gpu_seconds": "304.8",
        "methods": "operator_graph",
        "opened": "2026-01-02T03:03:05.123456789Z",
        "revision": "3",
    }


def test_what_is_not_known_is_absent_rather_than_made_up() -> None:
    unknown = page(
        None,
        **dict.fromkeys("first_iteration last_iteration pattern stage lost_ns lost_gpu_seconds network".split()),
        **{name: [] for name in ("ranks", "devices", "candidates", "methods")},
    )
    assert set(unknown.facts) == {"cause", "level", "confidence", "opened", "revision"}
    assert unknown.title == "Slow compute, job llama"
    assert unknown.place == "llama"
    assert set(unknown.details) == {"Since", "How sure", "Next"}
    assert "None" not in unknown.description


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({}, "Slow compute on rank 2 (gpu:host0/2) since iteration 4, job llama"),
        ({"state": "resolved"}, "Resolved: Slow compute on rank 2 (gpu:host0/2) since iteration 4, job llama"),
        ({"devices": []}, "Slow compute on rank 2 (host0) since iteration 4, job llama"),
        ({"ranks": [2, 9]}, "Slow compute on ranks 2, 9 (gpu:host0/2) since iteration 4, job llama"),
        ({"ranks": [], "first_iteration": None}, "Slow compute at gpu:host0/2, job llama"),
        (
            {"cause": "host_slow", "level": "machine", "ranks": list(range(8))},
            "Slow host on host0 since iteration 4, job llama",
        ),
        (
            {"level": "group", "ranks": [0, 1, 2, 3, 9], "devices": []},
            "Slow compute among ranks 0-3, 9 (host0, host1) since iteration 4, job llama",
        ),
        (
            {
                "cause": "network_path",
                "network": {
                    "layer": "underlay",
                    "component": "tor3",
                    "component_kind": "tor",
                    "issue_classes": ["congestion"],
                    "evidence": [],
                },
            },
            "Faulty network path at tor3 since iteration 4, job llama",
        ),
    ],
)
def test_the_summary_is_one_line_that_names_the_place(columns: dict[str, Any], line: str) -> None:
    assert page(**columns).title == line


def test_sets_that_cannot_be_told_apart_are_all_named() -> None:
    unsure = page(ranks=[0, 1, 4, 5], candidates=[[0, 1], [4, 5]])
    assert unsure.facts["candidates"] == "0-1 or 4-5"
    assert unsure.details["Where"].endswith("at gpu:host0/2; the evidence cannot tell them apart")


def test_a_network_component_comes_with_its_layer_and_classes() -> None:
    network = {"layer": "overlay", "component": "vtep1", "component_kind": "vtep", "issue_classes": ["loss", "delay"]}
    assert page(network={**network, "evidence": None}).facts["network"] == "overlay vtep vtep1: loss, delay"


def test_a_person_reads_where_since_when_how_sure_what_it_costs_and_what_to_do_next() -> None:
    assert page(revision=3, link="https://offbeat.example/{job}/{incident}").details == {
        "Where": "rank 2 on host0 at gpu:host0/2",
        "Since": "iteration 4, opened 2026-01-02 03:03 UTC",
        "How sure": "97%",
        "Time lost": "38.1 s of the job, 0.0847 GPU hours",
        "Next": NEXT["compute_slow"],
        "More": "https://offbeat.example/llama/5d3c0a9e1f",
    }


@pytest.mark.parametrize(
    ("seconds", "gpus", "said"),
    [
        (0.5, 8, "0.5 s of the job, 0.00111 GPU hours"),
        (119, None, "119 s of the job"),
        (120, 1024, "2 min of the job, 34.1 GPU hours"),
        (7199, 8, "120 min of the job, 16 GPU hours"),
        (9000, 10_240, "2.5 h of the job, 25,600 GPU hours"),
    ],
)
def test_lost_time_is_said_in_a_person_s_units(seconds: float, gpus: int | None, said: str) -> None:
    lost: dict[str, Any] = {"lost_ns": int(seconds * 1e9), "lost_gpu_seconds": None if gpus is None else seconds * gpus}
    assert page(**lost).details["Time lost"] == said


def test_of_what_is_over_a_person_reads_when_it_ended_and_is_given_nothing_to_do() -> None:
    over = page(revision=2, state="resolved")
    assert over.details["Since"] == "iteration 4, opened 2026-01-02 03:03 UTC; until iteration 6, 2026-01-02 03:05 UTC"
    assert "Next" not in over.details


def test_a_link_holds_the_ids_whatever_they_are() -> None:
    linked = incidents.page(job="a b/c", link="https://grafana/d/x?var-job={job}&var-incident={incident}")
    assert linked.link == "https://grafana/d/x?var-job=a%20b%2Fc&var-incident=5d3c0a9e1f"


def test_the_description_starts_with_the_explanation_and_holds_every_detail() -> None:
    first, *lines = page().description.split("\n")
    assert first == page().text
    assert lines == [f"{name}: {text}" for name, text in page().details.items()]


@pytest.mark.parametrize(
    ("columns", "place"),
    [
        ({}, "host0"),
        ({"placement": None}, "gpu:host0/2"),
        ({"placement": None, "devices": []}, "llama"),
    ],
)
def test_the_place_is_the_narrowest_that_is_known_by_name(columns: dict[str, Any], place: str) -> None:
    assert page(**columns).place == place


@given(st.lists(st.integers(0, 40)))
def test_ranges_name_exactly_the_ranks(ranks: list[int]) -> None:
    named: list[int] = []
    text = ranges(ranks)
    for part in text.split(", ... (")[0].split(", ") if text else []:
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(set(ranks))[: len(named)]
    assert len(named) == len(set(ranks)) or text.endswith(f"... ({len(set(ranks))} ranks)")


def test_text_stays_short_however_many_ranks_and_names_there_are() -> None:
    assert len(ranges(range(0, 8192, 2))) < 120
    assert ranges(range(8192)) == "0-8191"
    assert ranges(range(0, 400, 2), "iterations").endswith(", ... (200 iterations)")
    assert names(f"nic:host{i}" for i in range(1000)).endswith("nic:host15, ... (1000)")
