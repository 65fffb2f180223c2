"""Performance fluctuation: small excesses that come again and again (Holmes 3.1.2, appendix B).

One iteration that takes 5 % longer says nothing, noise does as much. Evidence is that such iterations come at even
distances, that they stand out from those between them, and that the spectrum of the iteration times has its
strongest line, harmonics included, where the distances say. The line gives the period.

A step beyond Holmes: where iterations hardly vary, excesses below its delta show as plainly. If none recur by the
delta, the same evidence is looked for in what exceeds the usual by more than it varies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagnosis.arrays import Floats
from diagnosis.robust import NORMAL_MAD

HARMONICS = 3
"""A train of short pulses shows as a line and its multiples (appendix B: at 0.144, 0.288 and 0.432)."""

_OVERSAMPLING = 8
"""The spectrum is read between the frequencies of the window's own length: periods are no whole numbers."""


@dataclass(frozen=True, slots=True)
class FluctuationSettings:
    """When long iterations that come again and again, the peaks, are a fluctuation (Holmes 3.1.2, appendix B)."""

    delta: float = 1.05
    """A peak takes more than ``delta`` times the median of the window; a lower value finds smaller fluctuations, and
    takes more noise for one."""
    faint: float = 1.025
    """The floor of a second, lower threshold that is tried where no peaks recur by ``delta``, as a multiple of the
    median."""
    deviations: float = 2.5
    """The second threshold lies so many standard deviations (estimated from the median distance to the median) above
    the median, and is tried only if that is not above ``delta``."""
    window: int = 100
    """Number of iterations, the latest ones, in which peaks are looked for."""
    least_peaks: int = 6
    """Number of peaks by ``delta`` that the window must hold."""
    faint_peaks: int = 8
    """Number of peaks by the second threshold that the window must hold."""
    even_share: float = 0.8
    """Part of the distances between peaks that must lie within a third of their median; a higher value asks for more
    even ones."""
    contrast: float = 3.5
    """Number of standard deviations of all other iterations by which those above the threshold must exceed the median
    on average."""
    shortest_period: float = field(default=3.0, metadata={"least": 2})
    """Shortest period of a fluctuation, in iterations."""
    longest_period: float = 16.0
    """Longest period of a fluctuation, in iterations."""
    period_tolerance: float = 0.3
    """How far the period of the spectrum's strongest line may be from the median distance between peaks, as a part of
    that distance."""
    closed_after_periods: float = 2.0
    """Number of periods without a peak that end a fluctuation (``closed_after`` iterations of the monitor, if those are
    more)."""


class Recurrence(NamedTuple):
    """Long iterations come again after ``period`` iterations; those from ``delta`` on count."""

    period: float
    delta: float


def recurrence(durations_ns: Sequence[int | None], settings: FluctuationSettings) -> Recurrence | None:
    """How long iterations come again; None: they do not, or too few came so far.

    ``durations_ns`` are those of consecutive iterations; None: not known.
    """
    durations = np.array([np.nan if duration is None else float(duration) for duration in durations_ns])
    known = ~np.isnan(durations)
    if known.sum() < settings.least_peaks * settings.shortest_period:
        return None
    excess = np.where(known, durations / np.median(durations[known]) - 1, 0.0)
    deviation = NORMAL_MAD * float(np.median(np.abs(excess[known])))
    faint = max(settings.faint, 1 + settings.deviations * deviation)
    for delta, least_peaks in ((settings.delta, settings.least_peaks), (faint, settings.faint_peaks)):
        period = _period(excess, known, delta, least_peaks, settings) if delta <= settings.delta else None
        if period is not None:
            return Recurrence(period, delta)
    return None


def _period(
    excess: Floats, known: npt.NDArray[np.bool_], delta: float, least_peaks: int, settings: FluctuationSettings
) -> float | None:
    long = excess > delta - 1
    peaks = np.flatnonzero(long & ~np.r_[False, long[:-1]])
    if len(peaks) < least_peaks:
        return None
    distances = np.diff(peaks)
    median = float(np.median(distances))
    even = np.abs(distances - median) <= median / 3
    others = excess[known & ~long]
    if not settings.shortest_period <= median <= settings.longest_period or even.mean() < settings.even_share:
        return None
    if len(others) < 2 or excess[long].mean() <= settings.contrast * others.std():
        return None
    period = 1 / strongest_line(np.minimum(excess, 2 * excess[peaks].mean()), settings)
    return period if abs(period - median) <= settings.period_tolerance * median else None


def strongest_line(series: Floats, settings: FluctuationSettings) -> float:
    """The frequency, per iteration, that carries most of a series, its harmonics included."""
    frequency, power = spectrum(series)
    lines = np.flatnonzero((frequency >= 1 / settings.longest_period) & (frequency <= 1 / settings.shortest_period))
    width = np.ones(_OVERSAMPLING + 1)
    smooth = np.convolve(power, width, "same")
    harmonics = [np.where(lines * h < len(power), smooth[np.minimum(lines * h, len(power) - 1)], 0.0) for h in _H]
    return float(frequency[lines[np.argmax(np.sum(harmonics, axis=0))]])


_H = range(1, HARMONICS + 1)


def spectrum(series: Floats) -> tuple[Floats, Floats]:
    """Frequencies per iteration, 0 to 1/2, and the power of a series there (discrete Fourier transform)."""
    length = len(series) * _OVERSAMPLING
    windowed = (series - series.mean()) * np.hanning(len(series))
    power = np.abs(np.fft.rfft(windowed, length)) ** 2
    return np.asarray(np.fft.rfftfreq(length), dtype=np.float64), np.asarray(power, dtype=np.float64)
