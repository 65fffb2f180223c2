"""Irregular iterations: the threshold, the baseline that they never enter, runs and their patterns, restarts."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.irregularity.monitor import IterationMonitor, Judgement
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION, SPIKE

SETTINGS = MonitorSettings(delta=1.5, window=4, least_baseline=3, warm_up=2, degradation_after=3, quiet_after=6)
"""With a delta that floats hold exactly."""


def judged(durations: Iterable[int | None], settings: MonitorSettings = SETTINGS) -> list[Judgement]:
    monitor = IterationMonitor(settings)
    return [monitor.judge(iteration, duration) for iteration, duration in enumerate(durations)]


def irregular(judgements: Sequence[Judgement]) -> list[int]:
    return [j.iteration for j in judgements if j.irregular]


READY = [100] * 5
"""Warm-up and the least baseline."""


def test_the_threshold_itself_is_regular() -> None:
    assert irregular(judged([*READY, 150])) == []
    assert irregular(judged([*READY, 151])) == [5]


def test_an_iteration_may_have_to_be_longer_by_some_time_as_well() -> None:
    as_published = replace(SETTINGS, delta=1.001, least_excess_ns=30)
    assert irregular(judged([*READY, 130], as_published)) == []
    assert irregular(judged([*READY, 131], as_published)) == [5]
    assert irregular(judged([*READY, 151], replace(SETTINGS, least_excess_ns=60))) == []


def test_an_irregular_iteration_tells_how_much_regular_ones_scatter() -> None:
    tenth = [100] * 17 + [110, 120, 120]
    wide = replace(SETTINGS, window=20)
    assert judged([100, 100, *tenth, 400], wide)[-1].scatter_ns == 120 - 102
    assert judged([100, 100, *tenth[:-1], 100, 400], wide)[-1].scatter_ns == 110 - 101, "of 20 the second longest"
    assert judged([*READY, 110, 400])[-1].scatter_ns == 110 - 102, "of few the longest"
    assert judged([*READY, 110, 110])[-1].scatter_ns is None
    everything = judged([*READY, 110, 400], replace(SETTINGS, learns="all"))[-1]
    assert everything.irregular
    assert everything.scatter_ns is None, "what is irregular is in the baseline too"


def test_nothing_is_judged_before_there_is_something_to_compare_with() -> None:
    judgements = judged([900, 900, *[100] * 3, 100])
    assert [j.irregular for j in judgements] == [None] * 5 + [False]
    assert [j.expected_ns for j in judgements] == [None] * 5 + [100]


def test_a_plain_windowed_mean_absorbs_what_lasts_longer_than_the_window() -> None:
    """So it does as the paper words it; a degradation is over then, and what comes back is regular."""
    slow = [*READY, *[200] * 8, 100]
    assert irregular(judged(slow)) == list(range(5, 13))
    plain = judged(slow, replace(SETTINGS, learns="all"))
    assert irregular(plain) == [5, 6]  # the window then holds 100, 100, 200, 200
    assert plain[-1].expected_ns == 200
    assert judged([10**6, 10**6, *READY], replace(SETTINGS, learns="all"))[-1].expected_ns == 100  # but no warm-up


def test_warm_up_never_enters_the_baseline() -> None:
    assert judged([10**6, 10**6, *[100] * 3, 100])[-1].expected_ns == 100


def test_an_outlier_before_there_is_a_baseline_does_not_enter_it() -> None:
    settings = MonitorSettings(delta=1.5, window=6, least_baseline=5, warm_up=2)
    judgements = judged([*[100] * 5, 500, 100, 100, 100], settings)
    assert judgements[-1].expected_ns == 100


@pytest.mark.parametrize("at", range(4))
def test_nor_does_one_that_comes_first(at: int) -> None:
    settings = MonitorSettings(delta=1.5, window=6, least_baseline=5, warm_up=2)
    first = [100] * 6
    first[at] = 500
    assert judged([100, 100, *first, 100], settings)[-1].expected_ns == 100


def test_a_degradation_stays_open_however_long_it_lasts() -> None:
    judgements = judged([*READY, *[200] * 500, 100, 100])
    assert irregular(judgements) == list(range(5, 505))
    assert all(j.expected_ns == 100 for j in judgements[5:])
    run = judgements[504].run
    assert run is not None
    assert (run.first, run.last, run.ordinal, run.pattern) == (5, 504, 500, DEGRADATION)
    assert run.excess_ns == 500 * 100
    assert [j.closed for j in judgements[503:]] == [False, False, False, True]


@pytest.mark.parametrize("slowdown", [1.12, 1.15, 1.3])
@pytest.mark.parametrize("seed", range(5))
def test_a_degradation_that_dips_below_delta_now_and_then_is_neither_learned_nor_over(
    slowdown: float, seed: int
) -> None:
    noise = np.random.default_rng(seed).normal(1, 0.01, 700)
    slow = np.where((np.arange(700) >= 60) & (np.arange(700) < 600), slowdown, 1.0)
    judgements = judged((1e9 * noise * slow).astype(int).tolist(), MonitorSettings())
    assert [j.iteration for j in judgements if j.closed] == [601]
    run = judgements[601].run
    assert run is not None
    assert run.pattern == DEGRADATION
    assert run.first - 60 < 5
    lost = 1e9 * (slowdown - 1) * 540
    assert run.excess_ns == pytest.approx(lost, rel=0.06)
    assert all(j.expected_ns == pytest.approx(1e9, rel=0.02) for j in judgements[60:])


def test_what_dips_below_delta_belongs_to_a_degradation() -> None:
    settings = replace(SETTINGS, delta=1.1)
    judgements = judged([*READY, 112, 112, 112, 107, 112, 108, 111, 110, 109, 108, 100, 105], settings)
    assert irregular(judgements) == [5, 6, 7, 9, 11]
    assert {j.expected_ns for j in judgements[5:16]} == {100}
    assert [j.closed for j in judgements[5:]] == [False] * 11 + [True]
    [*_, ended] = [j.run for j in judgements if j.run]
    assert (ended.last, ended.pattern) == (11, DEGRADATION)
    assert ended.excess_ns == 4 * 12 + 7 + 8 + 11 + 10 + 9 + 8


def test_a_degradation_that_has_eased_for_long_is_over_and_what_it_has_eased_to_is_usual() -> None:
    settings = replace(SETTINGS, delta=1.1)
    judgements = judged([*READY, *[114] * 4, *[108] * 12, 125], settings)
    assert irregular(judgements) == [5, 6, 7, 8, 21]
    assert [j.iteration for j in judgements if j.closed] == [14]
    assert judgements[14].run is not None
    assert judgements[14].run.excess_ns == 4 * 14 + 6 * 8
    assert [j.iteration for j in judgements if j.quiet] == [15]
    assert [j.expected_ns for j in judgements[15:]] == [100, 100, 100, 100, 108, 108, 108]
    assert judgements[21].run is not None
    assert judgements[21].run.first == 21


def test_a_spike_is_over_after_such_dips_but_they_are_not_learned() -> None:
    judgements = judged([*READY, 112, 107, 108, 100], replace(SETTINGS, delta=1.1))
    assert [j.closed for j in judgements[5:]] == [False, False, True, False]
    assert {j.expected_ns for j in judgements[5:]} == {100}
    assert [j.run.excess_ns for j in judgements if j.run] == [12] * 3


def test_a_run_with_regular_iterations_between_is_compared_with_the_latest_of_these() -> None:
    """Agents are sure to keep 100 iterations alone."""
    draws = np.random.default_rng(1)
    apart = [100 + (int(draws.integers(50, 100)) if i % 2 else 0) for i in range(300)]  # no fluctuation of one height
    judgements = [j for j in judged([*[100] * 30, *apart], MonitorSettings()) if j.irregular and j.run]
    assert judgements[-1].run is not None
    assert judgements[-1].run.first == 31
    for judgement in judgements:
        assert judgement.run is not None
        assert judgement.iteration - min(judgement.run.compared_with) <= 100


def test_a_drift_is_followed() -> None:
    """Slower by a percent each iteration, which a fixed baseline would call irregular after 40."""
    durations = [int(1e6 * 1.01**i) for i in range(200)]
    assert irregular(judged(durations)) == []


def test_a_run_closes_after_two_regular_iterations_in_a_row() -> None:
    judgements = judged([*READY, 200, 100, 200, 100, 100, 100, 200])
    runs = [(j.run.first, j.run.last, j.run.ordinal, j.closed) if j.run else None for j in judgements[5:]]
    assert runs == [
        (5, 5, 1, False),
        (5, 5, 1, False),
        (5, 7, 2, False),
        (5, 7, 2, False),
        (5, 7, 2, True),
        None,
        (11, 11, 1, False),
    ]


def test_a_run_is_a_degradation_once_enough_follow_each_other() -> None:
    judgements = judged([*READY, 200, 200, 100, 200, 200, 100, 200, 200, 200, 100, 200])
    assert [j.run.pattern for j in judgements[5:] if j.run] == [SPIKE] * 8 + [DEGRADATION] * 3


def test_the_baseline_of_a_run_is_told_from_its_first_iteration_on() -> None:
    judgements = judged([*READY, 100, 200, 100, 200])
    assert [j.run.baseline for j in judgements if j.run] == [(2, 3, 4, 5)] * 3


def test_what_passed_for_regular_just_below_delta_is_not_compared_with() -> None:
    """Of a fault around delta some iterations are not irregular; beside these its others are nothing unusual."""
    durations, learned = [*READY, 145, 100, 100, 170], replace(SETTINGS, held_share=1.0)
    [run] = [j.run for j in judged(durations, learned) if j.run]
    assert run.baseline == (4, 6, 7)
    [of_few] = [j.run for j in judged(durations, replace(learned, least_baseline=4)) if j.run]
    assert of_few.baseline == (4, 5, 6, 7), "too few would be left"
    [as_published] = [j.run for j in judged(durations, replace(learned, plain_share=1.0)) if j.run]
    assert as_published.baseline == (4, 5, 6, 7)


def test_a_slowdown_of_about_delta_is_not_learned_before_one_of_its_iterations_is_found() -> None:
    durations = [*READY, 149, 148, 100, 149, 151, 149, 100, 100]
    judgements = judged(durations)
    assert irregular(judgements) == [9]
    assert {j.expected_ns for j in judgements[5:]} == {100}
    assert irregular(judged(durations, replace(SETTINGS, held_share=1.0))) == []


def test_what_is_held_back_is_learned_once_it_has_come_often() -> None:
    judgements = judged([*READY, 130, 132, 100, 134, 136, 100, 130])
    assert irregular(judgements) == []
    assert [j.expected_ns for j in judgements[5:]] == [100, 100, 100, 100, 100, 125, 117], "the latest of all"


def test_what_is_held_back_now_and_then_never_becomes_the_usual() -> None:
    """Of a job one in ten of whose iterations, at no period, takes longer by a little less than delta."""
    settings = replace(SETTINGS, window=8)
    seldom = np.random.default_rng(1).random(400) < 0.1
    durations = [100 + 40 * (at >= 10 and bool(long)) for at, long in enumerate(seldom)]
    judgements = judged([*durations, *[155] * 5], settings)
    assert {j.expected_ns for j in judgements[10:]} == {100}
    assert irregular(judgements) == [*range(400, 405)]
    assert judgements[400].run is not None
    assert min(judgements[400].run.compared_with) > 380


def test_what_may_exceed_delta_by_a_fixed_amount_is_held_back_by_as_much() -> None:
    settings = replace(SETTINGS, least_excess_ns=100)
    for longest, expected in ((145, 111), (155, 100)):  # held back is what exceeds it by more than half of the amount
        judgements = judged([*READY, longest, 100], settings)
        assert irregular(judgements) == []
        assert judgements[6].expected_ns == expected
    learned = judged([*READY, 199, 199, 100], replace(settings, held_share=1.0))
    assert [j.expected_ns for j in learned[5:]] == [100, 124, 149]


def test_what_a_job_scatters_by_is_not_held_back() -> None:
    wide = [100, 100, 80, 120, 80, 120]  # expected: 100, and 20 more are nothing unusual
    assert [j.expected_ns for j in judged([*wide, 130, 130], replace(SETTINGS, window=4))[6:]] == [100, 112]


def test_what_passed_for_regular_between_close_irregular_iterations_is_not_compared_with() -> None:
    """A slowdown around delta hides in iterations that happen to be short."""
    durations = [*[100] * 10, 200, 110, 110, 200, *[110] * 6, 200]

    def compared(settings: MonitorSettings) -> list[tuple[int, ...]]:
        return [j.run.baseline for j in judged(durations, settings) if j.run and j.irregular]

    settings = replace(SETTINGS, window=20)
    before, after = tuple(range(2, 10)), tuple(range(14, 20))
    assert compared(settings) == [before, before, before + after]
    assert compared(replace(settings, close_by=2)) == [before, (*before, 11, 12), (*before, 11, 12, *after)]
    assert compared(replace(settings, reach=8))[1] == (6, 7, 8, 9), "what was before may be overwritten"
    assert compared(replace(settings, reach=6))[1] == (*before, 11, 12), "too few would be left"


def steps(durations: Iterable[int | None]) -> list[int]:
    """The step ordinals of irregular iterations."""
    settings = replace(SETTINGS, step_delta=1.5)
    return [j.run.step_ordinal for j in judged([*READY, *durations], settings) if j.irregular and j.run]


def test_iterations_that_are_longer_still_are_on_a_step_of_their_run() -> None:
    assert steps([200, 210, 190, 290, 350, 360, 340]) == [0, 0, 0, 0, 1, 2, 3]


def test_a_step_tells_where_it_began_and_what_it_lost() -> None:
    settings = replace(SETTINGS, step_delta=1.5)
    judgements = judged([*READY, 200, 200, 400, 200, 400, 800, 400], settings)
    told = [(j.run.step_from, j.run.step_excess_ns) for j in judgements if j.run]
    assert told == [(None, None), (None, None), (7, 300), (None, None), (7, 600), (10, 700), (None, None)]


def test_a_step_above_a_step_is_a_new_one() -> None:
    assert steps([200, 200, 320, 600, 600, 320]) == [0, 0, 1, 1, 2, 0]


def test_what_is_as_long_as_the_run_usually_is_is_no_step() -> None:
    assert steps([200, 290, 300, 340, 400]) == [0] * 5  # it is compared with the mean since the run began
    assert steps([200, 300]) == [0, 0]


def test_counting_goes_on_when_a_step_comes_again() -> None:
    assert steps([200, 400, 400, 200, 200, 400, 200, 400]) == [0, 1, 2, 0, 0, 3, 0, 4]


def test_regular_and_unknown_iterations_between_do_not_end_a_step() -> None:
    assert steps([200, 400, None, 400, 100, 400]) == [0, 1, 2, 3]
    assert steps([200, 400, 100, 100, 400]) == [0, 1, 0]  # that is another run


def compared_with(durations: Iterable[int | None]) -> list[tuple[int, ...]]:
    """What the iterations of a run's step are compared with."""
    settings = replace(SETTINGS, step_delta=1.5, reach=8)
    return [j.run.compared_with for j in judged([*READY, *durations], settings) if j.run and j.run.on_step]


