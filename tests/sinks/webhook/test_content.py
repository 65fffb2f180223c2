"""What a person reads on a page."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.job import Job, Place
from schemas.findings import CAUSES
from sinks.webhook.content import WHAT, description, facts, names, ranges, summary
from sinks.webhook.page import Page, pages
from tests.sinks.webhook.incidents import incident, record

JOB = Job("llama", tuple(Place(rank, f"host{rank // 8}", rank % 8) for rank in range(16)), ())


def page(placement: Job | None = JOB, **columns: Any) -> Page:
    """The page of a slow GPU, with columns replaced."""
    (only,) = pages(record(incident(**columns)), placement)
    return only


def test_every_cause_has_words() -> None:
    assert set(WHAT) == set(CAUSES)


def test_the_facts_say_what_where_since_when_how_sure_and_what_it_costs() -> None:
    assert facts(page(revision=3)) == {
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
    assert set(facts(unknown)) == {"cause", "level", "confidence", "opened", "revision"}
    assert summary(unknown) == "Slow compute, job llama"
    assert "None" not in description(unknown)


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
    assert summary(page(**columns)) == line


def test_sets_that_cannot_be_told_apart_are_all_named() -> None:
    assert facts(page(ranks=[0, 1, 4, 5], candidates=[[0, 1], [4, 5]]))["candidates"] == "0-1 or 4-5"


def test_a_network_component_comes_with_its_layer_and_classes() -> None:
    network = {"layer": "overlay", "component": "vtep1", "component_kind": "vtep", "issue_classes": ["loss", "delay"]}
    assert facts(page(network={**network, "evidence": None}))["network"] == "overlay vtep vtep1: loss, delay"


def test_the_description_starts_with_the_explanation_and_holds_every_fact() -> None:
    first, *lines = description(page()).split("\n")
    assert first == page().row["explanation"]
    assert lines == [f"{name.replace('_', ' ')}: {text}" for name, text in facts(page()).items()]


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
    assert names(f"nic:host{i}" for i in range(1000)).endswith("nic:host15, ... (1000)")
