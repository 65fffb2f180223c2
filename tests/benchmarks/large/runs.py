"""A job that is small enough for tests, expanded like one of thousands of ranks; and made scores."""

from __future__ import annotations

from functools import cache

from benchmarks.large.plan import LargeCase
from benchmarks.large.rankings import SETS, VARIANTS
from benchmarks.large.trial import Alone, Cost, LargeScore
from benchmarks.simulated.scoring import FaultScore, IterationScore
from benchmarks.simulated.trial import Layout, Traffic
from producers.simulation import FabricShape, Fault, Kind, LazyRun, Scenario
from producers.simulation.scenarios import Story

CASE = LargeCase(3, Story.ONE, "default", 64, 20, 3, "nic_slow", "persistent", all_logs=True)
SLOW_RANK = 21


@cache
def slow_nic() -> LazyRun:
    """A run of 64 ranks in which a NIC is slow from iteration 15 to 17."""
    fault = Fault(Kind.NIC_SLOW, SLOW_RANK, iterations=(15, 16, 17), slowdown=1.5)
    return LazyRun(
        Scenario(
            CASE.seed,
            tp=4,
            pp=2,
            dp=8,
            microbatches=2,
            layers=4,
            hidden=4096,
            iterations=CASE.iterations,
            fabric=FabricShape(hosts_per_pod=4, spines=2),
            faults=(fault,),
        )
    )


FAULT = FaultScore(
    kind="nic_slow",
    pattern="persistent",
    part="all",
    rank=SLOW_RANK,
    inseparable=("nic:h2/mlx5_5", "link:h2/mlx5_5"),
    iterations=(15, 17),
    slowdown=1.5,
    positives=3,
    weight="required",
    outcome="named",
    cause_right=True,
    named_ranks=1,
    shadowed=False,
    places=dict.fromkeys((SETS, *VARIANTS), 1),
)
SCORE = LargeScore(
    seed=3,
    story="one",
    noise="default",
    layout=Layout(64, 4, 2, 8, 1, 2, without_labels=False, without_ends=True),
    faults=(FAULT,),
    said=(),
    iterations=IterationScore(3, 0, 0, 17),
    searched=2,
    traffic=Traffic(everything_bytes=1_000_000, unasked_bytes=2000, answer_bytes=1000),
    detect_s=2.5,
    asked=CASE,
    cost=Cost(simulate_s=4.0, operators=40, all_operators=2560, fetched_rows=(128, 256)),
    alone=Alone(searches=2, right=1),
)