def test_a_late_step_is_compared_with_what_is_below_it_since_what_was_before_the_run_may_be_overwritten() -> None:
    assert compared_with([200] * 4 + [400] * 2) == [(2, 3, 4)] * 1 + [(5, 6, 7, 8)]
    assert compared_with([200] * 9 + [400] * 2) == [(10, 11, 12, 13)] * 2
    assert compared_with([200] * 9 + [400] + [200] * 12 + [400]) == [(10, 11, 12, 13), (23, 24, 25, 26)]
    assert compared_with([200, 200, *[None] * 9, 400]) == [(2, 3, 4)], "two are too few"
    above = compared_with([200] * 9 + [400] * 12 + [900] * 2)
    assert above[-2:] == [(22, 23, 24, 25)] * 2, "of a step above a step, the one below it"


def test_peaks_are_compared_with_what_lies_just_before_them() -> None:
    """Ranks drift meanwhile, and what was before the first one may be overwritten."""
    durations = [200 if at % 7 == 0 else 100 + at % 3 for at in range(400)]
    told = [j for j in judged(durations) if j.irregular and j.run]
    fluctuating = [j for j in told if j.run and j.run.pattern == FLUCTUATION]
    assert len(fluctuating) > 40
    assert all(j.run.compared_with == tuple(range(j.iteration - 4, j.iteration)) for j in fluctuating[1:] if j.run)


