"""The answer on a run hangs on what happened, not on how ranks and hosts are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.traffic.detection import detect
from benchmarks.traffic.plan import Case
from offbeat.settings import Settings
from producers.simulation.nic import simulate_nics

EVERY = ("neighbours/pcie_downgrade/0.5", "neighbours/nic_down", "mixtral/gpu_error", "gpt2_70b/gpu_throttling/200")


@pytest.mark.parametrize("what", EVERY)
def test_other_names_of_ranks_and_hosts_give_the_same_answer_by_other_names(what: str) -> None:
    """Without the layout, which is of ranks in the order of their names."""
    scenario = replace(Case(30_042, what, "default").scenario(), describe_layout=False)
    named, rest = set(), []
    for relabel in (None, 3, 4) if "neighbours" in what else (None, 3):
        run = simulate_nics(replace(scenario, relabel=relabel))
        (found,) = detect(run.job, list(run.messages()), Settings.load())
        (fault,) = run.truth.faults
        beside = run.job.ranks_beside(fault.ranks[0])
        assert tuple(found["ranks"]) == (fault.ranks if found["level"] == "device" else beside)
        named.add(tuple(found["ranks"]))
        rest.append([found[name] for name in ("cause", "level", "pattern", "first_iteration", "last_iteration")])
    assert len(named) > 1
    assert rest[1:] == rest[:-1]
