"""The coefficients of docs/operations.md are those that are measured."""

from __future__ import annotations

import re

import pytest

from benchmarks import sizing
from tests.offbeat.command_line import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def shown(what: str) -> float:
    [figure] = re.findall(rf"^\| `{what}` \| ([0-9.]+) \|", PAGE, re.MULTILINE)
    return float(figure)


def test_the_figures_shown_are_those_measured() -> None:
    found = sizing.run(ranks=64)
    assert found["operators"] > 100_000
    for what in ("bus_bytes_an_operator", "stored_bytes_an_operator", "bus_bytes_a_host_and_iteration"):
        assert found[what] == pytest.approx(shown(what), rel=0.05), what
    # How fast a machine is says nothing about the code; that it was measured at all does.
    assert found["monitor_cpu_ms_a_host_and_iteration"] > 0
    assert shown("monitor_cpu_ms_a_host_and_iteration") > 0
