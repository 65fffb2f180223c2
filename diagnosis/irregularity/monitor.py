"""Irregular iterations: longer than delta times the average of the regular ones before them (Holmes 3.1, 4.2.2).

A windowed mean as the paper words it (``learns``) absorbs a degradation that lasts longer than the window, so by
default irregular iterations never enter the baseline; neither do warm-up iterations nor those whose duration a gap in
the log hides, nor what dips below delta while a run of irregular ones goes on, nor the few that are nearly irregular,
which may be of a slowdown of about delta. What all ranks pause after an iteration, far beyond the usual, is no part of
it (a step beyond the paper), and the iteration that follows is not learned.
A fluctuation has a smaller delta of its own, which counts only while there is evidence that it recurs
(``fluctuation``): noise alone exceeds it now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from statistics import median_low
from typing import Any

from diagnosis.irregularity.fluctuation import Recurrence, recurrence
from diagnosis.irregularity.monitor_settings import MonitorSettings
from diagnosis.irregularity.run import Plateau, Run


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one iteration is; ``irregular`` and ``expected_ns`` are None where that cannot be told.

    ``duration_ns`` is without ``pause_ns``, what all paused after it beyond the usual; before it they had paused for
    ``pause_before_ns``. ``run`` is the open run that the iteration belongs to; with ``closed`` it is the one that ended
    here.
    ``quiet``: the last irregular iteration has just become long ago. ``delta`` is what was judged by. One in ten of the
    latest regular iterations before it (the longest of fewer than 20) is at least ``scatter_ns`` longer than expected;
    None: the baseline is not of regular ones alone.
    """

    iteration: int
    duration_ns: int | None
    expected_ns: int | None
    irregular: bool | None
    delta: float
    run: Run | None = None
    closed: bool = False
    quiet: bool = False
    scatter_ns: int | None = None
    pause_ns: int = 0
    pause_before_ns: int = 0


