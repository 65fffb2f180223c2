"""Seconds from the last record of an irregular iteration to its stored findings, all in this process.

What the log agents encode, what the bus carries, the search and the store (chDB) count; that the simulated logs must
be worked out first does not. In a cluster the agents of a search's hosts work side by side; here one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.large.observed import Seconds, TimedLog
from benchmarks.large.volume import operators_an_iteration, volume
from benchmarks.telemetry_bytes import TelemetryBytes
from diagnosis.job import pivots
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import JobSource
from producers.live.live_store import WANTED_ITERATIONS
from producers.simulated_store import simulated_agents
from producers.simulation import LazyRun
from schemas import catalogue
from schemas.log_answers import REQUEST_ID
from schemas.message import Message, decode
from schemas.processor import Processor
from schemas.topic import Topic
from sinks.clickhouse.sink import ClickHouseSink
from streams import in_process
from streams.control_view import Jobs


@dataclass(frozen=True, slots=True)
class Localized:
    """One irregular iteration that was searched: seconds to its stored findings, and what was fetched for it."""

    iteration: int
    seconds: Seconds
    fetched_rows: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A run: its size, what its searches took, and its telemetry beside everything that its ranks log, in bytes."""

    ranks: int
    iterations: int
    operators_a_rank: int
    without_ends: bool
    searches: tuple[Localized, ...]
    simulate_s: float
    everything_bytes: int
    unasked_bytes: int
    fetched_bytes: int


@dataclass
class Stopwatch:
    """Time without what the simulator and the watch itself take. ``heard`` sees each message before any step does."""

    log: TimedLog
    _last_record: dict[int, Seconds] = field(default_factory=dict)
    _fetched_rows: int = 0
    _fetched_bytes: int = 0
    _own: Seconds = field(default_factory=Seconds)

    def heard(self, message: Message) -> None:
        """Note when an iteration's records come, and what is fetched."""
        started = Seconds.now()
        if message.topic == catalogue.ITERATION_SUMMARIES.name:
            rows = decode(message, catalogue.ITERATION_SUMMARIES)
            now = self.now()
            self._last_record.update(dict.fromkeys(rows.column("iteration").to_pylist(), now))
        elif REQUEST_ID in message.headers and message.value is not None:
            self._fetched_bytes += len(message.value)
            if message.topic == catalogue.COMM_OPS.name:
                self._fetched_rows += decode(message, catalogue.COMM_OPS).num_rows
        self._own = self._own.plus(Seconds.now().less(started))

    def stop(self, iteration: int) -> Localized:
        """What the search of an iteration took, whose findings are stored now."""
        seconds = self.now().less(self._last_record[iteration])
        localized = Localized(iteration, seconds, self._fetched_rows, self._fetched_bytes)
        self._fetched_rows = self._fetched_bytes = 0
        return localized

    def now(self) -> Seconds:
        """Seconds that have passed outside the simulator and the watch."""
        return Seconds.now().less(self.log.taken).less(self._own)


@dataclass
class StoredFindings:
    """A reader that stores findings at once, each time stopping the watch."""

    sink: ClickHouseSink
    watch: Stopwatch
    name: str = "stored-findings"
    reads: tuple[Topic, ...] = (catalogue.FINDINGS,)
    writes: tuple[Topic, ...] = ()
    searches: list[Localized] = field(default_factory=list)

    def process(self, message: Message) -> Iterable[Message]:
        """Store the findings; those that only end something are no search's."""
        self.sink.process(message)
        self.sink.flush()
        active = [row["iteration"] for row in decode(message, catalogue.FINDINGS).to_pylist() if row["active"]]
        self.searches += [self.watch.stop(iteration) for iteration in active[:1]]
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


