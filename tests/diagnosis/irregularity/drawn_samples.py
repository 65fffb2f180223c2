"""Labelled operators of many sizes, drawn at random: a few lose a good part of what their iteration lost."""

import numpy as np
import numpy.typing as npt

from diagnosis.irregularity.samples import PATTERNS, Samples

ITERATION_NS = 7e9


def drawn(count: int = 3000, seed: int = 1, scale: float = 1.0) -> tuple[Samples, npt.NDArray[np.bool_]]:
    """Operators of 20 us to 1 s in iterations that take up to 2 s longer than their usual 7 s, and their labels.

    ``scale`` makes everything longer alike.
    """
    draws = np.random.default_rng(seed)
    mean = np.exp(draws.uniform(np.log(20e3), np.log(1e9), count))
    std = mean * draws.uniform(0.02, 0.1, count)
    excess = draws.uniform(0.1, 0.3, count) * ITERATION_NS
    lost = np.where(draws.random(count) < 0.1, draws.uniform(0.15, 1.0, count) * excess, 0.0)
    lost += draws.standard_normal(count) * 0.005 * excess
    noise = std * draws.standard_normal(count)
    samples = Samples(
        duration_ns=scale * np.maximum(mean + np.minimum(noise, 0.02 * excess) + lost, 1e3),
        count=np.full(count, 100),
        mean=scale * mean,
        std=scale * std,
        q1=scale * (mean - 0.67 * std),
        q2=scale * mean,
        q3=scale * (mean + 0.67 * std),
        iteration_ns=scale * (ITERATION_NS + excess),
        usual_iteration_ns=np.full(count, scale * ITERATION_NS),
        rank=np.arange(count) % 64,
        size=draws.integers(1, 1 << 30, count),
        pattern=draws.integers(0, len(PATTERNS), count),
        phase=draws.integers(-1, 4, count),
        place=draws.random(count),
    )
    return samples, np.asarray(lost > 0.1 * excess, dtype=np.bool_)


def f1(truth: npt.NDArray[np.bool_], said: npt.NDArray[np.bool_]) -> float:
    return float(2 * (truth & said).sum() / max(truth.sum() + said.sum(), 1))
