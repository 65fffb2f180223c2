"""What blocks receive is what others send them, slice by slice, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.simulation.nic import slices
from producers.simulation.nic.hardware import KIB, MIB, Hardware

MACHINES = st.builds(
    Hardware,
    channels=st.sampled_from([1, 2, 4, 8]),
    slice_bytes=st.sampled_from([128 * KIB, 512 * KIB, MIB]),
    slices_per_chunk=st.sampled_from([1, 2]),
)
SIZES = st.integers(1, 3000).map(lambda pages: pages * 4096 + 512)


@given(MACHINES, SIZES, st.integers(2, 9), st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]))
@settings(max_examples=60, deadline=None)
def test_a_member_of_a_ring_receives_what_the_one_before_sends(
    hardware: Hardware, size: int, members: int, op: str
) -> None:
    protocol = hardware.protocol(size)
    sent = 0
    for channel in range(protocol.channels):
        steps = [slices.ring(op, size, members, i, channel, hardware) for i in range(members)]
        for before, after in zip(steps, steps[1:] + steps[:1], strict=True):
            leaving, coming = before.sizes[before.sends[:, 0]], after.sizes[after.receives[:, 0]]
            assert np.array_equal(leaving, coming)
            assert (leaving > 0).all()
            assert leaving.max(initial=0) <= protocol.slice_bytes * protocol.expansion + 1
            sent += int(leaving.sum())
    passes = 2 if op == "all_reduce" else 1
    whole = size if op == "all_reduce" else size // members * members
    assert sent == pytest.approx(passes * (members - 1) * whole * protocol.expansion, rel=0.01, abs=members * 4096)


@given(MACHINES, SIZES)
@settings(max_examples=60, deadline=None)
def test_both_sides_of_a_transfer_agree(hardware: Hardware, size: int) -> None:
    protocol = hardware.protocol(size)
    total = 0
    for channel in range(protocol.channels):
        sending, receiving = (slices.transfer(size, channel, side, hardware) for side in (True, False))
        assert np.array_equal(sending.sizes, receiving.sizes)
        assert sending.sends[:, 0].all()
        assert receiving.receives[:, 0].all()
        assert not receiving.sends.any()
        total += int(sending.sizes.sum())
    assert total == pytest.approx(size * protocol.expansion, abs=len(range(protocol.channels)) + 1)


@given(MACHINES, SIZES, st.integers(0, 2), st.booleans())
@settings(max_examples=40, deadline=None)
def test_each_half_of_an_all_reduce_goes_over_its_tree(
    hardware: Hardware, size: int, children: int, has_parent: bool
) -> None:
    channels = hardware.protocol(size).channels
    for upward in (True, False):
        parts = [slices.tree(size, c, children, has_parent, upward, hardware) for c in range(channels)]
        assert sum(p.sizes.sum() for p in parts) == pytest.approx(
            size * hardware.protocol(size).expansion, abs=channels + 1
        )
        for part in parts:
            assert (part.receives.sum(axis=1) == (children if upward else has_parent)).all()
