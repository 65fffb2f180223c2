"""Which spine slow channels have in common: with routes, and where all of an ECMP set are alike."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from diagnosis.job import Job, Place
from diagnosis.operator_graph.leaf import Leaf, OperatorRef
from diagnosis.operator_graph.spines import culprit_spines, with_spines_alone_in_common
from diagnosis.operator_graph.switch_settings import SwitchSettings

NICS = 8
"""Ranks, each below a ToR of its own, all of which reach four spines."""

SPINES = ("spine:0", "spine:1", "spine:2", "spine:3")


def job(taken: Mapping[tuple[int, int], int] | None = None) -> Job:
    """``taken``: the spine between two ranks, both ways."""
    nic, tor = [f"nic:h{r}/n" for r in range(NICS)], [f"tor:{r}" for r in range(NICS)]
    kinds = {"nic": nic, "tor": tor, "spine": SPINES}
    routes = [
        {"source": nic[x], "destination": nic[y], "switches": [tor[x], SPINES[over], tor[y]]}
        for (a, b), over in (taken or {}).items()
        for x, y in ((a, b), (b, a))
    ]
    row = {
        "devices": [{"device": name, "kind": kind} for kind, of in kinds.items() for name in of],
        "links": [{"link": f"link:{r}", "a": nic[r], "b": tor[r]} for r in range(NICS)],
        "paths": [{"rail": 0, "tor": name, "spines": list(SPINES)} for name in tor],
        "routes": routes,
    }
    return Job("j", tuple(Place(r, f"h{r}", 0, ("n",)) for r in range(NICS)), (), row=row)


def leaf(*members: int) -> Leaf:
    return Leaf(members[0], "c", members, 20, 14, OperatorRef(members[0], "c", 0, "send"), members[:1])


def named(job: Job, leaves: list[Leaf], slow_of: Mapping[tuple[int, ...], bool] | None = None) -> list[set[str]]:
    found = culprit_spines(job, leaves, slow_of or {}, 0.75)
    return [{device.device for device in found.get(each, ())} for each in leaves]


def test_where_nothing_was_traced_all_spines_are_alike() -> None:
    leaves = [leaf(0, 1), leaf(2, 3)]
    assert named(job(), leaves) == [set(SPINES)] * 2
    assert named(job(), leaves, {(0, 1): True, (2, 3): True, (4, 5): False}) == [set(SPINES)] * 2


def test_slow_channels_name_the_spine_that_they_have_in_common() -> None:
    ring = {(0, 1): 2, (1, 4): 0, (0, 4): 1, (2, 3): 2, (3, 5): 3, (2, 5): 0}
    assert named(job(ring), [leaf(0, 1, 4), leaf(2, 3, 5)]) == [{"spine:0", "spine:2"}] * 2


def test_channels_that_are_fine_speak_for_the_spines_that_carry_them() -> None:
    ring = {(0, 1): 2, (1, 4): 0, (0, 4): 1, (2, 3): 2, (3, 5): 3, (2, 5): 0, (6, 7): 0}
    slow_of = {(0, 1, 4): True, (2, 3, 5): True, (6, 7): False}
    assert named(job(ring), [leaf(0, 1, 4), leaf(2, 3, 5)], slow_of) == [{"spine:2"}] * 2


def test_channels_that_were_not_traced_hide_nothing() -> None:
    assert named(job({(0, 1): 2}), [leaf(0, 1), leaf(2, 3), leaf(4, 5)]) == [{"spine:2"}] * 3
    assert named(job({(0, 1): 2}), [leaf(0, 1), leaf(2, 3)], {(0, 1): True, (2, 3): True}) == [{"spine:2"}] * 2


def test_a_route_that_has_moved_is_outvoted() -> None:
    traced = {(0, 1): 2, (2, 3): 2, (4, 5): 2, (6, 7): 1}
    assert named(job(traced), [leaf(0, 1), leaf(2, 3), leaf(4, 5), leaf(6, 7)])[:3] == [{"spine:2"}] * 3


def test_channels_with_nothing_in_common_have_spines_of_their_own() -> None:
    traced = {(0, 1): 2, (2, 3): 2, (4, 5): 1}
    assert named(job(traced), [leaf(0, 1), leaf(2, 3), leaf(4, 5)]) == [{"spine:2"}] * 2 + [{"spine:1"}]


def test_spines_that_carry_as_many_channels_but_none_together_are_told_apart() -> None:
    assert named(job({(0, 1): 2, (4, 5): 1}), [leaf(0, 1), leaf(4, 5)]) == [{"spine:2"}, {"spine:1"}]
    bridged = {(0, 1): 2, (4, 5): 1, (2, 3): 2, (3, 6): 1, (2, 6): 1}
    assert named(job(bridged), [leaf(0, 1), leaf(4, 5), leaf(2, 3, 6)]) == [{"spine:1", "spine:2"}] * 3


def test_that_nobody_looked_at_a_spine_is_no_evidence() -> None:
    taken = {(0, 1): 0, (1, 4): 1, (0, 4): 0, (2, 3): 0, (5, 6): 0}
    slow_of: dict[tuple[int, ...], bool] = {(2, 3): True, (5, 6): False}
    assert named(job(taken), [leaf(0, 1, 4)], slow_of) == [{"spine:0", "spine:1"}]


@pytest.mark.parametrize(
    ("slow_of", "is_spine"),
    [
        ({(2, 3): True, (4, 5): True}, True),
        ({(2, 3): True, (4, 5): True, (6, 7): False}, True),  # two in three are slow
        ({(2, 3): True, (4, 5): False, (6, 7): False}, False),
        ({(2, 3): True}, False),  # two channels apart are not enough
        ({(1, 2): True, (1, 3): True}, False),  # they share a NIC with the leaf
        ({(2, 4): True, (4, 6): True}, False),  # of another spine
        ({(3, 5): True, (5, 7): True}, False),  # nobody traced them: any spine may have carried them
        ({}, False),
    ],
)
def test_beside_a_leaf_count_slow_channels_traced_over_its_spine(
    slow_of: Mapping[tuple[int, ...], bool], is_spine: bool
) -> None:
    over_2 = [(0, 1), (2, 3), (4, 5), (6, 7), (1, 2), (1, 3)]
    taken = job(dict.fromkeys(over_2, 2) | {(2, 4): 1, (4, 6): 1})
    on_it, elsewhere = leaf(0, 1), leaf(2, 4)
    found = with_spines_alone_in_common(taken, [on_it, elsewhere], slow_of, SwitchSettings())
    assert found == ([on_it] if is_spine else [])


@pytest.mark.parametrize("leaves", [[], [leaf(0, 0)]])
def test_what_crosses_no_spine_names_none(leaves: list[Leaf]) -> None:
    assert named(job(), leaves) == [set()] * len(leaves)
