"""What the views say of a simulated job's traffic, beside what its NICs truly did."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median_low

import pytest

from benchmarks.traffic.detection import hear
from diagnosis.traffic.segmentation import SegmentationRules
from offbeat.settings import Settings
from producers.simulation.nic import WHOLE, NicScenario
from schemas.catalogue import TRAFFIC_METRICS
from schemas.message import decode
from schemas.tables import TABLES
from sinks.clickhouse.rows import stored_rows
from sinks.clickhouse.store import Store
from tests.producers.simulation.nic.small import simulated

TRAINING = NicScenario(7, tp=2, dp=3, pp=2, iterations=8, microbatches=6, gradient_bytes=1_000_000_000, noise=WHOLE)
PIPELINES = [range(rank, TRAINING.world, TRAINING.world // 2) for rank in range(TRAINING.world // 2)]
EPOCH_NS = TRAINING.hardware.epoch_ns

Spans = dict[tuple[int, int], list[tuple[int, int]]]
"""From when to when operators ran, by rank and iteration."""


@pytest.fixture
def stored(migrated: Store) -> Store:
    """The store holding what the pipeline tells of the job's traffic."""
    run = simulated(TRAINING)
    table = TABLES["traffic_metrics"]
    migrated.execute(f"TRUNCATE TABLE {table.name}")
    for message in hear(TRAFFIC_METRICS, run.job, run.messages(), Settings.load()):
        batch = decode(message, TRAFFIC_METRICS)
        if batch.num_rows:
            migrated.insert(table.name, stored_rows(table, batch, run.job.job), uuid.uuid4().hex)
    return migrated


def truly(members: Iterable[Sequence[int]], custom: bool) -> Spans:
    """The operators of the communicators that have these members; very small ones leave no trace in counters."""
    run = simulated(TRAINING)
    groups = set(map(frozenset, members))
    chosen = {name for name, ranks in run.job.members.items() if frozenset(ranks) in groups}
    spans: Spans = defaultdict(list)
    for row in run.truth.operators.to_pylist():
        if row["communicator"] in chosen and (row["op"] == "custom") == custom and row["bytes"] > 1 << 20:
            spans[row["rank"], row["iteration"]].append((row["start_ns"], row["end_ns"]))
    return spans


def test_data_parallel_time_is_what_its_operators_took(stored: Store) -> None:
    tp, dp = TRAINING.tp, TRAINING.dp
    groups = [range(stage * tp * dp + t, (stage + 1) * tp * dp, tp) for stage in range(2) for t in range(tp)]
    groups += PIPELINES  # their ends reduce gradients of embeddings
    expected: dict[int, list[int]] = defaultdict(list)
    for (rank, _), spans in sorted(truly(groups, custom=False).items()):
        covered, over = 0, 0
        for start, end in sorted(spans):
            covered += max(end - max(start, over), 0)
            over = max(over, end)
        expected[rank].append(covered)
    answer = stored.query("SELECT rank, communicating_ns FROM data_parallel_time ORDER BY rank, iteration").to_pylist()
    told: dict[int, list[int]] = defaultdict(list)
    for row in answer:
        told[row["rank"]].append(row["communicating_ns"])
    assert told.keys() == expected.keys() == set(range(TRAINING.world))
    off = [abs(one - true) for rank, each in told.items() for one, true in zip(each, expected[rank], strict=True)]
    assert len(off) == TRAINING.world * TRAINING.iterations
    within = sum(each <= 5 * 2 * 2 * EPOCH_NS for each in off)
    assert within >= 0.95 * len(off), "five operators with two boundaries, each off by two epochs at most"
    assert max(off) <= SegmentationRules().quiet_ns, "shorter silence between operators may be taken for theirs"


def test_a_microbatch_takes_as_long_as_truly_passed_between_sends(stored: Store) -> None:
    starts: dict[int, list[int]] = defaultdict(list)
    for (rank, _), spans in truly(PIPELINES, custom=True).items():
        starts[rank] += [start for start, _ in spans]
    for row in stored.query("SELECT rank, microbatch_ns, sends FROM microbatch_time").to_pylist():
        own = sorted(starts.pop(row["rank"]))
        assert row["sends"] == len(own) - 1 == TRAINING.iterations * TRAINING.microbatches - 1
        true = median_low(after - before for before, after in pairwise(own))
        assert row["microbatch_ns"] == pytest.approx(true, abs=2 * EPOCH_NS)
    assert not starts, "of every rank"
