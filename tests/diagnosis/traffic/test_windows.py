"""Operators are told while telemetry comes in, by what is known of them once they are over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from diagnosis.traffic.telling import Served, Surroundings, tell
from diagnosis.traffic.volume import ring_bytes, tree_bytes
from diagnosis.traffic.windows import NicWindow, WindowRules
from tests.diagnosis.traffic.made_calls import Caller, calls
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, MB, MS, SECOND, Sent, poll, queue_pairs

MEMBERS = {"data": (0, 1, 2, 3)}
STEP = 500 * MS
AROUND = Surroundings(MEMBERS, lambda one, other: one == other)


@pytest.mark.parametrize("rate_bytes_per_s", [1.2e9, 1.4e9, 1.6e9])
def test_an_algorithm_is_not_told_by_an_operator_that_still_runs(rate_bytes_per_s: float) -> None:
    """Halfway around a ring a rank has sent what it would have sent in all along a tree."""
    payload = 1000 * MB
    caller = Caller(0, MEMBERS)
    caller.call("data", "all_reduce", payload, 10 * MS)
    ring = Sent(7, 11 * MS, ring_bytes("all_reduce", payload, 4), rate_bytes_per_s)
    window = NicWindow("mlx5_0", WindowRules(), polls=[poll([ring], at * SECOND, (at + 1) * SECOND) for at in range(4)])
    [row] = told(window, caller)
    assert (row["algorithm"], row["state"]) == ("ring", "complete")
    assert row["sent_bytes"] == ring.size


@pytest.mark.parametrize("held_up_ns", [22 * MS, 50 * MS, 700 * MS])
def test_what_a_late_receiver_holds_up_is_not_told_before_it_goes_on(held_up_ns: int) -> None:
    """Right when it has sent what it would have along a tree, and for longer than operators are silent in between."""
    payload, part = 24 * MB, 24 * MB
    whole = ring_bytes("all_reduce", payload, 4)
    caller = Caller(0, MEMBERS)
    caller.call("data", "all_reduce", payload, 450 * MS)
    sent = [Sent(7, 451 * MS, part), Sent(7, 453 * MS + held_up_ns, whole - part)]
    window = NicWindow("mlx5_0", WindowRules(), polls=[poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(4)])
    [row] = told(window, caller)
    assert (row["algorithm"], row["state"], row["sent_bytes"]) == ("ring", "complete", whole)


def test_the_first_operators_along_a_tree_are_told_once_others_follow_or_nothing_does() -> None:
    payload = 24 * MB
    caller = Caller(0, MEMBERS)
    for at in (100, 200, 300):
        caller.call("data", "all_reduce", payload, at * MS)
    sent = [Sent(7 + peer, at * MS, payload) for peer in (0, 1) for at in (100, 200, 300)]
    window = NicWindow("mlx5_0", WindowRules(), polls=[poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(4)])
    served = Served(window, np.arange(3), queue_pairs((7, 0, 1), (8, 0, 2)))
    steps = [tell(until_ns, calls(caller), [served], AROUND) for until_ns in range(STEP, 4 * SECOND + 1, STEP)]
    assert [sum(one.metrics.num_rows for one in told) for told in steps[:4]] == [2, 1, 0, 0]
    rows = [row for told in steps for one in told for row in one.metrics.to_pylist()]
    assert [(row["algorithm"], row["state"]) for row in rows] == 3 * [("tree", "complete")]


def test_an_algorithm_is_known_no_longer_once_more_is_sent_than_it_can_explain() -> None:
    """The first operator waits for a late receiver for longer than anything is waited for, right when it has sent what
    it would have along a tree."""
    payload = 24 * MB
    part, whole = tree_bytes("all_reduce", payload, 4, 2), ring_bytes("all_reduce", payload, 4)
    caller, sent = Caller(0, MEMBERS), [Sent(7, 470 * MS, part), Sent(7, 1700 * MS, whole - part)]
    for at in (469, 2469, 3269):
        caller.call("data", "all_reduce", payload, at * MS)
    sent += [Sent(7, at * MS, whole) for at in (2470, 3270)]
    window = NicWindow("mlx5_0", WindowRules(), polls=[poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(4)])
    rows = told(window, caller)
    assert rows[0]["algorithm"] == "tree"
    assert [(row["algorithm"], row["expected_bytes"]) for row in rows[1:]] == 2 * [("ring", whole)]
    assert [row["sent_bytes"] for row in rows[1:]] == 2 * [whole]


@pytest.mark.parametrize("beside", ["other epochs", "other units", "the whole port"])
def test_what_is_told_in_other_epochs_or_units_or_of_the_whole_port_hides_nothing(beside: str) -> None:
    """An agent began anew, or another one counts the same NIC."""
    payload = 24 * MB
    caller, sent = Caller(0, MEMBERS), []
    for at in (1100, 2100, 3100):
        caller.call("data", "all_reduce", payload, at * MS)
        sent.append(Sent(7, (at + 1) * MS, ring_bytes("all_reduce", payload, 4)))
    polls = [poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(4)]
    other = poll(sent, 0, SECOND, epoch_ns=64_000 if beside == "other epochs" else EPOCH_NS)
    if beside == "other units":
        other = replace(other, unit_bytes=2 * other.unit_bytes)
    if beside == "the whole port":
        polls += [replace(one, qpn=None) for one in polls]
    else:
        polls[0] = other
    rows = told(NicWindow("mlx5_0", WindowRules(), polls=polls), caller)
    assert [(row["algorithm"], row["state"]) for row in rows] == 3 * [("ring", "complete")]


def test_members_that_are_taken_back_make_what_is_called_unknown() -> None:
    payload = 24 * MB
    caller, sent = Caller(0, MEMBERS), []
    for at in (100, 1100, 2100):
        caller.call("data", "all_reduce", payload, at * MS)
        sent.append(Sent(7, (at + 1) * MS, ring_bytes("all_reduce", payload, 4)))
    window = NicWindow("mlx5_0", WindowRules(), polls=[poll(sent, at * SECOND, (at + 1) * SECOND) for at in range(4)])
    served = Served(window, np.arange(3), queue_pairs((7, 0, 1)))
    [known] = tell(SECOND, calls(caller), [served], AROUND)
    [unknown] = tell(3 * SECOND, calls(caller), [served], Surroundings({}, AROUND.same_host))
    assert (known.metrics.num_rows, unknown.metrics.num_rows) == (1, 0)


def told(window: NicWindow, caller: Caller) -> list[dict[str, Any]]:
    """Rows of analysis.traffic_metrics of the first four seconds, step by step."""
    called = calls(caller)
    served = Served(window, np.arange(len(called)), queue_pairs((7, 0, 1)))
    steps = [tell(until_ns, called, [served], AROUND) for until_ns in range(STEP, 4 * SECOND + 1, STEP)]
    return [row for told in steps for one in told for row in one.metrics.to_pylist()]
