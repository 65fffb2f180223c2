"""The past diagnosed again: what was kept of it goes through the steps with other settings, and is compared.

Of a window of the topics, what was said then is on them as well; of a recording it is what the settings of the
environment say of it. What is no longer kept is told, and never taken for silence: an agent's logs that did not
travel then are answered as overwritten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from offbeat import terminal, wiring
from offbeat.comparison import FINDING, INCIDENT, VERDICTS, Difference, Said, compare
from offbeat.reading import Reading, read
from offbeat.settings import Settings
from producers.kept_logs import KeptAnswers, KeptLogs
from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message, decode
from schemas.processor import Processor
from schemas.topic import Topic
from sinks.webhook.content import ranges
from streams import in_process
from streams.bus import Bus
from streams.control_view import Jobs

SAID_LATER_NS = 600 * 10**9
"""What was said of a window may have been said so much after its end."""

_LOGS = (catalogue.LOG_REQUESTS, catalogue.COMM_OPS, catalogue.OPERATOR_WINDOWS)


@dataclass(frozen=True, slots=True)
class Window:
    """From ``since_ns`` on and before ``until_ns``, by the brokers' time (ns since the epoch).

    What is usual is learned from ``lead_in_ns`` before; of that nothing is compared. ``jobs``: none means all.
    """

    since_ns: int
    until_ns: int
    lead_in_ns: int = 0
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Past:
    """What is left of a window: its jobs, the records that a diagnosis starts from, and what was said of them then.

    ``compared`` are the iterations of the window, by job; ``gone`` says what is missing.
    """

    jobs: Jobs
    summaries: Sequence[Message]
    logs: Mapping[str, KeptLogs]
    then: Said
    compared: Mapping[str, Collection[int]]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """Both diagnoses side by side; ``gone`` says what was missing, ``refused`` why records could not be used."""

    differences: Sequence[Difference]
    iterations: int
    gone: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    counts: Mapping[str, Counter[str]] = field(init=False)

    def __post_init__(self) -> None:
        counted = {what: Counter(dict.fromkeys(VERDICTS, 0)) for what in (FINDING, INCIDENT)}
        for difference in self.differences:
            counted[difference.what][difference.verdict] += 1
        object.__setattr__(self, "counts", counted)


def of_topics(bus: Bus, window: Window, *, now_ns: int) -> Past:
    """What the topics hold of a window at ``now_ns``. Raises ``BusError``."""
    from streams.follower import Follower
    from streams.window import held

    since_ns = window.since_ns - window.lead_in_ns
    jobs = Jobs()
    with Follower(bus, catalogue.JOBS.name) as follower:
        refused = list(_refused(jobs, follower.catch_up()))
    gone: list[str] = [f"a record of {catalogue.JOBS.name} cannot be read: {reason}" for reason in refused]

    def kept(topic: Topic, until_ns: int) -> tuple[Message, ...]:
        found = held(bus, topic, since_ns, until_ns, window.jobs, now_ns=now_ns)
        if found.gone_before_ns is not None and found.gone_before_ns > since_ns:
            gone.append(f"{topic.name} before {_utc(min(found.gone_before_ns, until_ns))} is no longer kept")
        return found.messages

    summaries = kept(catalogue.ITERATION_SUMMARIES, window.until_ns)
    later_ns = window.until_ns + SAID_LATER_NS
    logs = [message for topic in _LOGS for message in kept(topic, later_ns)]
    said = [message for topic in (catalogue.FINDINGS, catalogue.INCIDENTS) for message in kept(topic, later_ns)]
    return past_of(jobs, summaries, logs, said, window.since_ns, gone)


def past_of(
    jobs: Jobs,
    summaries: Sequence[Message],
    logs: Iterable[Message],
    said: Iterable[Message],
    since_ns: int = 0,
    gone: Sequence[str] = (),
) -> Past:
    """What records tell of the past; ``summaries`` from ``since_ns`` on are compared, those before it are a lead-in."""
    known = {message.job for message in summaries}
    told = list(gone)
    told += [f"job {job} is no longer described in {catalogue.JOBS.name}" for job in sorted(known - set(jobs))]
    kept = {name: KeptLogs(jobs[name]) for name in sorted(known & set(jobs))}
    compared: dict[str, set[int]] = {}
    readable = [message for message in summaries if message.job in kept]
    order = [topic.name for topic in _LOGS]  # a request before what answered it
    for message in (*readable, *sorted(logs, key=lambda log: order.index(log.topic))):
        try:
            if message.job in kept:
                kept[message.job].take(message)
            if message.topic == catalogue.ITERATION_SUMMARIES.name and message.timestamp_ns >= since_ns:
                of_job = compared.setdefault(message.job, set())
                of_job.update(decode(message, catalogue.ITERATION_SUMMARIES).column("iteration").to_pylist())
        except MessageError as error:
            told.append(f"{message.topic} partition {message.partition} offset {message.offset}: {error}")
    then = Said()
    told += list(_refused(then, said))
    return Past(jobs, readable, kept, then, compared, tuple(told))


def again(past: Past, settings: Settings, sinks: Sequence[Processor] = ()) -> Replayed:
    """Diagnose the past with these settings; ``sinks`` take what is found."""
    now = Said()
    kept = KeptAnswers(past.logs)
    pipeline = wiring.steps(past.jobs, settings).values()
    total = sum(map(len, past.compared.values()))
    with terminal.progress(f"replaying {terminal.counted(total, 'iteration')}", total) as shown:
        now.on_iteration = shown.advance
        in_process.run([_Told(past.summaries)], [kept, *pipeline, now, *sinks])
    differences = compare(past.then.about(past.compared), now.about(past.compared))
    gone = (*past.gone, *_gone_logs(past.logs), *_unjudged(past.compared, now.judged))
    return Replayed(differences, total, gone, tuple(now.refused))


def of_recording(
    paths: Sequence[Path], reading: Reading, before: Settings, settings: Settings, sinks: Sequence[Processor] = ()
) -> Replayed:
    """Diagnose a recording with both settings. Raises ``InputError`` where it cannot be read."""
    recording = read(paths, reading)
    said = []
    for each, readers in ((before, ()), (settings, sinks)):
        said.append(Said())
        with terminal.progress(f"diagnosing {recording.job.job}"):
            wiring.run_in_process(recording.job, recording.table, each, [said[-1], *readers])
    then, now = said
    iterations = set(recording.table.column("iteration").drop_null().unique().to_pylist())
    gone = [f"{terminal.counted(recording.lost_lines, 'line')} of the log were lost"] if recording.lost_lines else []
    gone += _unjudged({recording.job.job: iterations}, now.judged)
    return Replayed(compare(then, now), len(iterations), tuple(gone), tuple(now.refused))


class _Told:
    """A source that brings records as they were told, one after the other."""

    name = "past"

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(messages)

    def advance(self) -> Iterable[Message] | None:
        message = next(self._messages, None)
        return None if message is None else (message,)


def _refused(reader: Processor, messages: Iterable[Message]) -> Iterator[str]:
    """Hand records to a reader; why it refused those that it did."""
    for message in messages:
        try:
            list(reader.process(message))
        except MessageError as error:
            yield f"{message.topic} partition {message.partition} offset {message.offset}: {error}"


def _gone_logs(logs: Mapping[str, KeptLogs]) -> Iterator[str]:
    for job, kept in logs.items():
        if kept.gone:
            ranks, iterations = (sorted(set(each)) for each in zip(*kept.gone, strict=True))
            share = f"{len(kept.gone)} of the {len(kept.asked)} logs (of a rank and an iteration) that were asked for"
            yield f"job {job}: {share} are not kept: ranks {ranges(ranks)}, iterations {ranges(iterations)}"


def _unjudged(compared: Mapping[str, Collection[int]], judged: Mapping[str, Collection[int]]) -> Iterator[str]:
    for job, iterations in sorted(compared.items()):
        missing = sorted(set(iterations) - set(judged.get(job, ())))
        if missing:
            yield f"job {job}: iterations {ranges(missing)} were not judged: what is usual was not known yet"


def _utc(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%d %H:%M:%SZ}"
