"""What communicators serve, while calls come in."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import numpy as np
import pytest

from diagnosis.traffic import identification
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.identification import Identification
from diagnosis.traffic.parallelism import Parallelism, Parallelisms
from tests.diagnosis.traffic.made_calls import Caller, table
from tests.diagnosis.traffic.made_epochs import MB, MS

MEMBERS = {"tensor": (0, 1), "data": (0, 2)}
TREE = Parallelisms(MEMBERS, lambda one, other: one // 2 == other // 2)
ITERATION = 1000 * MS
SERVED: dict[str, Parallelism] = {"tensor": "tp", "data": "dp"}


def trained(iterations: Iterable[int]) -> Caller:
    """Layers in the first part of each iteration, gradients at its end."""
    caller = Caller(0, MEMBERS)
    for iteration in iterations:
        began = iteration * ITERATION
        for layer in range(40):
            caller.call("tensor", "all_reduce", 16 * MB, began + layer * 20 * MS)
        caller.call("data", "all_reduce", 900 * MB, began + 900 * MS)
    return caller


def looked_at_since(one: Identification) -> int | None:
    return one.from_ns


def looked(one: Identification, *callers: Caller, until: int, step: int = 500 * MS) -> list[dict[str, Parallelism]]:
    """What is known after each step up to a time."""
    one.take(table(callers))
    known = []
    for at in range(step, until + step, step):
        one.look(at, TREE)
        known.append(dict(one.known))
    return known


def test_two_iterations_show_what_communicators_serve() -> None:
    one = Identification()
    known = looked(one, trained(range(10)), until=8 * ITERATION)
    assert [serves for serves, _ in itertools.groupby(known)] == [{}, SERVED]
    assert 2 * ITERATION <= (known.index(SERVED) + 1) * 500 * MS <= 4 * ITERATION
    assert (one.from_ns, one.calls) == (None, [])


def test_later_calls_change_nothing() -> None:
    """Whatever has come already of what is called after a step."""
    one, other = Identification(), Identification()
    assert looked(one, trained(range(3)), until=2 * ITERATION) == looked(other, trained(range(9)), until=2 * ITERATION)


def test_calls_at_the_start_alone_show_nothing() -> None:
    one, began = Identification(), Caller(0, MEMBERS)
    for at in range(12):
        began.call("data", "broadcast", 500 * MB, at * MS)
    assert looked(one, began, until=40 * ITERATION)[-1] == {}


def test_what_serves_nothing_at_first_is_looked_at_again() -> None:
    one, small = Identification(), Caller(0, MEMBERS)
    for at in range(70):
        small.call("data", "all_reduce", 8, at * ITERATION)
    known = looked(one, small, until=70 * ITERATION)
    assert (known[0], known[-1]) == ({}, {"data": "none"})
    later = table([trained(range(70, 90))])
    one.look_again((69 * ITERATION, 70 * ITERATION), Calls.from_arrow(table([small])), [later], TREE)
    assert looked_at_since(one) is None
    one.look_again((60 * ITERATION, 70 * ITERATION), Calls.from_arrow(later), [later], TREE)
    assert looked_at_since(one) is None
    one.look_again((70 * ITERATION, 71 * ITERATION), Calls.from_arrow(later), [later], TREE)
    assert looked_at_since(one) == 70 * ITERATION
    for at in range(70, 80):
        one.look(at * ITERATION, TREE)
    assert one.known == SERVED


def test_a_restart_goes_on_as_if_there_had_been_none() -> None:
    whole, first = Identification(), Identification()
    known = looked(whole, trained(range(10)), until=8 * ITERATION)
    looked(first, trained(range(2)), until=ITERATION)
    state = json.loads(json.dumps(first.to_state()))
    second = Identification.from_state(state)
    second.take(table([trained(range(10))]))
    after = []
    for at in np.arange(ITERATION, 8 * ITERATION, 500 * MS).tolist():
        second.look(at + 500 * MS, TREE)
        after.append(dict(second.known))
    assert after == known[2:]


def test_what_was_seen_has_to_do_after_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identification, "MOST_CALLS", 50)
    one = Identification()
    assert looked(one, trained(range(10)), until=2 * ITERATION)[-1] == SERVED