def test_unknown_durations_change_nothing() -> None:
    plain = judged([*READY, 200, 200, 100, 200, 100, 100])
    holes = judged([*READY, None, 200, None, 200, 100, None, 200, None, 100, None, 100, None])
    known = [j for j in holes if j.duration_ns is not None]
    assert [(j.irregular, j.expected_ns, j.closed) for j in known] == [
        (j.irregular, j.expected_ns, j.closed) for j in plain
    ]
    for j in holes:
        if j.duration_ns is None:
            assert (j.irregular, j.closed, j.quiet) == (None, False, False)
    assert [j.run.excess_ns for j in holes if j.run][-1] == 300


def test_quiet_is_told_once_after_long_enough_without_irregularities() -> None:
    judgements = judged([*READY, 200, *[100] * 5, 200, *[100] * 20])
    assert [j.iteration for j in judgements if j.quiet] == [17]
    assert [j.iteration for j in judged([*READY, *[100] * 50]) if j.quiet] == []


durations = st.lists(st.none() | st.integers(90, 110) | st.integers(100, 400), max_size=60)
all_settings = st.builds(
    MonitorSettings,
    delta=st.floats(1.01, 2.0),
    window=st.integers(1, 8),
    least_baseline=st.integers(1, 5),
    warm_up=st.integers(0, 4),
    degradation_after=st.integers(1, 5),
    closed_after=st.integers(1, 3),
    quiet_after=st.integers(1, 8),
    step_delta=st.floats(1.0, 2.0),
)


