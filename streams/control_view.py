"""The jobs that control.jobs knows, for the processors of a worker.

In process it is fed like any other processor; under Kafka streams/compacted.py reads the topic whole before the
start and follows it. A record of a job that is not known makes it catch up once, and is then poison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from diagnosis.job import Job
from schemas import catalogue
from schemas.errors import ImpossibleValue, UnknownJob, WrongSchema
from schemas.message import Message, decode
from schemas.topic import Topic


class Jobs(Mapping[str, Job]):
    """The jobs by id; itself a processor that reads control.jobs and publishes nothing.

    ``catch_up`` makes the view take all that control.jobs holds by now; in process there is nothing to catch up.
    """

    name = "jobs"
    reads: tuple[Topic, ...] = (catalogue.JOBS,)
    writes: tuple[Topic, ...] = ()

    def __init__(self, catch_up: Callable[[], None] | None = None) -> None:
        self._jobs: dict[str, Job] = {}
        self._catch_up = catch_up

    def __getitem__(self, job: str) -> Job:
        """The job of an id. Raises ``UnknownJob`` (also a ``KeyError``) where control.jobs does not know it."""
        if job not in self._jobs and self._catch_up is not None:
            self._catch_up()
        try:
            return self._jobs[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not in {catalogue.JOBS.name}: publish it before its records") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    def process(self, message: Message) -> Iterable[Message]:
        """Take a record of control.jobs; a tombstone drops the job. Raises ``MessageError`` for a bad one."""
        if message.value is None:
            self._jobs.pop(message.key, None)
        else:
            job = _job(message)
            self._jobs[job.job] = job
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}


def _job(message: Message) -> Job:
    rows = decode(message, catalogue.JOBS).to_pylist()
    if len(rows) != 1:
        raise WrongSchema(f"{message.topic}: {len(rows)} rows in a record, expected one job")
    try:
        return Job.from_row(rows[0])
    except ValueError as error:
        raise ImpossibleValue(f"{message.topic}: job {rows[0]['job']!r}: {error}") from error
