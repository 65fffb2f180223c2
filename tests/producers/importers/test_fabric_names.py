"""Names that a fabric's description uses and its devices lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from diagnosis.job import Job
from producers.importers.fabric_names import unlisted
from producers.importers.job_of_rows import job_of_row
from producers.simulation import FabricShape, Scenario, simulate

KINDS = {"nic:h0/n": "nic", "nic:h1/n": "nic", "tor:0": "tor", "tor:1": "tor", "spine:0": "spine"}
CABLES = [("nic:h0/n", "tor:0"), ("nic:h1/n", "tor:1"), ("tor:0", "spine:0"), ("tor:1", "spine:0")]


def described(nic: str = "n", **fields: Any) -> Job:
    """Two hosts, each below a ToR of its own, with another NIC of the first one or other fields."""
    ranks = [{"rank": rank, "host": f"h{rank}", "nics": [nic if rank == 0 else "n"]} for rank in (0, 1)]
    row = {
        "job": "j",
        "ranks": ranks,
        "communicators": [],
        "devices": [{"device": name, "kind": kind} for name, kind in KINDS.items()],
        "links": [{"link": f"{a} {b}", "a": a, "b": b} for a, b in CABLES],
        "paths": [{"tor": tor, "spines": ["spine:0"]} for tor in ("tor:0", "tor:1")],
        "routes": [route("nic:h0/n", "nic:h1/n", "spine:0"), route("nic:h1/n", "nic:h0/n", "spine:0")],
    }
    return job_of_row(row | fields)


def route(source: str, destination: str, spine: str) -> Mapping[str, Any]:
    return {"source": source, "destination": destination, "switches": ["tor:0", spine, "tor:1"]}


def test_a_fabric_whose_names_are_all_listed_needs_no_word() -> None:
    assert list(unlisted(described())) == []
    scenario = Scenario(1, tp=2, pp=2, dp=2, gpus_per_host=2, iterations=2, fabric=FabricShape(2, 2))
    assert list(unlisted(simulate(scenario).job)) == []


def test_a_job_without_a_fabric_needs_none_either() -> None:
    assert list(unlisted(described(nic="other", devices=None, links=None, paths=None, routes=None))) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nic": "mlx"}, "ranks name nic:h0/mlx, "),
        ({"links": [{"link": "l", "a": "nic:h0/n", "b": "tor-0"}]}, "links name tor-0, "),
        ({"paths": [{"tor": "tor:2", "spines": ["spine:00"]}]}, "paths name spine:00 and 1 more, "),
        ({"routes": [route("nic:h0/n", "nic:h1/n", "spine-0")]}, "routes name spine-0, "),
        ({"routes": [route("h0/n", "nic:h1/n", "spine:0")]}, "routes name h0/n, "),
        ({"links": [], "paths": None}, "routes tell nothing without links"),
    ],
)
def test_what_is_not_listed_is_said_with_its_field(fields: Mapping[str, Any], said: str) -> None:
    [line] = unlisted(described(**fields))
    assert line.startswith(f"job.json: {said}")
