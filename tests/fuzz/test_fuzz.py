"""A seeded part of ``make fuzz``: every decoder and importer reads or refuses what is damaged, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.target import Failure, Target, damaged, failures_of_seeds, outcome
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import peak_bytes

SEED = 1
INPUTS = 10
"""Inputs of a target of weight 1."""


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_it_reads_or_refuses(target: Target, tmp_path: Path) -> None:
    trial = target.make(tmp_path)
    assert failures_of_seeds(trial) == []
    before = peak_bytes()
    for ordinal in range(int(INPUTS * target.weight)):
        found = outcome(trial, damaged(trial, SEED, target.name, ordinal))
        assert not isinstance(found, Failure), f"input {ordinal}: {found}"
    assert peak_bytes() - before <= target.memory_bytes
