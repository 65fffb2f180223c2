"""Simulated schedules beside recorded ones (aicb): operators as many and as large; `pytest -s` prints them."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path

import pytest

from producers.simulation import Scenario
from producers.simulation.schedule import Scope, programs

SAMPLES = Path(os.environ.get("OFFBEAT_SAMPLES", Path(__file__).parents[4] / "shared" / "samples")) / "aicb"

GPT_13B = Scenario(
    seed=1, tp=8, pp=1, dp=16, layers=40, hidden=5120, sequence_length=2048, microbatches=1, sequence_parallel=True
)
LLAMA_7B = Scenario(seed=1, tp=2, pp=1, dp=64, layers=32, hidden=4096, sequence_length=2048, microbatches=1)

Row = tuple[str, str, str]
"""Operator, group, part of the iteration."""


def recorded(name: str) -> tuple[Counter[Row], Counter[Row]]:
    """How many operators of each sort a schedule holds, and their bytes."""
    counts: Counter[Row] = Counter()
    sizes: Counter[Row] = Counter()
    with (SAMPLES / name).open() as file:
        next(file)
        for row in csv.DictReader(file):
            part = row["stage"].split(".")[0].removesuffix("_step")
            if part in {"forward", "backward", "step"}:
                sort = (row["comm_type"].removeprefix("CommType."), row["comm_group"].removeprefix("CommGroup."), part)
                counts[sort] += 1
                sizes[sort] += int(row["msg_size"])
    return counts, sizes


def simulated(scenario: Scenario) -> tuple[Counter[Row], Counter[Row]]:
    """The same of a simulated schedule."""
    counts: Counter[Row] = Counter()
    sizes: Counter[Row] = Counter()
    groups = {Scope.TENSOR: "tp_group", Scope.MODEL: "tp_group", Scope.DATA: "dp_group"}
    for operator in programs(scenario)[0].operators:
        part = operator.phase if operator.phase in {"forward", "backward"} else "step"
        sort = (operator.op, groups[operator.scope], part)
        counts[sort] += 1
        sizes[sort] += operator.size
    return counts, sizes


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp.csv", GPT_13B),
        ("L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv", LLAMA_7B),
    ],
)
def test_schedules_are_those_of_recorded_jobs(name: str, scenario: Scenario) -> None:
    if not SAMPLES.exists():
        pytest.skip(f"{SAMPLES} is not here")
    counts, sizes = recorded(name)
    own_counts, own_sizes = simulated(scenario)
    print(f"\n{name}: operators recorded / simulated, MB recorded / simulated")
    for sort in sorted(counts | own_counts, key=lambda sort: (sort[2], sort[1], sort[0])):
        megabytes = f"{sizes[sort] / 1e6:.1f} / {own_sizes[sort] / 1e6:.1f}"
        print(f"  {' '.join(sort):36} {counts[sort]:4} / {own_counts[sort]:4}   {megabytes}")
    for sort, count in counts.items():
        if sort[2] != "step" and count > 10:
            assert own_counts[sort] == pytest.approx(count, abs=4)
            assert own_sizes[sort] == pytest.approx(sizes[sort], rel=0.03)
    gradients = ("reduce_scatter", "dp_group", "step")
    assert own_sizes[gradients] == pytest.approx(sizes[gradients], rel=0.3)  # in buckets, so more of them
