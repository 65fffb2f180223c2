"""What makes a healthy cluster uneven: profiles, and the random numbers that everything else draws from.

Every number is a pure function of (seed, purpose, place, iteration). A run with a fault and its counterfactual
therefore share all randomness but the fault, and any iteration of any rank can be drawn without the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SECONDS_A_MONTH = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class NoiseProfile:
    """Strengths of the sources of noise; the defaults were fitted to real runs.

    ``operator_cv`` and the outliers hold for every communication operator of up to ``part_bytes`` and for each
    of the ``kernels_per_segment`` kernels that run between two of them; larger operators are several parts.
    ``common_sigma`` is shared by all ranks of an iteration, ``sequence_cv`` (of an iteration's microbatches
    together) by the ranks that see the same sequences, ``routing_cv`` by the ranks that hold the same experts.
    ``warm_up`` factors come on top in the first iterations. ``host_lag_s`` passes before each call, and again
    until the operator is handed to the library. Of the routes between NICs ``untraced_share`` are not known, and
    ``moved_share`` lead over another spine by now than they were seen to.
    """

    gpu_speed_sigma: float = 0.02
    rank_sigma: float = 0.015
    rank_rho: float = 0.9
    operator_cv: float = 0.07
    outlier_share: float = 0.003
    outlier_factor: tuple[float, float] = (2.0, 10.0)
    kernels_per_segment: int = 16
    part_bytes: int = 32 << 20
    common_sigma: float = 0.011
    sequence_cv: float = 0.0
    routing_cv: float = 0.15
    drift_per_month: tuple[float, float] = (0.059, 0.070)
    warm_up: tuple[float, ...] = (2.0, 1.08, 1.04, 1.02)
    burst_probability: float = 0.12
    burst_factor: tuple[float, float] = (1.1, 1.6)
    host_lag_s: float = 30e-6
    clock_offset_s: float = 5e-3
    clock_drift_ppm: float = 10.0
    lost_share: float = 0.001
    ring_gap_probability: float = 0.1
    untraced_share: float = 0.02
    moved_share: float = 0.01


DEFAULT = NoiseProfile()
"""Iterations of a healthy job vary by 1-2 %."""

HARD = NoiseProfile(common_sigma=0.058, sequence_cv=0.045, untraced_share=0.1, moved_share=0.03)
"""Iterations of a healthy job vary by 5-7 %; microbatches differ in length."""

DEFAULT_LARGE = NoiseProfile(common_sigma=0.014)
HARD_LARGE = NoiseProfile(common_sigma=0.052, sequence_cv=0.03, untraced_share=0.1, moved_share=0.03)
"""The same for jobs of thousands of ranks: there what varies by rank averages out, while sequences add up."""

SILENT = NoiseProfile(
    gpu_speed_sigma=0.0,
    rank_sigma=0.0,
    operator_cv=0.0,
    outlier_share=0.0,
    common_sigma=0.0,
    routing_cv=0.0,
    drift_per_month=(0.0, 0.0),
    warm_up=(),
    burst_probability=0.0,
    host_lag_s=0.0,
    clock_offset_s=0.0,
    clock_drift_ppm=0.0,
    lost_share=0.0,
    ring_gap_probability=0.0,
    untraced_share=0.0,
    moved_share=0.0,
)
"""No noise at all: for tests of the mechanism."""

PROFILES = {"default": DEFAULT, "hard": HARD}
PROFILES_LARGE = {"default": DEFAULT_LARGE, "hard": HARD_LARGE}
LARGE = 1024
"""Ranks of a job from which on ``PROFILES_LARGE`` are its profiles."""


def suited(profile: NoiseProfile, ranks: int) -> NoiseProfile:
    """The profile of the same name for a job of so many ranks; one that has no name as it is."""
    names = {PROFILES[name]: PROFILES_LARGE[name] for name in PROFILES}
    return names.get(profile, profile) if ranks >= LARGE else profile


class Purpose(IntEnum):
    """What a stream of random numbers is for; part of its key, so the values must never change."""

    SCENARIO = 1
    GPU_SPEED = 2
    RANK_SERIES = 3
    COMMON = 4
    OPERATORS = 5
    SEGMENTS = 6
    SEQUENCE = 7
    ROUTING = 8
    BURSTS = 9
    CLOCK = 10
    LOSS = 11
    RING_GAP = 12
    EPOCH = 13
    DRIFT = 14
    BLOCKS = 15
    """How long parts of an iteration take, of lazily expanded runs."""
    INSIDE = 16
    """What happens inside a part."""
    CALIBRATION = 17
    ROUTES = 18
    """Which paths were traced."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Counter-based random streams of one seed (Philox); what varies over time is drawn anew at another age."""

    seed: int
    age_days: int = 0

    def stream(self, purpose: Purpose, place: int = 0, iteration: int = 0) -> np.random.Generator:
        """The stream of a purpose at a place (a rank, a stage, a host) in an iteration."""
        return np.random.Generator(np.random.Philox(key=self.seed, counter=[0, iteration, place, int(purpose)]))

    def at(self, purpose: Purpose, place: int, iteration: int) -> np.random.Generator:
        """The stream of a purpose at a place in an iteration of a job of this age."""
        return self.stream(purpose, place, iteration + (self.age_days << 32))


def lognormal(normals: Floats, cv: float | Floats) -> Floats:
    """Factors of mean 1 and the given coefficients of variation, from standard normals."""
    variance = np.log1p(np.square(cv))
    return np.asarray(np.exp(np.sqrt(variance) * normals - variance / 2))


