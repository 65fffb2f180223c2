"""What a known cause explains, and what it must not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.findings import CAUSES
from sinks.webhook.inhibition import CONSEQUENCES, Extent, explains
from tests.sinks.webhook.incidents import incident


def host(**columns: Any) -> dict[str, Any]:
    """A slow host of eight ranks."""
    devices = [{"device": "host:host0", "kind": "host", "downside_nics": 0}]
    given = {"cause": "host_slow", "level": "machine", "ranks": list(range(8)), "devices": devices, "lost_ns": 10**11}
    return incident("host", **{**given, **columns})


def gpu(**columns: Any) -> dict[str, Any]:
    """A slow GPU of the host, from a later iteration on."""
    return incident("gpu", **{"first_iteration": 5, "last_iteration": 9, "lost_ns": 10**10, **columns})


def explained(cause: dict[str, Any], other: dict[str, Any]) -> bool:
    return explains(cause, Extent.of(cause), other, Extent.of(other))


def test_a_slow_host_explains_slow_compute_on_it() -> None:
    assert explained(host(), gpu())
    assert explained(host(), gpu(cause="mixed_slow", ranks=[2, 3]))


def test_a_faulty_path_explains_slow_communication_over_it() -> None:
    nic = [{"device": "nic:host0/mlx5_0", "kind": "nic", "downside_nics": 1}]
    path = host(cause="network_path", devices=nic, ranks=[2, 9])
    assert explained(path, gpu(cause="communication_slow", devices=nic, ranks=[2]))
    assert explained(path, gpu(cause="communication_slow", devices=nic, ranks=[2, 9]))
    assert not explained(path, gpu(cause="communication_slow", ranks=[2, 9]))


@pytest.mark.parametrize(
    ("cause", "other"),
    [
        ({}, {"cause": "communication_slow"}),  # a NIC is not slow because its host computes slowly
        ({}, {"cause": "host_slow"}),
        ({"cause": "compute_slow"}, {}),  # the narrower incident is the better answer
        ({}, {"ranks": [8]}),  # elsewhere
        ({}, {"ranks": [7, 8]}),
        ({}, {"ranks": list(range(8))}),  # not within it, but all of it
        ({}, {"ranks": [], "devices": []}),
        ({"candidates": [[0, 1, 2, 3], [4, 5, 6, 7]]}, {}),  # in doubt itself
        ({}, {"first_iteration": 3}),  # began before it
        ({"pattern": "spike"}, {"first_iteration": 6}),  # began after its last iteration, and it does not last
        ({"first_iteration": None}, {}),
        ({}, {"first_iteration": None}),
        ({}, {"lost_ns": 2 * 10**11}),  # costs more than it: something else is there
        ({"lost_ns": None}, {}),
        ({}, {"lost_ns": None}),
    ],
)
def test_it_explains_nothing_else(cause: dict[str, Any], other: dict[str, Any]) -> None:
    assert explained(host(last_iteration=5), gpu())
    assert not explained(host(**{"last_iteration": 5, **cause}), gpu(**other))


def test_what_lasts_explains_what_begins_at_any_time_later() -> None:
    assert explained(host(pattern="persistent_degradation", last_iteration=6), gpu(first_iteration=50))
    assert not explained(host(pattern="spike", last_iteration=6), gpu(first_iteration=50))


@pytest.mark.parametrize("cause", CAUSES)
def test_a_hang_is_never_explained_away_and_nothing_explains_itself(cause: str) -> None:
    assert not any(other.startswith("hang") or other == cause for other in CONSEQUENCES.get(cause, ()))
    assert not explained(host(cause=cause), host(cause=cause))


bounds = st.one_of(st.none(), st.integers(0, 9))
extents = st.builds(Extent, bounds, bounds, bounds)


@given(extents, extents)
def test_an_extent_only_grows_whichever_record_comes_first(one: Extent, other: Extent) -> None:
    both = one.widened(other)
    assert both == other.widened(one) == both.widened(one) == both.widened(both)
    assert Extent(None, None, None).widened(one) == one
