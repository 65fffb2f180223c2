"""Bad messages: thousands among good ones, a job's whole telemetry before the job is known, and too many in a row."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from uuid import uuid4

from diagnosis.job import Job, Place
from offbeat import wiring
from offbeat.errors import ExitCode
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.job_source import job_message
from schemas.catalogue import COMM_OPS, ITERATION_SUMMARIES, ITERATIONS
from schemas.message import Message, encode
from schemas.topic import Topic
from streams.dead_letters import MOST_IN_A_ROW
from tests.faults.site import Site
from tests.integration.outcome import in_process
from tests.integration.recordings import Recorded
from tests.offbeat.command_line import run_offbeat

_IN_A_ROW = 12
"""Of a topic: fewer than a worker bears."""

_BURIED_BY = {ITERATION_SUMMARIES.name: ("monitor",), ITERATIONS.name: ("search", "store"), COMM_OPS.name: ("store",)}
"""The roles that look into a record; of comm_ops the search wants nothing but answers."""

_TOPICS = (ITERATION_SUMMARIES, ITERATIONS, COMM_OPS)


def flood(site: Site, count: int = 10_000) -> None:
    """Send so many bad messages under a job's key before and amid it: each is a dead letter with its reason."""
    recorded = site.recording()
    fillers = _Fillers(recorded.job)
    bad = list(_bad(recorded.job, count))
    site.random.shuffle(bad)
    site.pipeline.repair()
    site.pipeline.send([fillers.job])
    with site.diagnosing(recorded):
        for part in _parts(bad, 10):
            site.pipeline.send(fillers.among(message for message, _ in part))
            site.amid(0.2, 0.8)
    site.tally.bad_messages += len(bad)
    letters = site.pipeline.letters(recorded)
    found = Counter((letter["topic"], letter["error"], letter["processor"]) for letter in letters)
    expected = Counter((m.topic, error, name) for m, error in bad for name in _BURIED_BY[m.topic])
    site.expect(found == expected, f"dead letters are {found}, not {expected}")
    site.expect(all(letter["reason"] for letter in letters), "a dead letter gives no reason")


def replay_after_a_fix(site: Site) -> None:
    """Tell of a job before it is known: its messages are dead letters. Make it known and replay them: it is judged."""
    recorded = site.recording()
    site.pipeline.repair()
    read, fillers = load([recorded.folder]), _Fillers(recorded.job)
    told = [m for m in _telemetry(recorded) if m.topic == ITERATION_SUMMARIES.name]
    site.pipeline.send([fillers.job])
    site.pipeline.send(fillers.among(told))
    site.tally.bad_messages += len(told)
    site.pipeline.awaited(lambda: len(site.pipeline.letters(recorded)) == len(told), "burial of what is not known")
    site.pipeline.send([job_message(replace(read.job, ended_ns=None))])
    chosen = ("--error", "UnknownJob", "--job", recorded.job, "--json")
    done = run_offbeat("dead-letters", "replay", *chosen, settings=site.pipeline.settings)
    sent = json.loads(done.stdout)["sent"] if done.returncode == ExitCode.DONE else done.stderr
    site.expect(sent == {ITERATION_SUMMARIES.name: len(told)}, f"of {len(told)} dead letters were replayed: {sent}")
    judged = in_process(recorded, site.reference).iterations
    site.pipeline.awaited(
        lambda: site.pipeline.stored(recorded).iterations == judged, "judgement of all that was replayed"
    )
    site.diagnose(recorded)


