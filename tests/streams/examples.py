"""Small processors of every kind: one that saves its state, one that asks and runs again, sinks, one that fails."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from diagnosis.job import Communicator, Job, Place
from schemas import catalogue
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from schemas.topic import Column, Key, Topic

END = 0
"""The value that ends a job."""
FATAL = 13
"""The value that a processor fails at, until it is mended."""
UNREACHABLE = -1
ANSWER_WITHIN_NS = 60_000_000_000


@dataclass(frozen=True)
class Topics:
    """The examples' topics; those of one prefix belong together."""

    numbers: Topic
    more_numbers: Topic
    sums: Topic
    questions: Topic
    answers: Topic
    results: Topic

    @classmethod
    def named(cls, prefix: str, partitions: int = 3) -> "Topics":
        names = "numbers more_numbers sums questions answers results".split()
        columns = (
            Column("value", pa.int64(), "A number."),
            Column("source", pa.string(), "Where it comes from.", nullable=True),
        )
        return cls(*(Topic(f"{prefix}.{name}", 1, Key.JOB, "", columns, partitions=partitions) for name in names))


TOPICS = Topics.named("example")


def number(topic: Topic, job: str, value: int, source: str | None = None, **headers: str) -> Message:
    batch = topic.from_rows([{"value": value, "source": source}])
    return encode(topic, batch, job=job, headers=headers, watermark_ns=1)


def value_of(message: Message, topic: Topic) -> int:
    [row] = decode(message, topic).to_pylist()
    return int(row["value"])


def job_record(job: str) -> Message:
    made = Job(job, (Place(0, "host0", 0, ("nic0",)),), (Communicator("world", (0,)),))
    return encode(catalogue.JOBS, catalogue.JOBS.from_rows([made.to_row()]), job=job, watermark_ns=1)


class _Idle:
    """What most processors do between messages."""

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


class Sums(_Idle):
    """Saves its state: running sums per job and input, until the job ends."""

    def __init__(
        self,
        topics: Topics = TOPICS,
        jobs: Mapping[str, Job] | None = None,
        name: str = "sums",
        mended: Path | None = None,
    ) -> None:
        self.name = name
        self.reads: tuple[Topic, ...] = (topics.numbers, topics.more_numbers)
        self.writes: tuple[Topic, ...] = (topics.sums,)
        self._jobs = jobs
        self._mended = mended
        self._sums: dict[str, dict[str, int]] = {}
        self._next: dict[str, dict[str, int]] = {}
        self._changed: set[str] = set()

    def process(self, message: Message) -> Iterable[Message]:
        [topic] = [topic for topic in self.reads if topic.name == message.topic]
        value = value_of(message, topic)
        if self._jobs is not None:
            assert self._jobs[message.job].ranks == (0,)
        if value == FATAL and self._mended is not None and not self._mended.exists():
            raise RuntimeError("this processor is broken")
        sums = self._sums.setdefault(message.job, {})
        sums[topic.name] = sums.get(topic.name, 0) + value
        self._next.setdefault(message.job, {})[topic.name] = message.offset + 1
        self._changed.add(message.job)
        yield number(self.writes[0], message.job, sums[topic.name], source=topic.name)
        if value == END:
            del self._sums[message.job], self._next[message.job]

    def changed_states(self) -> Mapping[str, SavedState | None]:
        changed, self._changed = self._changed, set()
        return {job: self._saved(job) for job in changed}

    def restore(self, states: Mapping[str, SavedState]) -> None:
        for job, saved in states.items():
            self._sums[job] = json.loads(saved.state)
            self._next[job] = dict(saved.offsets)

    def _saved(self, job: str) -> SavedState | None:
        if job not in self._sums:
            return None
        return SavedState(dict(self._next[job]), "sums/1", json.dumps(self._sums[job]).encode())


class Asker:
    """Runs again: asks others about each number and holds its offset until they answered, or their time is over."""

    def __init__(self, topics: Topics = TOPICS, name: str = "asker", within_ns: int = ANSWER_WITHIN_NS) -> None:
        self.name = name
        self.reads: tuple[Topic, ...] = (topics.numbers, topics.answers)
        self.writes: tuple[Topic, ...] = (topics.questions, topics.results, topics.answers)
        self._within_ns = within_ns
        self._asked: dict[str, tuple[Message, int]] = {}
        self._next = 0

    def process(self, message: Message) -> Iterable[Message]:
        numbers, answers = self.reads
        if message.topic == numbers.name:
            value = value_of(message, numbers)
            request = f"{message.job}/{message.offset}"
            self._next = message.offset + 1
            self._asked[request] = (message, message.now_ns + self._within_ns)
            return [number(self.writes[0], message.job, value, request=request)]
        value = value_of(message, answers)
        asked = self._asked.pop(message.headers["request"], None)
        if asked is None:
            return []
        question, _ = asked
        source = f"answer to {value_of(question, numbers)}"
        return [number(self.writes[1], question.job, value, source=source)]

    def tick(self, now_ns: int) -> Iterable[Message]:
        for request, (question, deadline_ns) in self._asked.items():
            if deadline_ns <= now_ns:
                yield number(self.writes[2], question.job, UNREACHABLE, request=request)

    def next_deadline_ns(self) -> int | None:
        return min((deadline_ns for _, deadline_ns in self._asked.values()), default=None)

    def safe_offsets(self) -> Mapping[Topic, int]:
        held = [question.offset for question, _ in self._asked.values()]
        return {self.reads[0]: min(held, default=self._next)}


class Answerer(_Idle):
    """Answers the questions about even numbers, once for each time it is asked."""

    name = "answerer"

    def __init__(self, topics: Topics = TOPICS) -> None:
        self.reads: tuple[Topic, ...] = (topics.questions,)
        self.writes: tuple[Topic, ...] = (topics.answers,)

    def process(self, message: Message) -> Iterable[Message]:
        value = value_of(message, self.reads[0])
        if value % 2 == 0:
            yield number(self.writes[0], message.job, 10 * value, request=message.headers["request"])


class LineSink(_Idle):
    """A sink: appends a line a message to a file when it is flushed."""

    def __init__(self, path: Path, topics: Topics = TOPICS, name: str = "line_sink") -> None:
        self.name = name
        self.reads: tuple[Topic, ...] = (topics.numbers,)
        self.writes: tuple[Topic, ...] = ()
        self._path = path
        self._lines: list[str] = []

    def process(self, message: Message) -> Iterable[Message]:
        self._lines.append(f"{message.job} {value_of(message, self.reads[0])}\n")
        return ()

    def flush(self) -> None:
        with self._path.open("a") as file:
            file.writelines(self._lines)
        self._lines.clear()


class Hoarder(_Idle):
    """Holds the first offset that it sees for ever, and waits for nobody: what a fault would look like."""

    def __init__(self, topics: Topics = TOPICS, name: str = "hoarder") -> None:
        self.name = name
        self.reads: tuple[Topic, ...] = (topics.numbers,)
        self.writes: tuple[Topic, ...] = ()
        self._first: int | None = None

    def process(self, message: Message) -> Iterable[Message]:
        self._first = message.offset if self._first is None else self._first
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {} if self._first is None else {self.reads[0]: self._first}


class Listener(_Idle):
    """Keeps what it hears."""

    name = "listener"
    writes: tuple[Topic, ...] = ()

    def __init__(self, reads: tuple[Topic, ...]) -> None:
        self.reads = reads
        self.heard: list[Message] = []

    def process(self, message: Message) -> Iterable[Message]:
        self.heard.append(message)
        return ()