@dataclass
class IterationMonitor:
    """Judges the iterations of one job one after the other by how long each was; ``first`` is the first that came."""

    settings: MonitorSettings = field(default_factory=MonitorSettings)
    first: int | None = None
    seen: int = 0
    baseline: deque[tuple[int, int]] = field(default_factory=deque)
    run: Run | None = None
    regular_in_a_row: int | None = None
    recent: deque[int | None] = field(default_factory=deque)
    pauses: deque[int] = field(default_factory=deque)
    paused_ns: int = 0
    long_pauses: int = 0
    latest_irregular: int | None = None
    suspect: frozenset[int] = frozenset()
    held: list[tuple[int, int]] = field(default_factory=list)

    @property
    def expected_ns(self) -> int | None:
        """What the next iteration is expected to take; None while too few were seen."""
        if len(self.baseline) < self._enough:
            return None
        return sum(duration for _, duration in self.baseline) // len(self.baseline)

    def judge(self, iteration: int, duration_ns: int | None, pause_ns: int | None = None) -> Judgement:
        """Take the next iteration in; a duration of None is not known and changes nothing but the count.

        ``pause_ns``: for how long of it, at its end, no rank had an operator; None: not known.
        """
        beyond_usual_ns = 0 if duration_ns is None or pause_ns is None else self._beyond_usual(duration_ns, pause_ns)
        judgement = self._judge(iteration, None if duration_ns is None else duration_ns - beyond_usual_ns)
        before_ns, self.paused_ns = self.paused_ns, beyond_usual_ns
        return replace(judgement, pause_ns=beyond_usual_ns, pause_before_ns=before_ns)

    def _judge(self, iteration: int, duration_ns: int | None) -> Judgement:
        self.seen += 1
        if self.seen == 1:
            self.first = iteration
        self._remember(duration_ns)
        expected = self.expected_ns
        recurs = self._recurrence(duration_ns, expected)
        delta = self.settings.delta if recurs is None else min(self.settings.delta, recurs.delta)
        if duration_ns is None:
            return Judgement(iteration, None, expected, None, delta, self.run)
        if expected is None:
            self._learn(iteration, duration_ns)
            if not self._learns_all:
                self._forget_outliers()
            return Judgement(iteration, duration_ns, None, None, delta)
        most_ns = max(delta * expected, expected + self.settings.least_excess_ns)
        if duration_ns > most_ns:
            scatter_ns = None if self._learns_all else self._scatter_ns(expected, [*self.baseline, *self.held])
            period, since = (None, None) if recurs is None else recurs
            self._suspect_before(iteration)
            self.held.clear()
            run = self._extended(iteration, duration_ns, expected)
            if self._learns_all:
                self._learn(iteration, duration_ns)
            self.run = replace(run, period=period, recurs_from=since)
            self.regular_in_a_row = 0
            return Judgement(iteration, duration_ns, expected, True, delta, self.run, scatter_ns=scatter_ns)
        dipped_run = self._dips_from(duration_ns, expected)
        if self._learns_all:
            self._learn(iteration, duration_ns)
        elif dipped_run is None:
            self._learn_or_hold(iteration, duration_ns, expected, most_ns)
        if dipped_run is not None and dipped_run.degraded:
            dipped = replace(dipped_run, excess_ns=dipped_run.excess_ns + max(0, duration_ns - expected))
            eased = self._has_eased()
            self.run = None if eased else dipped
            return Judgement(iteration, duration_ns, expected, False, delta, dipped, closed=eased)
        quiet = self._counts_as_quiet()
        if self.run is None:
            return Judgement(iteration, duration_ns, expected, False, delta, quiet=quiet)
        since = self.run.regular_since + 1
        ended = since >= self._closed_after(self.run)
        run = replace(self.run, regular_since=since, in_a_row=0)
        self.run = None if ended else run
        return Judgement(iteration, duration_ns, expected, False, delta, run, closed=ended, quiet=quiet)

    def await_quiet(self) -> None:
        """Somebody was named though nothing is known to be irregular: a long quiet is to be told after this as well."""
        self.regular_in_a_row = 0

    def to_state(self) -> dict[str, Any]:
        """What a restart needs to judge as if there had been none."""
        return {
            "first": self.first,
            "seen": self.seen,
            "baseline": [list(entry) for entry in self.baseline],
            "run": asdict(self.run) if self.run else None,
            "regular_in_a_row": self.regular_in_a_row,
            "recent": list(self.recent),
            "pauses": list(self.pauses),
            "paused_ns": self.paused_ns,
            "long_pauses": self.long_pauses,
            "latest_irregular": self.latest_irregular,
            "suspect": sorted(self.suspect),
            "held": [list(entry) for entry in self.held],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], settings: MonitorSettings) -> IterationMonitor:
        """The monitor that ``to_state`` described."""
        run = state["run"]
        return cls(
            settings=settings,
            first=state["first"],
            seen=state["seen"],
            baseline=deque((iteration, duration) for iteration, duration in state["baseline"]),
            run=Run.from_state(run) if run else None,
            regular_in_a_row=state["regular_in_a_row"],
            recent=deque(state["recent"]),
            pauses=deque(state["pauses"]),
            paused_ns=state["paused_ns"],
            long_pauses=state["long_pauses"],
            latest_irregular=state["latest_irregular"],
            suspect=frozenset(state["suspect"]),
            held=[(iteration, duration) for iteration, duration in state["held"]],
        )

    @property
    def _learns_all(self) -> bool:
        return self.settings.learns == "all"

    @property
    def _enough(self) -> int:
        """Iterations that are enough to compare with."""
        return max(1, min(self.settings.least_baseline, self.settings.window))

    @property
    def _is_comparable(self) -> bool:
        """Whether the iteration that has just come may be one to compare with: searches compare what precedes first
        operators too.
        """
        return self.seen > self.settings.warm_up and not self.paused_ns

    def _remember(self, duration_ns: int | None) -> None:
        if self.seen > self.settings.warm_up:
            self.recent.append(duration_ns)
        while len(self.recent) > self.settings.fluctuation.window:
            self.recent.popleft()

    def _beyond_usual(self, duration_ns: int, pause_ns: int) -> int:
        """What the pause after an iteration exceeds the usual one by, if that is much."""
        beyond_ns = pause_ns - median_low(self.pauses) if self.pauses else 0
        self.pauses.append(pause_ns)
        while len(self.pauses) > self.settings.window:
            self.pauses.popleft()
        usual_ns = self.expected_ns or duration_ns - beyond_ns
        is_long = beyond_ns > 0 and beyond_ns >= self.settings.pause_share * usual_ns
        self.long_pauses = self.long_pauses + 1 if is_long else 0
        return beyond_ns if self.long_pauses == 1 else 0  # where one follows another all ranks are slow

    def _recurrence(self, duration_ns: int | None, expected_ns: int | None) -> Recurrence | None:
        """The fluctuation that goes on, or that shows with this iteration; None: there is none."""
        run, settings = self.run, self.settings.fluctuation
        known = None
        if run is not None and run.period is not None and run.recurs_from is not None:
            known = Recurrence(run.period, run.recurs_from)
        least = min(settings.faint, settings.delta)
        if duration_ns is None or expected_ns is None or duration_ns <= least * expected_ns:
            return known
        if run is not None and run.degraded:
            return known
        return recurrence(list(self.recent), settings) or known

    def _closed_after(self, run: Run) -> int:
        """After how many regular iterations a run has ended."""
        closed_after = self.settings.closed_after
        if run.period is None:
            return closed_after
        return max(closed_after, ceil(self.settings.fluctuation.closed_after_periods * run.period))

    def _scatter_ns(self, expected_ns: int, iterations: Iterable[tuple[int, int]]) -> int:
        """What one in ten of some iterations take beyond the expected; of few the longest one."""
        durations = sorted(duration for _, duration in iterations)
        return max(0, durations[-max(1, len(durations) // 10)] - expected_ns)

    def _counts_as_quiet(self) -> bool:
        if self.regular_in_a_row is None:
            return False
        self.regular_in_a_row += 1
        if self.regular_in_a_row < self.settings.quiet_after:
            return False
        self.regular_in_a_row = None
        return True

    def _has_eased(self) -> bool:
        """Whether a degradation has been within delta for so long that this is how the job runs now; counts another
        iteration of that.
        """
        self.regular_in_a_row = (self.regular_in_a_row or 0) + 1
        return self.regular_in_a_row >= self.settings.quiet_after

    def _dips_from(self, duration_ns: int, expected_ns: int) -> Run | None:
        """The open run that an iteration within delta is nearer to than to what is usual: a slowdown of about delta
        dips below it now and then. It is not learned, nor a sign that a degradation is over.
        """
        run = self.run
        if run is None:
            return None
        usual_excess_ns = run.level.excess_ns / run.level.length
        return run if duration_ns > expected_ns + self.settings.plain_share * usual_excess_ns else None

    def _suspect_before(self, iteration: int) -> None:
        """Suspect what passed for regular between the last two irregular iterations, where these are close."""
        known = {learned for learned, _ in self.baseline}
        if self.latest_irregular is not None and iteration - self.latest_irregular <= self.settings.close_by:
            self.suspect |= {learned for learned in known if learned > self.latest_irregular}
        self.suspect &= known
        self.latest_irregular = iteration

    def _forget_outliers(self) -> None:
        """Drop what was learned before anything could be judged and is too long beside the rest of it; of three nothing
        tells which that is.
        """
        if len(self.baseline) > 3:
            longest_ns = self.settings.delta * median_low(duration for _, duration in self.baseline)
            self.baseline = deque(entry for entry in self.baseline if entry[1] <= longest_ns)

    def _learn(self, iteration: int, duration_ns: int) -> None:
        if not self._is_comparable:
            return
        self.baseline.append((iteration, duration_ns))
        while len(self.baseline) > self.settings.window:
            self.baseline.popleft()

    def _learn_or_hold(self, iteration: int, duration_ns: int, expected_ns: int, most_ns: float) -> None:
        """Learn a regular iteration, but one that may be of a slowdown of about delta only beside many like it."""
        settings = self.settings
        usual_ns = settings.held_scatter * self._scatter_ns(expected_ns, self.baseline)
        plain_ns = max(settings.held_share * (most_ns - expected_ns), usual_ns)
        if settings.held_share >= 1 or duration_ns - expected_ns <= plain_ns:
            self._learn(iteration, duration_ns)
        elif self._is_comparable:
            lately = [entry for entry in self.held if entry[0] > iteration - 2 * settings.window]
            self.held = [*lately, (iteration, duration_ns)]
        if len(self.held) >= settings.window:
            self.baseline = deque(sorted([*self.baseline, *self.held])[-settings.window :])
            self.held = []

    def _extended(self, iteration: int, duration_ns: int, expected_ns: int) -> Run:
        run, excess_ns, share = self.run, duration_ns - expected_ns, self.settings.plain_share
        if run is None:
            plain = self._plain_baseline(iteration, expected_ns + int(share * excess_ns))
            return Run.begun(iteration, excess_ns, plain)
        in_a_row = run.in_a_row + 1
        extended = replace(
            self._on_its_plateau(run, iteration, duration_ns, expected_ns),
            last=iteration,
            ordinal=run.ordinal + 1,
            in_a_row=in_a_row,
            excess_ns=run.excess_ns + excess_ns,
            regular_since=0,
            degraded=run.degraded or in_a_row >= self.settings.degradation_after,
        )
        far_back = extended.last - min(extended.baseline, default=extended.last) >= self.settings.reach
        if (run.period is not None or far_back) and not extended.degraded:
            # Between its peaks the job is as usual, and ranks drift; agents may have overwritten what was before it.
            longest_ns = expected_ns + int(share * excess_ns)
            plain = self._plain_baseline(iteration, longest_ns, with_suspect=run.period is not None)
            extended = replace(extended, baseline=plain)
        return replace(extended, below_step=extended.level.latest) if self._is_late(extended) else extended

    def _is_late(self, run: Run) -> bool:
        """Whether a run's last iteration is on a step, and what that is compared with may be overwritten by now."""
        oldest = min(run.compared_with, default=run.last)
        return run.on_step and run.last - oldest >= self.settings.reach and len(run.level.latest) >= self._enough

    def _plain_baseline(self, now: int, longest_ns: int, *, with_suspect: bool = False) -> tuple[int, ...]:
        """The iterations of the baseline that lasted no longer, and are not suspect: of a fault just around delta some
        pass for regular, and nothing is unusual beside these. More of them where that leaves too few.
        """
        everything = tuple(iteration for iteration, _ in self.baseline)
        plain = tuple(iteration for iteration, duration_ns in self.baseline if duration_ns <= longest_ns)
        kept = plain if with_suspect else tuple(one for one in plain if self._is_beyond_suspicion(one, now))
        enough = min(self.settings.least_baseline, len(everything))
        return next(offered for offered in (kept, plain, everything) if len(offered) >= enough)

    def _is_beyond_suspicion(self, iteration: int, now: int) -> bool:
        """Whether one is not suspect, and agents' logs are sure to reach back to it."""
        return iteration not in self.suspect and now - iteration < self.settings.reach

    def _on_its_plateau(self, run: Run, iteration: int, duration_ns: int, expected_ns: int) -> Run:
        """A run with its next irregular iteration on the level, on the step above it, or on a new one above all.

        Counting goes on when a step comes again, so that spikes in a degradation are few steps, not many.
        """
        excess_ns, window = duration_ns - expected_ns, self.settings.window

        def beyond(plateau: Plateau) -> bool:
            return duration_ns > self.settings.step_delta * (expected_ns + plateau.excess_ns // plateau.length)

        if not beyond(run.level):
            return replace(run, level=run.level.with_next(iteration, excess_ns, window), on_step=False)
        if run.step is not None and not beyond(run.step):
            return replace(run, step=run.step.with_next(iteration, excess_ns, window), on_step=True)
        step = Plateau.begun(iteration, excess_ns)
        return replace(run, level=run.step or run.level, step=step, on_step=True, below_step=())