def too_many(site: Site) -> None:
    """Send more bad messages in a row than a worker bears: it stops at the same place until somebody passes them by."""
    recorded = site.recording()
    site.pipeline.repair()
    bad = [Message(ITERATION_SUMMARIES.name, recorded.job, b"junk", _headers(ITERATION_SUMMARIES, recorded.job))]
    monitor = site.pipeline.roles["monitor"]
    site.pipeline.held.add("monitor")
    try:
        site.pipeline.send(bad * (MOST_IN_A_ROW + 10))
        site.tally.bad_messages += MOST_IN_A_ROW + 10
        for _ in range(2):
            site.pipeline.awaited(lambda: not monitor.running, "end of a worker that bears no more")
            code, said = monitor.wait(), f"{MOST_IN_A_ROW} bad messages in a row"
            site.expect(code == ExitCode.REFUSED, f"the worker ended with {code}")
            site.expect(said in monitor.last_words(), f"the worker did not say why it ended: {monitor.last_words()}")
            monitor.start()
        site.pipeline.awaited(lambda: not monitor.running, "end of a worker that bears no more")
        site.expect(site.pipeline.lag("monitor") > 0, "what a worker could not bear was committed")
        site.pipeline.pass_by("monitor")
    finally:
        site.pipeline.held.clear()
    site.diagnose(recorded)
    told = {letter["offset"] for letter in site.pipeline.letters(recorded)}
    site.expect(len(told) < MOST_IN_A_ROW, f"{len(told)} messages are dead letters that nobody processed")


class _Fillers:
    """Good messages without consequences, under the key of a job: those of one that is not monitored."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._name = f"filler-{uuid4().hex[:8]}"
        self.job = job_message(Job(self._name, (Place(0),), (), monitoring=False))

    def among(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The messages, with a good one after so many of each topic."""
        seen = Counter[str]()
        for message in messages:
            yield message
            seen[message.topic] += 1
            if seen[message.topic] % _IN_A_ROW == 0:
                yield self._filler(next(topic for topic in _TOPICS if topic.name == message.topic))

    def _filler(self, topic: Topic) -> Message:
        rows: dict[str, dict[str, object]] = {
            ITERATION_SUMMARIES.name: {"rank": 0, "iteration": 0, "start_ns": 1, "operators": 0, "lost_lines": 0},
            ITERATIONS.name: {"iteration": 0, "pivot": 0, "start_ns": 1, "delta": 1.1},
            COMM_OPS.name: {"rank": 0, "communicator": "filler", "call_order": 0, "op": "barrier", "call_ns": 1},
        }
        return encode(topic, topic.from_rows([rows[topic.name]]), job=self._name, key=self._key)


def _bad(job: str, count: int) -> Iterator[tuple[Message, str]]:
    """So many bad messages of all kinds under a job's key, and the error that each of them is."""
    kinds: Sequence[Callable[[Topic], tuple[Message, str]]] = (
        lambda topic: (Message(topic.name, job, b"junk", _headers(topic, job)), "UndecodableMessage"),
        lambda topic: (Message(topic.name, job, None, _headers(topic, job)), "UndecodableMessage"),
        lambda topic: (Message(topic.name, job, b"", {"schema": "other/1", "job": job}), "WrongSchema"),
        lambda topic: (Message(topic.name, job, b"", {"job": job}), "WrongSchema"),
        lambda topic: (Message(topic.name, job, b"\xff" * 4096, _headers(topic, job)), "UndecodableMessage"),
    )
    for number in range(count):
        yield kinds[number % len(kinds)](_TOPICS[number // len(kinds) % len(_TOPICS)])


def _headers(topic: Topic, job: str) -> dict[str, str]:
    return {"schema": topic.schema_id, "job": job}


def _parts(bad: Sequence[tuple[Message, str]], count: int) -> Iterator[Sequence[tuple[Message, str]]]:
    size = -(-len(bad) // count)
    return (bad[start : start + size] for start in range(0, len(bad), size))


def _telemetry(recorded: Recorded) -> Iterator[Message]:
    """All that the log agents of a recording tell unasked."""
    read = load([recorded.folder])
    agents = wiring.log_agents(read.job, read.table, Settings())
    while told := [messages for agent in agents if (messages := agent.advance()) is not None]:
        yield from chain.from_iterable(told)
