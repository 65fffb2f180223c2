"""The answer on a run hangs on what happened, not on how ranks and hosts are called."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.traffic.detection import detect
from benchmarks.traffic.plan import Case
from offbeat.settings import Settings
from producers.simulation.nic import simulate_nics


def test_other_names_of_ranks_and_hosts_give_the_same_answer_by_other_names() -> None:
    scenario = Case(30_042, "neighbours/pcie_downgrade/0.5", "default").scenario()
    named, rest = set(), []
    for relabel in (None, 3, 4):
        run = simulate_nics(replace(scenario, relabel=relabel))
        (found,) = detect(run.job, list(run.messages()), Settings.load())
        assert tuple(found["ranks"]) == run.truth.faults[0].ranks
        named.add(tuple(found["ranks"]))
        rest.append([found[name] for name in ("cause", "level", "pattern", "first_iteration", "last_iteration")])
    assert len(named) > 1
    assert rest[1:] == rest[:-1]
