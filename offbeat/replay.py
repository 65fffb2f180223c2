"""The past diagnosed again: what was kept of it goes through the steps with other settings, and is compared.

Of a window of the topics, what was said then is on them as well; of a recording it is what the settings of the
environment say of it. What is no longer kept is told, and never taken for silence: an agent's logs that did not
travel then, and are in no folder that was given, are answered as overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from offbeat import terminal, wiring
from offbeat.comparison import FINDING, INCIDENT, SAME, VERDICTS, Difference, Said, compare
from offbeat.diagnose import run
from offbeat.past import Past, Summaries
from offbeat.reading import Recorded
from offbeat.settings import Settings
from producers.kept_answers import KeptAnswers
from producers.kept_logs import KeptLogs
from schemas.processor import Processor
from sinks.webhook.content import ranges
from streams import in_process


@dataclass(frozen=True, slots=True)
class Replayed:
    """Both diagnoses side by side.

    ``alike`` says that both had the same to go by, so that what differs comes from the settings. ``gone`` says what
    was missing, ``unjudged`` which iterations nothing could be compared with, ``refused`` why records could not be
    used.
    """

    differences: Sequence[Difference]
    iterations: int
    gone: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    alike: bool = False
    counts: Mapping[str, Counter[str]] = field(init=False)

    def __post_init__(self) -> None:
        counted = {what: Counter(dict.fromkeys(VERDICTS, 0)) for what in (FINDING, INCIDENT)}
        for difference in self.differences:
            counted[difference.what][difference.verdict] += 1
        object.__setattr__(self, "counts", counted)

    @property
    def doubtful(self) -> bool:
        """Whether what differs may come from what is gone, rather than from the settings."""
        differs = any(difference.verdict != SAME for difference in self.differences)
        return differs and bool(self.gone) and not self.alike


def again(past: Past, settings: Settings, sinks: Sequence[Processor] = ()) -> Replayed:
    """Diagnose the past with these settings; ``sinks`` take what is found. Raises ``BusError`` while it is read."""
    now = Said()
    kept = KeptAnswers(past.logs)
    pipeline = wiring.steps(past.jobs, settings).values()
    with terminal.progress("replaying, iterations judged") as shown:
        now.on_iteration = shown.advance
        in_process.run([Summaries(past)], [kept, *pipeline, now, *sinks])
    differences = compare(past.then.about(past.compared), now.about(past.compared))
    gone = [*past.missing.lines, *_gone_logs(past.logs), *_let_go(past.then, now)]
    if not past.compared:
        gone.append("no iteration of the window is kept: there was nothing to diagnose")
    total = sum(map(len, past.compared.values()))
    return Replayed(differences, total, tuple(gone), tuple(_unjudged(past.compared, now)), tuple(now.refused))


def of_recording(recorded: Recorded, before: Settings, settings: Settings, sinks: Sequence[Processor] = ()) -> Replayed:
    """Diagnose a recording with both settings."""
    job, said = recorded.job.job, []
    runs = (("of the environment (then)", before, ()), ("that were given (now)", settings, sinks))
    for whose, each, readers in runs:
        said.append(Said())
        with terminal.progress(f"diagnosing {job} with the settings {whose}"):
            run(recorded.ended(each.segment.late_ns), each, [said[-1], *readers])
    then, now = said
    logged: set[int] = set()
    unjudged: tuple[str, ...] = ()
    if recorded.operators is not None:
        logged = set(recorded.operators.table.column("iteration").drop_null().unique().to_pylist())
        unjudged = tuple(_unjudged({job: logged}, now))
    iterations = len(logged) or max(one.passed.get(job, 0) for one in said)
    let_go, refused = tuple(_let_go(then, now)), tuple(now.refused)
    gone = (*_gone_of(recorded), *let_go)
    return Replayed(compare(then, now), iterations, gone, unjudged, refused, alike=not let_go)


def _gone_of(recorded: Recorded) -> Iterator[str]:
    """What a recording lacks."""
    yield from () if recorded.operators is None else recorded.operators.gone
    if recorded.lost_lines:
        yield f"{terminal.counted(recorded.lost_lines, 'line')} of the log, by the numbers of the others"
    silent = set(recorded.job.ranks) - recorded.ranks_seen
    if silent:
        yield f"of ranks {ranges(sorted(silent))} there is no log"


def _gone_logs(logs: Mapping[str, KeptLogs]) -> Iterator[str]:
    for job, kept in logs.items():
        if kept.gone:
            ranks, iterations = (sorted(set(each)) for each in zip(*kept.gone, strict=True))
            asked = terminal.counted(len(kept.asked), "log")
            share = f"{len(kept.gone)} of {asked} (of a rank and an iteration) that were asked for"
            yield f"job {job}: {share} are not kept whole: ranks {ranges(ranks)}, iterations {ranges(iterations)}"
        if kept.let_go >= 0:
            yield f"job {job}: how long iterations up to {kept.let_go} took found no room in memory: give more --memory"
        if kept.folder is not None:
            yield from kept.folder.faults


def _let_go(then: Said, now: Said) -> Iterator[str]:
    for word, said in (("then", then), ("now", now)):
        for what, count in said.let_go.items():
            more = terminal.counted(count, f"more {what}")
            yield f"not compared: {more} of {word}; give a shorter window, or fewer jobs"


def _unjudged(compared: Mapping[str, Collection[int]], now: Said) -> Iterator[str]:
    for job, iterations in sorted(compared.items()):
        missing = sorted(set(iterations) - set(now.judged.get(job, ())))
        if missing:
            yield f"job {job}: iterations {ranges(missing)}: what is usual was not known yet"
