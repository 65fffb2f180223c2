"""A run as files: the same rows, and the truth apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from diagnosis.job import Job
from producers.simulation import Fault, Kind, Omissions, simulate, write
from schemas.errors import SettingsError
from tests.producers.simulation.small import small


def lines(folder: Path, rank: int) -> list[dict[str, object]]:
    with gzip.open(folder / f"rank{rank}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("omissions", [Omissions(), Omissions(labels=True, ends=True)])
def test_a_recording_holds_the_rows(tmp_path: Path, omissions: Omissions) -> None:
    run = simulate(small(iterations=3, omissions=omissions))
    write(run, tmp_path / "run")
    rows = run.table.to_pylist()
    for rank in run.job.ranks:
        expected = [
            {**{name: value for name, value in row.items() if value is not None}, "host": run.job.place[rank].host}
            for row in rows
            if row["rank"] == rank
        ]
        assert lines(tmp_path / "run", rank) == expected


def test_the_job_comes_back(tmp_path: Path) -> None:
    run = simulate(small(iterations=1))
    write(run, tmp_path)
    assert Job.from_row(json.loads((tmp_path / "job.json").read_text())) == run.job


def test_the_truth_lies_elsewhere(tmp_path: Path) -> None:
    run = simulate(small(faults=(Fault(Kind.GPU_SLOW, 3, (5,), slowdown=1.5),)))
    (tmp_path / "truth").mkdir()
    write(run, tmp_path / "run", tmp_path / "truth" / "run.json")
    assert json.loads((tmp_path / "truth" / "run.json").read_text())["faults"][0]["rank"] == 3
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "job.json",
        *(f"rank{r}.jsonl.gz" for r in range(8)),
    ]
    for inside in ("truth.json", "deeper/truth.json"):
        with pytest.raises(SettingsError, match="keep the truth elsewhere"):
            write(run, tmp_path / "run", tmp_path / "run" / inside)


def test_a_recording_does_not_depend_on_the_truth_or_the_time(tmp_path: Path) -> None:
    run = simulate(small(iterations=3))
    write(run, tmp_path / "with", tmp_path / "truth.json")
    write(simulate(small(iterations=3)), tmp_path / "without")
    for file in (tmp_path / "with").iterdir():
        assert file.read_bytes() == (tmp_path / "without" / file.name).read_bytes()