def log_uniform(uniforms: Floats, bounds: tuple[float, float]) -> Floats:
    """Values between the bounds, uniform in their logarithm."""
    low, high = np.log(bounds)
    return np.asarray(np.exp(low + (high - low) * uniforms))


def factors(
    draws: np.random.Generator, parts: Floats, profile: NoiseProfile, shape: tuple[int, ...] | None = None
) -> Floats:
    """What operators take relative to their mean: the mean of the factors of the parts that each is made of.

    Parts follow each other, so long operators vary less than short ones. Of an operator's parts at most one is
    taken to be an outlier. The result has one element an operator, in the shape of ``parts`` or, where it is given, in
    ``shape``, which ``parts`` must broadcast to.
    """
    shape = parts.shape if shape is None else shape
    result = lognormal(draws.standard_normal(shape), profile.operator_cv / np.sqrt(parts))
    outlier = draws.random(shape) < 1 - (1 - profile.outlier_share) ** parts
    size = log_uniform(draws.random(shape)[outlier], profile.outlier_factor)
    result[outlier] += (size - 1) / np.broadcast_to(parts, shape)[outlier]
    return result


def gpu_speeds(draws: Draws, ranks: int, profile: NoiseProfile) -> Floats:
    """Time that each rank's GPU takes, relative to the fleet's mean; shape (ranks,)."""
    return lognormal(draws.stream(Purpose.GPU_SPEED).standard_normal(ranks), profile.gpu_speed_sigma)


def rank_series(draws: Draws, ranks: int, iterations: int, profile: NoiseProfile) -> Floats:
    """Slow wandering of each rank, AR(1) of the profile's stationary sigma; shape (iterations, ranks)."""
    rho = profile.rank_rho
    shocks = np.array([draws.at(Purpose.RANK_SERIES, rank, 0).standard_normal(iterations) for rank in range(ranks)]).T
    series = np.empty_like(shocks)
    series[0] = shocks[0]
    for i in range(1, iterations):
        series[i] = rho * series[i - 1] + np.sqrt(1 - rho * rho) * shocks[i]
    return np.asarray(np.exp(profile.rank_sigma * series), dtype=np.float64)


def common_series(draws: Draws, iterations: int, iteration_s: float, profile: NoiseProfile) -> Floats:
    """What slows all ranks alike: jitter, the warm-up of a job that begins, and the drift; shape (iterations,)."""
    factors = lognormal(draws.at(Purpose.COMMON, 0, 0).standard_normal(iterations), profile.common_sigma)
    drift = draws.stream(Purpose.DRIFT).uniform(*profile.drift_per_month)
    elapsed = draws.age_days * 86400.0 + np.arange(iterations) * iteration_s
    factors *= 1 + drift * elapsed / SECONDS_A_MONTH
    warm = 0 if draws.age_days else min(len(profile.warm_up), iterations)
    factors[:warm] *= profile.warm_up[:warm]
    return factors


def microbatch_factors(draws: Draws, iteration: int, microbatches: int, dp: int, profile: NoiseProfile) -> Floats:
    """Imbalance of sequence lengths; shape (microbatches, dp)."""
    normals = draws.at(Purpose.SEQUENCE, 0, iteration).standard_normal((microbatches, dp))
    return lognormal(normals, profile.sequence_cv * np.sqrt(microbatches))


def expert_factors(stream: np.random.Generator, shape: tuple[int, ...], cv: float) -> Floats:
    """Tokens that each expert receives, relative to an even share among the last axis' experts."""
    load = lognormal(stream.standard_normal(shape), cv)
    return np.asarray(load / load.mean(axis=-1, keepdims=True))


def background_traffic(draws: Draws, iteration: int, slots: int, rails: int, profile: NoiseProfile) -> Floats:
    """How much longer a byte takes through each rail's switches; shape (slots, rails).

    Slots are the microbatches and, last, the gradient exchange. A burst fills one rail's ToR or, in one case
    of three, the spines that all rails share.
    """
    factors = np.ones((slots, rails))
    stream = draws.at(Purpose.BURSTS, 0, iteration)
    happens, spine, size, length = stream.random(4)
    rail = int(stream.integers(rails))
    first = int(stream.integers(slots))
    if happens < profile.burst_probability:
        last = first + 1 + int(length * slots / 2)
        across = slice(None) if spine < 1 / 3 else slice(rail, rail + 1)
        factors[first:last, across] = log_uniform(np.array(size), profile.burst_factor)
    return factors


@dataclass(frozen=True, slots=True)
class Burst:
    """Other jobs' traffic in one iteration: how much longer a byte takes through each ToR and spine.

    ``state`` of each slot is a row of ``tors`` (states, ToRs) and ``spines`` (states, spines).
    """

    state: npt.NDArray[np.int64]
    tors: Floats
    spines: Floats


def burst(draws: Draws, iteration: int, slots: int, tors: int, spines: int, profile: NoiseProfile) -> Burst:
    """The burst of an iteration, if any, on a ToR or, in one case of three, on a spine; slots as above."""
    stream = draws.at(Purpose.BURSTS, 0, iteration)
    happens, on_spine, size, length = stream.random(4)
    first = int(stream.integers(slots))
    at = (int(stream.integers(tors)), int(stream.integers(spines)))
    state = np.zeros(slots, dtype=np.int64)
    busy = Burst(state, np.ones((2, tors)), np.ones((2, spines)))
    if happens < profile.burst_probability:
        state[first : first + 1 + int(length * slots / 2)] = 1
        factor = log_uniform(np.array(size), profile.burst_factor)
        if on_spine < 1 / 3:
            busy.spines[1, at[1]] = factor
        else:
            busy.tors[1, at[0]] = factor
    return busy
