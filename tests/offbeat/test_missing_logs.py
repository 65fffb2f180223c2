"""`offbeat diagnose` of a recording that lacks logs: what they would have shown is unknown, and blamed on nobody."""

import json
import shutil
from pathlib import Path

import pytest

from tests.offbeat.command_line import EXAMPLE, run_offbeat


@pytest.mark.parametrize(
    ("missing", "named"),
    [((5,), []), ((4, 5), []), ((1, 5), []), ((4, 5, 6, 7), []), ((4,), [5]), ((2, 6, 7), [5])],
)
def test_the_slow_rank_or_nobody(tmp_path: Path, missing: tuple[int, ...], named: list[int]) -> None:
    """Rank 5 is slow. Its tensor, data and model-parallel groups show only victims where its log is missing."""
    shutil.copytree(EXAMPLE, tmp_path / "run")
    for rank in missing:
        (tmp_path / "run" / f"rank{rank}.jsonl.gz").unlink()
    done = run_offbeat("diagnose", tmp_path / "run", "--json")
    answer = json.loads(done.stdout)
    assert [rank for incident in answer["incidents"] for rank in incident["ranks"]] == named
    assert answer["coverage"]["ranks_seen"] == 8 - len(missing)
    assert answer["coverage"]["ranks_expected"] == 8
    assert answer["iterations"]["irregular"] == list(range(30, 60))
