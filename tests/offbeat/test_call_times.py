"""Logs that carry call times only, as Megatrace writes them: who is slow shows in who calls last, and waits least."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from diagnosis.arrays import Ints
from diagnosis.columns import integers
from diagnosis.job import Layout
from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings
from producers.importers.recording import Recording, load
from producers.importers.recording import write as write_recording
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from tests.producers.importers.megatrace_log import COUNTED, HASHED, PLAIN, VARIANTS, write
from tests.producers.importers.queued_calls import queued
from tests.recordings import EXAMPLE, sample

SLOW = (12, 18)
ITERATIONS = 21


@pytest.fixture(scope="module")
def example() -> Recording:
    return load([EXAMPLE])


def answer(folder: Path, layout: Layout | None = None) -> dict[str, Any]:
    diagnosis = diagnose([folder], Reading(layout=layout), Settings())
    assert not diagnosis.refused
    return diagnosis.answer


def found(answer: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(incident["cause"], incident["ranks"]) for incident in answer["incidents"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_real_slow_rank_is_named_by_its_calls_alone(tmp_path: Path, example: Recording, variant: str) -> None:
    told = answer(write(tmp_path / "run", example.table, variant, ending="log.gz"))
    assert found(told) == [("compute_slow", [5])]
    [incident] = told["incidents"]
    assert incident["iterations"] == [30, 58]  # when the last iteration ended is not known
    assert incident["explanation"].endswith("late packets look alike; check its NIC and its peers'.")
    assert told["layout"] == {"tp": 2, "pp": 2, "dp": 2, "source": "inferred"}


def test_streams_tell_which_ranks_meet(tmp_path: Path) -> None:
    """JSON lines of calls that name neither communicators nor numbers, but each rank's own streams."""
    for path in sorted(EXAMPLE.glob("rank*.jsonl.gz")):
        with gzip.open(path, "rt") as lines, gzip.open(tmp_path / path.name, "wt") as written:
            for row in map(json.loads, lines):
                stream = row.pop("comm").rstrip("0123456789")
                kept = {name: row[name] for name in ("rank", "op", "bytes", "call_ns")}
                written.write(json.dumps({**kept, "stream": stream}) + "\n")
    told = answer(tmp_path)
    assert found(told) == [("compute_slow", [5])]
    assert told["layout"] == {"tp": 2, "pp": 2, "dp": 2, "source": "inferred"}


def run(tp: int, pp: int, dp: int, *faults: Fault, seed: int = 5) -> SimulatedRun:
    scenario = Scenario(
        seed=seed, tp=tp, pp=pp, dp=dp, iterations=ITERATIONS, microbatches=4, layers=2 * pp, faults=faults
    )
    return simulate(scenario)


def slow(rank: int, kind: Kind = Kind.GPU_SLOW) -> Fault:
    return Fault(kind=kind, rank=rank, iterations=tuple(range(SLOW[0], SLOW[1] + 1)), slowdown=1.5)


def as_queued(run: SimulatedRun, culprit: int | None) -> pa.Table:
    """The run's log on hosts that run ahead: a GPU has 1 ms to do after a pass' last collective, a slow one 3 ms."""
    tensor = {c.communicator for c in run.job.communicators if c.kind == "tp"}
    noise = np.random.default_rng(1).uniform(0.9, 1.1, (run.scenario.world, ITERATIONS))

    def behind_ns(rank: Ints, iteration: Ints) -> Ints:
        hit = (rank == culprit) & (iteration >= SLOW[0]) & (iteration <= SLOW[1])
        return (1e6 * np.where(hit, 3, 1) * noise[rank, iteration]).astype(np.int64)

    return queued(run.table, tensor.__contains__, behind_ns)


@pytest.mark.parametrize(
    ("shape", "rank", "variant"),
    [
        ((2, 4, 1), 5, COUNTED),
        ((2, 4, 1), 0, PLAIN),
        ((4, 2, 2), 14, COUNTED),
        ((2, 2, 2), 3, HASHED),
        ((8, 1, 2), 9, COUNTED),
    ],
)
def test_who_keeps_the_others_is_named_where_calls_are_queued(
    tmp_path: Path, shape: tuple[int, int, int], rank: int, variant: str
) -> None:
    made = run(*shape, slow(rank))
    told = answer(write(tmp_path / "run", as_queued(made, rank), variant))
    assert found(told) == [("compute_slow", [rank])]
    assert "late packets look alike" in told["incidents"][0]["explanation"]


