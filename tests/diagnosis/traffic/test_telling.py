"""NICs of a host are looked at together, and each is told what it would be alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.traffic.telling import Served, Surroundings, tell
from diagnosis.traffic.ways import Way
from diagnosis.traffic.windows import NicWindow, WindowRules
from tests.diagnosis.traffic.made_calls import Caller, calls
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, MB, MS, SECOND, Sent, poll, queue_pairs

MEMBERS = {"data": (0, 1, 8, 9), "pair": (0, 8)}
AROUND = Surroundings(MEMBERS, lambda one, other: one // 8 == other // 8)
CALLED = tuple(range(100, 3900, 170))
"""Milliseconds."""


def nics() -> list[Served]:
    """Rank 0 sends by two NICs, one of which stops for a second, rank 1 by a third one that counts in other epochs and
    by another clock, a fourth one has told nothing, and of a fifth one no queue pair is known."""
    sent = {
        "a": [Sent(7, (at + 1) * MS, 12 * MB) for at in CALLED],
        "b": [Sent(7, (at + 2 + 1000 * (at > 2000)) * MS, 6 * MB) for at in CALLED],
        "c": [Sent(7, (at + 1) * MS, 12 * MB) for at in CALLED],
        "d": [],
        "e": [Sent(7, (at + 1) * MS, 3 * MB) for at in CALLED],
    }
    records = {"a": [(7, 0, 8)], "b": [(7, 0, 8)], "c": [(7, 1, 9)], "d": [(7, 1, 9)], "e": []}
    ranks = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 0}
    served = []
    for nic, own in sent.items():
        epoch_ns = 2 * EPOCH_NS if nic == "c" else EPOCH_NS
        seconds = [(at * SECOND, (at + 1) * SECOND) for at in range(4)]
        polls = [poll(own, *second, epoch_ns=epoch_ns, clock_error_ns=ranks[nic]) for second in seconds]
        window = NicWindow(nic, WindowRules(), polls=[] if nic == "d" else polls)
        served.append(Served(window, np.flatnonzero(HOST.rank == ranks[nic]), queue_pairs(*records[nic])))
    return served


def _calls() -> list[Caller]:
    callers = [Caller(0, MEMBERS), Caller(1, {"data": (1, 0, 8, 9)})]
    for at in CALLED:
        for caller in callers:
            caller.call("data", "all_reduce", 8 * MB, at * MS)
        callers[0].exchange("pair", {8: 4 * MB}, (at + 60) * MS)
    return callers


HOST = calls(*_calls())


def told(served: list[Served]) -> dict[str, list[dict[str, Any]]]:
    """Rows of both topics, NIC by NIC."""
    rows: dict[str, list[dict[str, Any]]] = {one.window.nic: [] for one in served}
    for until_ns in range(SECOND // 2, 4 * SECOND + 1, SECOND // 2):
        for found in tell(until_ns, HOST, served, AROUND):
            for row in [*found.operators.to_pylist(), *found.metrics.to_pylist()]:
                rows[row["nic"]].append(row)
    return rows


def test_nics_that_are_looked_at_together_are_told_what_each_is_alone() -> None:
    together, alone = nics(), nics()
    each = {nic: rows for one in alone for nic, rows in told([one]).items()}
    assert told(together) == each
    assert [bool(rows) for rows in each.values()] == [True, True, True, False, True]
    assert [one.window.to_state() for one in together] == [one.window.to_state() for one in alone]


def test_what_was_told_is_not_told_again_after_a_restart() -> None:
    [one, *_] = nics()
    assert sum(found.metrics.num_rows for found in tell(2 * SECOND, HOST, [one], AROUND))
    saved = NicWindow.from_state(one.window.nic, one.window.rules, one.window.to_state())
    again = replace(one, window=replace(saved, polls=one.window.polls))
    assert sum(found.metrics.num_rows for found in tell(2 * SECOND, HOST, [again], AROUND)) == 0


@pytest.mark.parametrize("before", [(50,), (50, 100, 150)])
@pytest.mark.parametrize(("share", "state"), [(0, "missing_start"), (1 / 3, "incomplete"), (1 / 15, "incomplete")])
def test_what_does_not_end_is_told_though_its_kind_was_seen_in_the_same_step_alone(
    share: float, state: str, before: Sequence[int]
) -> None:
    """A job that hangs soon after its beginning: by which algorithm its last operator would go is known."""
    caller = Caller(0, MEMBERS)
    for at in (*before, 450):
        caller.call("data", "all_gather", 4 * MB, at * MS)
    host = calls(caller)
    sent = [Sent(7, (at + 1) * MS, 12 * MB) for at in before]
    sent += [Sent(7, 451 * MS, int(share * 12 * MB))] if share else []
    window = NicWindow("a", WindowRules(), polls=[poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(3)])
    served = [Served(window, np.arange(len(host)), queue_pairs((7, 0, 8)))]
    steps = range(SECOND // 2, 3 * SECOND + 1, SECOND // 2)
    told = [step.metrics for until_ns in steps for step in tell(until_ns, host, served, AROUND)]
    found = {row["seq"]: row["state"] for table in told for row in table.to_pylist()}
    assert found == dict.fromkeys(range(len(before)), "complete") | {len(before): state}


@pytest.mark.parametrize("mapped", [(6, 7), (7,)], ids=["all", "one of two"])
def test_a_queue_pair_without_a_record_keeps_nothing_from_ending(mapped: Sequence[int]) -> None:
    caller = Caller(0, MEMBERS)
    for at in CALLED:
        caller.call("pair", "send", 8 * MB, at * MS, 8)
    host = calls(caller)
    sent = [Sent(lane, (at + 1) * MS, (4 - (at == CALLED[-1])) * MB) for at in CALLED for lane in (6, 7)]
    window = NicWindow("a", WindowRules(), polls=[poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(6)])
    served = [Served(window, np.arange(len(host)), queue_pairs(*((lane, 0, 8) for lane in mapped)))]
    steps = range(SECOND // 2, 6 * SECOND + 1, SECOND // 2)
    states = {
        row["seq"]: row["state"]
        for at in steps
        for one in tell(at, host, served, AROUND)
        for row in one.metrics.to_pylist()
    }
    found = {"complete", "incomplete"} if mapped == (6, 7) else {"unknown"}
    assert set(states.values()) == found, "the last one sends three quarters"
    restored = NicWindow.from_state("a", WindowRules(), window.to_state())
    assert restored.mapped == window.mapped == ({Way(0, 8, "pair", True)} if mapped == (6, 7) else set())
