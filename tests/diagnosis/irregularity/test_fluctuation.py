"""Recurring excesses: the published shapes, what the evidence asks for, and that noise is none."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from diagnosis.irregularity.fluctuation import FluctuationSettings, recurrence, spectrum
from diagnosis.irregularity.monitor import IterationMonitor, Judgement
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION, SPIKE

SECOND = 10**9
SETTINGS = FluctuationSettings()
USUAL = 8.25
"""Seconds: iterations outside of the published fluctuation take 8.18 s and little more."""


def noisy(count: int, seed: int, cv: float = 0.012) -> npt.NDArray[np.float64]:
    """Healthy iterations, in units of their mean; they wander a little."""
    draws = np.random.default_rng(seed)
    wander = np.zeros(count)
    for i in range(1, count):
        wander[i] = 0.9 * wander[i - 1] + draws.standard_normal() * 0.002
    return np.asarray(1 + wander + cv * draws.standard_normal(count))


def fluctuating(count: int = 600, seed: int = 1, cv: float = 0.005) -> npt.NDArray[np.float64]:
    """As figure 6: every 6 to 9 iterations, 6.94 on average, one of up to 9.45 s among such of 8.18 s and more."""
    draws = np.random.default_rng(seed)
    times = noisy(count, seed, cv)
    at = np.arange(8, count, 6.94)
    at = np.rint(at + draws.uniform(-0.8, 0.8, len(at))).astype(int)
    times[at[at < count]] *= draws.uniform(1.07, 1.13, int((at < count).sum()))
    return times


def judged(times: npt.NDArray[np.float64], settings: MonitorSettings | None = None) -> list[Judgement]:
    monitor = IterationMonitor(settings or MonitorSettings())
    return [monitor.judge(i, int(time * USUAL * SECOND)) for i, time in enumerate(times)]


def patterns(judgements: Sequence[Judgement]) -> set[str]:
    return {j.run.pattern for j in judgements if j.irregular and j.run}


def test_the_published_fluctuation_is_found_with_its_period() -> None:
    """85 of 600 iterations by a delta of 1.05, once every 6 to 9; its spectrum peaks at 0.144 (6.94 iterations)."""
    times = fluctuating()
    found = judged(times)
    assert 80 <= (times > 1.05).sum() <= 90
    of_run = [j for j in found if j.irregular and j.run and j.run.pattern == FLUCTUATION]
    assert len(of_run) >= 75
    periods = [j.run.period for j in of_run if j.run and j.run.period]
    assert np.median(periods) == pytest.approx(6.94, abs=0.15)
    assert all(j.delta == 1.05 for j in of_run)


def test_the_published_lines_stand_in_the_spectrum() -> None:
    """Appendix B: 0.144, 0.288 and 0.432."""
    times = noisy(600, 3, cv=0.005)
    times[np.rint(np.arange(8, 600, 6.94)).astype(int)] *= 1.1
    frequency, power = spectrum(times)
    for line in (0.144, 0.288, 0.432):
        near = np.abs(frequency - line) < 0.02
        assert frequency[near][power[near].argmax()] == pytest.approx(line, abs=0.002)
        assert power[near].max() > 50 * np.median(power)


def test_a_fluctuation_is_one_run_that_ends_when_it_stops() -> None:
    settings = MonitorSettings(warm_up=0)
    times = np.r_[fluctuating(300), np.ones(60)]
    found = judged(times, settings)
    runs = {j.run.first for j in found if j.run and j.run.period}
    assert len(runs) == 1
    closing = [j.iteration for j in found if j.closed]
    assert 300 < closing[-1] < 320
    assert not any(j.run for j in found[closing[-1] + 1 :])


def test_peaks_of_a_fluctuation_leave_the_baseline_alone() -> None:
    found = judged(fluctuating())
    expected = [j.expected_ns for j in found[200:] if j.expected_ns]
    assert max(expected) < 1.01 * USUAL * SECOND


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("cv", [0.01, 0.02])
def test_noise_of_a_healthy_job_is_no_fluctuation(seed: int, cv: float) -> None:
    assert patterns(judged(noisy(1000, seed, cv))) == set()


@pytest.mark.parametrize("seed", range(4))
def test_noise_that_exceeds_the_delta_all_the_time_does_not_stand_out(seed: int) -> None:
    assert FLUCTUATION not in patterns(judged(noisy(1000, seed, cv=0.06)))


def test_the_published_spikes_are_spikes() -> None:
    """Figure 5: 39 of 1000, up to 1.96 times as long, at random."""
    draws = np.random.default_rng(5)
    times = noisy(1000, 5)
    at = np.sort(draws.choice(np.arange(30, 1000), 39, replace=False))
    times[at] = draws.uniform(1.2, 1.96, 39)
    found = judged(times)
    assert [j.iteration for j in found if j.irregular] == at.tolist()
    assert patterns(found) == {SPIKE}


def test_the_published_degradation_stays_open_until_it_ends() -> None:
    """Figure 7: 16.7 % of the throughput lost."""
    times = np.r_[noisy(400, 7), noisy(500, 8) / (1 - 0.167), noisy(100, 9)]
    found = judged(times)
    assert [j.iteration for j in found if j.irregular] == list(range(400, 900))
    assert {j.run.pattern for j in found[405:900] if j.run} == {DEGRADATION}
    assert [j.iteration for j in found if j.closed] == [901]


def test_too_few_peaks_or_unknown_iterations_are_no_evidence() -> None:
    pulses = ([SECOND] * 6 + [11 * SECOND // 10]) * (SETTINGS.least_peaks - 1)
    assert recurrence(pulses, SETTINGS) is None
    found = recurrence([*pulses, *pulses], SETTINGS)
    assert found is not None
    assert found.period == pytest.approx(7, abs=0.1)
    assert found.delta == SETTINGS.delta
    assert recurrence([None] * 100, SETTINGS) is None
    assert recurrence([], SETTINGS) is None


def test_a_gap_in_the_log_hides_no_fluctuation() -> None:
    pulses: list[int | None] = [*([SECOND] * 6 + [11 * SECOND // 10]) * 10]
    pulses[20:26] = [None] * 6
    found = recurrence(pulses, SETTINGS)
    assert found is not None
    assert found.period == pytest.approx(7, abs=0.1)
    assert found.delta == SETTINGS.delta


@pytest.mark.parametrize("seed", range(6))
def test_a_faint_fluctuation_shows_where_iterations_hardly_vary(seed: int) -> None:
    """Hardly any of its peaks exceeds the published delta."""
    times, at = noisy(400, seed, cv=0.008), np.arange(20, 400, 8)
    times[at] += 0.04
    found = judged(times)
    assert patterns(found) <= {FLUCTUATION}
    late = [j for j in found[120:] if j.irregular]
    assert len(late) >= 25
    assert np.mean([j.iteration % 8 == 4 for j in late]) > 0.9
    periods = [j.run.period for j in late if j.run and j.run.period]
    assert periods == pytest.approx([8] * len(late), abs=0.3)
    assert all(SETTINGS.faint <= j.delta < SETTINGS.delta for j in late)


def test_where_iterations_vary_the_published_delta_is_kept() -> None:
    times, at = noisy(400, 1, cv=0.03), np.arange(20, 400, 8)
    times[at] += 0.04
    assert FLUCTUATION not in patterns(judged(times))
    assert recurrence([round(t * SECOND) for t in times[:100]], SETTINGS) is None


def test_a_restart_forgets_nothing_of_a_fluctuation() -> None:
    times = fluctuating(200)
    whole, monitor = judged(times), IterationMonitor(MonitorSettings())
    for i, time in enumerate(times):
        monitor = IterationMonitor.from_state(monitor.to_state(), MonitorSettings())
        assert monitor.judge(i, int(time * USUAL * SECOND)) == whole[i]
