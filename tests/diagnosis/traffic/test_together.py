"""What operators sent in each epoch, all queue pairs together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.traffic import together as module
from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.ports import Ports, Spans
from diagnosis.traffic.series import EpochSeries
from diagnosis.traffic.together import together
from tests.diagnosis.traffic.made_epochs import EPOCH_NS, UNIT, queue_pairs, spans_of

LANES = 4
ROWS = st.lists(st.tuples(st.integers(1, LANES), st.integers(0, 199), st.integers(1, 9)), min_size=1, max_size=80)


@given(rows=ROWS, quiet=st.integers(2, 40), at_once=st.sampled_from([1, 60, 1 << 20]))
def test_units_silences_and_quantiles_are_those_of_the_sum_over_queue_pairs(
    rows: list[tuple[int, int, int]], quiet: int, at_once: int
) -> None:
    """Where each queue pair is an operator, and where all are one."""
    cells = {(qpn, epoch): units for qpn, epoch, units in rows}
    polls = [
        Poll(low * EPOCH_NS, (low + 100) * EPOCH_NS, EPOCH_NS, UNIT, 4096, qpn, epoch, units)
        for low in (0, 100)
        for qpn, epoch, units in [
            np.array([(q, e - low, cells[q, e]) for q, e in sorted(cells) if low <= e < low + 100], dtype=np.uint32)
            .reshape(-1, 3)
            .T
        ]
    ]
    own = Ports((EpochSeries.join(polls),))
    spans = spans_of(own, queue_pairs(*((qpn, 0, qpn) for qpn in range(1, LANES + 1))), quiet * EPOCH_NS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_AT_ONCE", at_once)
        each = operators(own, spans, spans.lane)
        whole = operators(own, spans, np.zeros(len(spans), dtype=np.int64))
    assert each.keys() == {qpn - 1 for qpn, _ in cells}
    for number, found in each.items():
        assert found == by_hand({at: units for at, units in cells.items() if at[0] == number + 1})
    assert whole == {0: by_hand(cells)}


Measured = tuple[list[float], list[int], float]
"""Units in active epochs, silences, a quantile."""


def operators(own: Ports, spans: Spans, operator: npt.NDArray[np.int64]) -> dict[int, Measured]:
    start, end = np.zeros(LANES, dtype=np.int64), np.full(LANES, 200 * EPOCH_NS)
    found = {}
    for some in together(own, spans, operator, start, end):
        place, silent = some.silences()
        quantile = some.quantile(0.95).tolist()
        for at, number in enumerate(some.operators.tolist()):
            found[number] = some.units[some.place == at].tolist(), silent[place == at].tolist(), quantile[at]
    return found


def by_hand(cells: dict[tuple[int, int], int]) -> Measured:
    units = np.zeros(200)
    for (_, epoch), sent in cells.items():
        units[epoch] += sent
    active = np.flatnonzero(units)
    gaps = np.diff(active) - 1
    return units[active].tolist(), gaps[gaps > 0].tolist(), float(np.quantile(units[active], 0.95))
