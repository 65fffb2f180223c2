"""Logs that cover a part of the run."""

import pyarrow as pa
import pytest

from diagnosis.partial_logs import PartialLog, partial_logs

Span = tuple[int, int] | None


def told(spans: dict[int, Span]) -> list[PartialLog]:
    """Of ranks that log each iteration from the first to the last of theirs, or None: only before the first one."""
    rows = [(rank, each) for rank, span in spans.items() for each in (range(span[0], span[1] + 1) if span else (None,))]
    rank, iteration = zip(*rows, strict=True) if rows else ((), ())
    return partial_logs(pa.table({"rank": pa.array(rank, pa.int32()), "iteration": pa.array(iteration, pa.int32())}))


def test_who_begins_late_or_ends_early_is_told_with_what_is_there() -> None:
    spans: dict[int, Span] = {0: (3, 20), 1: (10, 20), 2: (3, 12), 3: (3, 20), 4: (10, 20), 5: None}
    assert told(spans) == [PartialLog((1, 4), 10, 20), PartialLog((2,), 3, 12), PartialLog((5,), None, None)]


@pytest.mark.parametrize("spans", [{0: (3, 20), 1: (4, 19), 2: (3, 20)}, {0: (0, 0)}, {0: None, 1: None}, {}])
def test_logs_that_begin_and_end_together_are_whole(spans: dict[int, Span]) -> None:
    """The iteration amid which a log begins or ends is no part of what is missing, whoever lacks it."""
    assert told(spans) == []