@given(durations, all_settings)
def test_the_baseline_is_the_mean_of_the_last_regular_iterations(
    told: list[int | None], settings: MonitorSettings
) -> None:
    """Of all of them, where none are held back, nor left out as dips of a run."""
    settings = replace(settings, held_share=1.0, plain_share=1.0)
    judgements = judged(told, settings)
    least = min(settings.least_baseline, settings.window)
    since = next((n for n, j in enumerate(judgements) if j.expected_ns is not None), len(judgements))
    regular: list[int] = []
    for judgement in judgements[since:]:
        assert judgement.expected_ns is not None
        if regular[-settings.window :] and len(regular) >= settings.window:
            assert judgement.expected_ns == sum(regular[-settings.window :]) // settings.window
        if judgement.irregular is not None:
            assert judgement.duration_ns is not None
            assert judgement.irregular == (judgement.duration_ns > settings.delta * judgement.expected_ns)
        if judgement.irregular is False and judgement.duration_ns is not None:
            regular.append(judgement.duration_ns)
    assert sum(d is not None for d in told[:since]) >= least or since == len(judgements)


@given(durations, all_settings, st.lists(st.integers(0, 60), max_size=4))
def test_a_monitor_that_is_restarted_anywhere_judges_as_one_that_never_was(
    told: list[int | None], settings: MonitorSettings, cuts: list[int]
) -> None:
    monitor = IterationMonitor(settings)
    judgements = []
    for iteration, duration in enumerate(told):
        if iteration in cuts:
            monitor = IterationMonitor.from_state(json.loads(json.dumps(monitor.to_state())), settings)
        judgements.append(monitor.judge(iteration, duration))
    assert judgements == judged(told, settings)