def test_a_slow_channel_keeps_all_of_its_members(tmp_path: Path) -> None:
    made = run(4, 2, 2, slow(9, Kind.NIC_SLOW))
    [(cause, ranks)] = found(answer(write(tmp_path / "run", as_queued(made, None))))
    assert cause == "communication_slow"
    assert 9 in ranks


@pytest.mark.parametrize("variant", [PLAIN, COUNTED])
def test_a_healthy_run_has_nothing_wrong(tmp_path: Path, variant: str) -> None:
    made = run(2, 4, 2)
    assert found(answer(write(tmp_path / "waiting", made.table, variant))) == []
    assert found(answer(write(tmp_path / "queued", as_queued(made, None), variant))) == []


def test_a_ring_that_was_written_over_is_counted_and_does_no_harm(tmp_path: Path) -> None:
    made = run(2, 4, 1, slow(6))

    def overrun(rank: int, lines: list[str]) -> list[str]:
        return lines if rank % 3 else lines[:150] + lines[250:]

    whole = answer(write(tmp_path / "whole", as_queued(made, 6)))
    told = answer(write(tmp_path / "gaps", as_queued(made, 6), keep=overrun))
    assert found(told) == found(whole) == [("compute_slow", [6])]
    more = told["coverage"]["lost_lines"] - whole["coverage"]["lost_lines"]
    assert 3 * 100 * 0.8 <= more <= 3 * 100  # of a group call that is lost, only one line is known


def test_a_layout_given_by_hand_wins(tmp_path: Path, example: Recording) -> None:
    folder = write(tmp_path / "run", example.table)
    given = Layout(tp=2, pp=2, dp=2, source="given")
    told = answer(folder, given)
    assert told["layout"]["source"] == "given"
    assert found(told) == [("compute_slow", [5])]


def eight_gpus(rank: int) -> list[str]:
    """The lines of a rank of the recording of eight GPUs."""
    file = sample("megatrace-8ranks-rank2-slow") / f"rank_{rank}.log.gz"
    return gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_lines_lost_here_and_there_from_a_log_that_numbers_nothing_blame_nobody_else(tmp_path: Path, seed: int) -> None:
    kept = np.random.default_rng(seed)
    for rank in range(8):
        lines = [line for line in eight_gpus(rank) if kept.random() > 0.0003]
        bare = [re.sub(r"^\[save_count \d+\] | opCount.*", "", line) for line in lines]
        (tmp_path / f"rank_{rank}.log").write_text("".join(bare))
    assert found(answer(tmp_path)) == [("compute_slow", [2])]


def test_who_went_on_last_is_not_told_by_those_alone_of_whom_it_is_known(tmp_path: Path) -> None:
    """Of many operators it is unknown what is usual for the slow rank, as an early iteration lacks numbers: of none of
    them is it known that its neighbour went on last.
    """
    recording = load([sample("megatrace-8ranks-rank2-slow")])
    table = recording.table
    tensor = np.array([name.startswith("tp") for name in table.column("communicator").to_pylist()])
    lost = tensor & (integers(table, "rank") == 2) & (integers(table, "iteration") == 18)
    lost &= np.isin(integers(table, "position"), np.arange(100, 300))
    assert lost.any()
    seq, at = integers(table, "seq"), table.schema.get_field_index("seq")
    known = pa.array(seq, table.schema.field(at).type, mask=lost | (seq < 0))
    table = table.set_column(at, table.schema.field(at), known)
    write_recording(replace(recording, table=table), tmp_path / "run.parquet")
    assert found(answer(tmp_path)) == [("compute_slow", [2])]


def renamed(text: str, rank: int) -> str:
    return text.replace(f"[Rank {rank}]", f"[Rank {rank ^ 1}]")


@pytest.mark.parametrize("change", ["as it is", "other rank", "lost lines"])
def test_a_recording_of_eight_gpus_has_one_slow_rank(tmp_path: Path, change: str) -> None:
    kept = np.random.default_rng(2)
    culprit = 3 if change == "other rank" else 2
    for rank in range(8):
        lines = eight_gpus(rank)
        if change == "lost lines":
            lines = [line for line in lines if kept.random() > 0.002]
        text = "".join(lines)
        (tmp_path / f"rank_{rank}.log").write_text(renamed(text, rank) if change == "other rank" else text)
    told = answer(tmp_path)
    assert found(told) == [("compute_slow", [culprit])]
    assert told["layout"] == {"tp": 2, "pp": 4, "dp": 1, "source": "inferred"}
    assert told["coverage"]["lost_lines"] > 30_000