def measure(run: LazyRun, settings: Settings, simulate_s: float = 0.0) -> Measured:
    """Move a run through the pipeline and time its searches; ``simulate_s`` is what simulating took so far."""
    log = TimedLog(run)
    watched = pivots(run.job, settings.pivots)
    hosts = simulated_agents(log, watched, keep_iterations=WANTED_ITERATIONS)
    jobs, watch, counted = Jobs(), Stopwatch(log), TelemetryBytes()
    with _chdb(settings) as sink:
        stored = StoredFindings(sink, watch)
        processors: list[Processor] = [jobs, *hosts, *wiring.steps(jobs, settings).values(), counted, stored]
        in_process.run([JobSource(run.job, hosts), *hosts], processors, on_message=watch.heard)
    simulated_s, logged = log.taken.wall, volume(log)
    return Measured(
        ranks=run.scenario.world,
        iterations=run.scenario.iterations,
        operators_a_rank=operators_an_iteration(log) // run.scenario.world,
        without_ends=run.scenario.omissions.ends,
        searches=tuple(stored.searches),
        simulate_s=simulate_s + simulated_s,
        everything_bytes=logged.everything,
        unasked_bytes=counted.pivots + logged.summaries,
        fetched_bytes=counted.fetched,
    )


@contextmanager
def _chdb(settings: Settings) -> Iterator[ClickHouseSink]:
    """A store in a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="offbeat-bench-") as folder:
        of_folder = settings.store.in_folder(Path(folder))
        with wiring.opened(of_folder) as store:
            yield wiring.store_sink(store, of_folder)


def figures(runs: Iterable[Measured]) -> dict[str, dict[str, object]]:
    """All runs by their number of ranks: p50 and p99 are over the searched iterations."""
    of_size: dict[int, list[Measured]] = {}
    for run in runs:
        of_size.setdefault(run.ranks, []).append(run)
    return {str(ranks): _of_size(of) for ranks, of in sorted(of_size.items())}


def _of_size(runs: list[Measured]) -> dict[str, object]:
    searches = [search for run in runs for search in run.searches]
    total: Counter[str] = Counter()
    for run in runs:
        total.update(everything=run.everything_bytes, unasked=run.unasked_bytes, fetched=run.fetched_bytes)
    an_iteration = sum(run.everything_bytes / run.iterations for run in runs) / len(runs)
    a_search = sum(search.fetched_bytes for search in searches) / max(len(searches), 1)
    return {
        "runs": len(runs),
        "searched_iterations": len(searches),
        "operators_a_rank": [run.operators_a_rank for run in runs],
        "seconds": _seconds(runs),
        "cpu_seconds": _seconds(runs, cpu=True),
        "seconds_by_ends": {
            "given": _seconds([run for run in runs if not run.without_ends]),
            "omitted": _seconds([run for run in runs if run.without_ends]),
        },
        "fetched_mb_a_search": round(a_search / 1e6, 2),
        "fetched_to_an_iteration": round(a_search / an_iteration, 5),
        "fetched_rows_a_search": round(sum(s.fetched_rows for s in searches) / max(len(searches), 1)),
        "everything_gb_a_run": round(total["everything"] / len(runs) / 1e9, 3),
        "fetched_share": round(total["fetched"] / total["everything"], 5),
        "telemetry_share": round((total["fetched"] + total["unasked"]) / total["everything"], 5),
        "simulator_s_a_run": round(sum(run.simulate_s for run in runs) / len(runs), 1),
    }


def _seconds(runs: Iterable[Measured], *, cpu: bool = False) -> dict[str, float] | None:
    """Of all searches of some runs, by the clock or of this process alone; None: there are none."""
    taken = [search.seconds for run in runs for search in run.searches]
    return seconds([each.cpu if cpu else each.wall for each in taken])


def seconds(taken: Sequence[float]) -> dict[str, float] | None:
    """What searches took, in the median, at the 99th percentile and at most; None: there are none."""
    if not taken:
        return None
    p50, p99, longest = np.percentile(taken, [50, 99, 100]).tolist()
    return {"p50": round(p50, 3), "p99": round(p99, 3), "max": round(longest, 3)}