def test_no_cut_of_an_eventful_log_is_noticed() -> None:
    told = [None, *READY, 200, None, 200, 100, 200, 200, 200, *[100] * 3, None, *[100] * 8, 300, *[100] * 4]
    told += [140, 100, 140, 140, 140, 100, 145]  # held back, and learned after a while
    for cut in range(len(told)):
        monitor = IterationMonitor(SETTINGS)
        judgements = [monitor.judge(i, told[i]) for i in range(cut)]
        monitor = IterationMonitor.from_state(json.loads(json.dumps(monitor.to_state())), SETTINGS)
        assert [*judgements, *(monitor.judge(i, told[i]) for i in range(cut, len(told)))] == judged(told)


@given(durations, all_settings)
def test_runs_are_told_consistently(told: list[int | None], settings: MonitorSettings) -> None:
    judgements = judged(told, settings)
    excess, ordinal, first = 0, 0, None
    for j in judgements:
        if j.irregular:
            assert j.run is not None
            assert j.expected_ns is not None
            assert j.duration_ns is not None
            if j.run.ordinal == 1:
                excess, ordinal, first = 0, 0, j.iteration
            excess, ordinal = excess + j.duration_ns - j.expected_ns, ordinal + 1
            assert (j.run.first, j.run.last, j.run.ordinal, j.run.excess_ns) == (first, j.iteration, ordinal, excess)
            assert j.run.first not in j.run.baseline
            assert not j.closed
        elif j.run is not None and j.run.excess_ns != excess:  # it dips below delta, and belongs to the run
            assert j.duration_ns is not None
            assert j.expected_ns is not None
            excess += j.duration_ns - j.expected_ns
            assert (j.irregular, j.run.ordinal, j.run.excess_ns) == (False, ordinal, excess)
            assert not j.closed or j.iteration - j.run.last >= settings.quiet_after
        assert not j.closed or j.irregular is False


