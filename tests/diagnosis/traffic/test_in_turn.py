"""Operators that come one by one are what a walk finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.traffic import segmentation
from diagnosis.traffic.bursts import find_bursts
from diagnosis.traffic.in_turn import Pairs
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.segmentation import SegmentationRules, Segments, segment
from diagnosis.traffic.transfers import Transfers
from tests.diagnosis.traffic.made_epochs import MB, MS, SECOND, Sent, port, queue_pairs

RULES = SegmentationRules()
PEERS = (8, 9, 10)

OPERATORS = st.lists(
    st.tuples(
        st.integers(1, 20),  # MB
        st.sampled_from([100_000, 2 * MS, 30 * MS]),  # pause before it
        st.sampled_from([0.4, 1.0, 1.02, 1.5]),  # sent over what is expected
        st.sampled_from([-MS, 100_000, 20 * MS, 200 * MS]),  # from the call to the traffic
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(of_peer=st.tuples(OPERATORS, OPERATORS, OPERATORS), lost=st.booleans())
def test_what_is_told_without_a_walk_is_what_a_walk_finds(
    of_peer: tuple[list[tuple[int, int, float, int]], ...], lost: bool
) -> None:
    """Early or late, too small or too large, back to back or apart, with calls that run ahead or a second that is
    lost."""
    sent, rows = [], []
    for peer, operators in zip(PEERS, of_peer, strict=True):
        at = SECOND - 40 * MS
        for size, pause, inflation, lag in operators:
            at += pause
            one = Sent(peer, at, int(size * MB * inflation))
            sent.append(one)
            rows.append((peer, max(at - lag, 0), size * MB))
            at += int(one.size / one.rate_bytes_per_s * 1e9)
    own = port(sent, seconds=3, lost=(1,) if lost else ())
    transfers = transfers_of(sorted(rows))
    with pytest.MonkeyPatch.context() as patched:
        found = segmented(own, transfers)
        patched.setattr(segmentation, "in_turn", lambda ports, bursts, transfers, pairs: np.zeros(len(pairs), bool))
        walked = segmented(own, transfers)
    for name in ("start_ns", "end_ns", "sent", "state", "silent_ns", "coverage"):
        assert np.array_equal(getattr(found, name), getattr(walked, name)), name
    assert np.array_equal(found.pieces.transfer, walked.pieces.transfer)


def test_operators_with_silence_between_them_need_no_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [(10 + 20 * i) * MS for i in range(10)]
    own = port([Sent(peer, start, 5 * MB) for peer in PEERS for start in at])
    walked: list[int] = []

    def counted(ports: Ports, bursts: object, transfers: object, pairs: Pairs, rules: object) -> list[object]:
        walked.append(len(pairs))
        return []

    monkeypatch.setattr(segmentation, "_walks", counted)
    found = segmented(own, transfers_of([(peer, start - 100_000, 5 * MB) for peer in PEERS for start in at]))
    assert walked == [0]
    assert (found.sent == 5 * MB).all()


def transfers_of(rows: list[tuple[int, int, int]]) -> Transfers:
    """Of peer, launch and bytes."""
    peer, launch, size = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Transfers(np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64), peer, size, launch)


def segmented(own: Ports, transfers: Transfers) -> Segments:
    lanes = queue_pairs(*((peer, 0, peer) for peer in PEERS)).distinct(own.clock_error_ns)
    bursts = find_bursts(own, lanes, RULES.delta(own.epoch_ns))
    return segment(own, bursts, transfers, np.ones(len(transfers), dtype=np.int64), RULES)
