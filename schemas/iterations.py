"""analysis.iterations: how long each pivot's iterations took, and which are irregular (Holmes 3.1)."""

from __future__ import annotations

import pyarrow as pa

from schemas.topic import DURATION, TIME, Column, Key, Topic

PATTERNS = ("abnormal_spike", "performance_fluctuation", "persistent_degradation")
PATTERN_STATES = ("open", "closed", "quiet")

CLOCK_SET = 3
"""Ranks move in lockstep: where a pivot says that an iteration lasted more than so many times what most say, the clock
of its host was set forward."""

PERIOD = Column(
    "period",
    pa.float64(),
    "After how many iterations long ones come again, in a fluctuation.",
    "iterations",
    nullable=True,
    minimum=0,
)

TOPIC = Topic(
    name="analysis.iterations",
    version=1,
    key=Key.JOB,
    doc="Iterations as the pivots saw them; one record an iteration.",
    retention_hours=72.0,
    columns=(
        Column("iteration", pa.int32(), "Training iteration.", minimum=0),
        Column("pivot", pa.int32(), "Rank that saw it.", minimum=0),
        Column("start_ns", TIME, "First call of the iteration; the pivot's clock.", "ns since the epoch", minimum=0),
        Column(
            "duration_ns",
            DURATION,
            "How long it took by this pivot's log; null: not known.",
            "ns",
            nullable=True,
            minimum=0,
        ),
        Column(
            "pause_ns",
            DURATION,
            "What all pivots paused after it beyond the usual (a checkpoint, an evaluation): that is not judged.",
            "ns",
            nullable=True,
            minimum=0,
        ),
        Column(
            "pause_before_ns",
            DURATION,
            "The same before it: what precedes its first operators on all ranks, and is nobody's.",
            "ns",
            nullable=True,
            minimum=0,
        ),
        Column("expected_ns", DURATION, "Mean of the baseline; null while it is too short.", "ns", nullable=True),
        Column("delta", pa.float64(), "Ratio above which an iteration is irregular.", minimum=1),
        Column(
            "irregular",
            pa.bool_(),
            "Whether the median of the pivots' durations exceeds delta times the mean; null: not known.",
            nullable=True,
        ),
        Column("pattern", pa.string(), "Pattern of the irregular run.", nullable=True, choices=PATTERNS),
        Column("pattern_from", pa.int32(), "First iteration of the irregular run.", nullable=True, minimum=0),
        Column(
            "pattern_ordinal", pa.int32(), "Which irregular iteration of the run, from 1.", nullable=True, minimum=1
        ),
        Column(
            "step_ordinal",
            pa.int32(),
            "How many of the run were longer still than its others, up to this one; null: this one is not.",
            nullable=True,
            minimum=1,
        ),
        Column("step_from", pa.int32(), "First iteration of those that were longer still.", nullable=True, minimum=0),
        Column(
            "pattern_state",
            pa.string(),
            "open on a run's irregular iterations, closed on the record that ends it, quiet when the last is long ago.",
            nullable=True,
            choices=PATTERN_STATES,
        ),
        Column("pattern_to", pa.int32(), "Last irregular iteration of the run so far.", nullable=True, minimum=0),
        PERIOD,
        Column("excess_ns", DURATION, "Beyond the mean, summed over the run so far.", "ns", nullable=True),
        Column("step_excess_ns", DURATION, "Of that, in the iterations that were longer still.", "ns", nullable=True),
        Column(
            "scatter_ns",
            DURATION,
            "On irregular ones: what one in ten of the regular ones before took beyond the mean; of few the longest.",
            "ns",
            nullable=True,
            minimum=0,
        ),
        Column("baseline", pa.list_(pa.int32()), "Iterations to compare with, on irregular ones.", nullable=True),
        Column("last", pa.bool_(), "The job's log ends with this iteration.", nullable=True),
        Column("job_from", pa.int32(), "First iteration of the job that was reported.", nullable=True, minimum=0),
    ),
)