def test_what_a_pause_exceeds_the_usual_one_by_is_not_judged_nor_what_follows_it_learned() -> None:
    monitor = IterationMonitor(SETTINGS)
    for iteration, duration in enumerate(READY):
        monitor.judge(iteration, duration, 10)
    checkpoint = monitor.judge(5, 180, 90)
    assert (checkpoint.irregular, checkpoint.duration_ns, checkpoint.pause_ns) == (False, 100, 80)
    after = monitor.judge(6, 120, 10)
    assert (after.irregular, after.duration_ns, after.pause_before_ns) == (False, 120, 80)
    assert 6 not in dict(monitor.baseline)
    again = IterationMonitor.from_state(json.loads(json.dumps(monitor.to_state())), SETTINGS)
    assert again == monitor


def test_a_slower_iteration_with_a_pause_is_as_irregular_as_without() -> None:
    monitor = IterationMonitor(SETTINGS)
    for iteration, duration in enumerate(READY):
        monitor.judge(iteration, duration, 10)
    slow = monitor.judge(5, 1160, 1010)
    assert (slow.irregular, slow.duration_ns) == (True, 160)
    assert slow.run is not None
    assert slow.run.excess_ns == 60


def test_of_pauses_after_one_iteration_and_the_next_the_second_is_judged() -> None:
    """What slows all ranks alike between their operators looks like a pause, time after time."""
    monitor = IterationMonitor(SETTINGS)
    for iteration, duration in enumerate(READY):
        monitor.judge(iteration, duration, 10)
    told = [monitor.judge(5 + at, 190, 100) for at in range(4)]
    assert [(one.pause_ns, one.irregular) for one in told] == [(90, False), (0, True), (0, True), (0, True)]


@pytest.mark.parametrize(("pause", "told"), [(59, 0), (60, 50)])
def test_a_pause_that_is_little_longer_than_usual_is_judged(pause: int, told: int) -> None:
    monitor = IterationMonitor(SETTINGS)
    for iteration, duration in enumerate(READY):
        monitor.judge(iteration, duration, 10)
    assert monitor.judge(5, 100 + pause - 10, pause).pause_ns == told


@pytest.mark.parametrize(("window", "judges"), [(0, False), (1, True), (2, True)])
def test_a_window_smaller_than_the_least_baseline_is_enough(window: int, judges: bool) -> None:
    settings = MonitorSettings(delta=1.5, window=window, least_baseline=5)
    assert irregular(judged([*[100] * 20, 200], settings)) == ([20] if judges else [])


@pytest.mark.parametrize("factor", [1.05, 1.2])
def test_the_default_delta_is_a_tenth(factor: float) -> None:
    default = MonitorSettings()
    calm = [10**9] * (default.warm_up + default.least_baseline)
    assert irregular(judged([*calm, int(factor * 10**9)], default)) == ([len(calm)] if factor > 1.1 else [])
