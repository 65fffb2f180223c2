"""The step that finds operators in NIC traffic: epochs, calls and queue pairs of a host in, operators out (Pulse 4, 5).

Epochs and calls are read again after a restart, from where open operators need them; the rest is saved: where each host
is, whom its queue pairs serve, which algorithms are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from diagnosis.job import Job
from diagnosis.traffic.host import HostTraffic, StepRules
from diagnosis.traffic.windows import Told
from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.message import Message, decode, encode
from schemas.topic import Topic

HOST = "host"
"""Header of what is told: whose it is."""


@dataclass
class _Followed:
    """One host: what it told, and the messages of each input that are still needed, with the newest time in each."""

    traffic: HostTraffic
    held: dict[Topic, list[tuple[int, int]]] = field(default_factory=dict)


class Segment:
    """Finds operators host by host, a step of time after the other."""

    name = "segment"
    reads: tuple[Topic, ...] = (catalogue.NIC_EPOCHS, catalogue.OP_CALLS, catalogue.QUEUE_PAIRS)
    writes: tuple[Topic, ...] = (catalogue.OPERATORS, catalogue.TRAFFIC_METRICS)

    def __init__(self, jobs: Mapping[str, Job], rules: StepRules | None = None) -> None:
        self._jobs = jobs
        self._rules = rules or StepRules()
        self._hosts: dict[str, _Followed] = {}

    def process(self, message: Message) -> Iterable[Message]:
        topic = catalogue.TOPICS[message.topic]
        batch, job = decode(message, topic), self._jobs[message.job]
        host = message.key.removeprefix(f"{message.job}/")
        if host == message.key or not host:
            raise WrongSchema(f"{message.topic}: the key is {message.key!r}, expected job/host")
        followed = self._hosts.setdefault(message.key, _Followed(HostTraffic(host, self._rules)))
        traffic = followed.traffic
        if topic is catalogue.NIC_EPOCHS:
            traffic.take_polls(batch)
        elif topic is catalogue.OP_CALLS:
            traffic.take_calls(batch, message.watermark_ns)
        else:
            traffic.take_pairs(batch)
        while (until_ns := traffic.next_ns(job)) is not None:
            yield from self._told(message, traffic, until_ns, traffic.step(until_ns, job))

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def _told(self, message: Message, traffic: HostTraffic, until_ns: int, told: list[Told]) -> Iterator[Message]:
        headers = {HOST: traffic.host}
        operators = _batch(catalogue.OPERATORS, [one.operators for one in told])
        if operators.num_rows:
            yield encode(
                catalogue.OPERATORS,
                operators,
                job=message.job,
                key=message.key,
                watermark_ns=until_ns,
                headers=headers,
            )
        metrics = _batch(catalogue.TRAFFIC_METRICS, [one.metrics for one in told])
        yield encode(catalogue.TRAFFIC_METRICS, metrics, job=message.job, watermark_ns=until_ns, headers=headers)


def _batch(topic: Topic, tables: list[pa.Table]) -> pa.RecordBatch:
    if not tables:
        return topic.from_rows([])
    table = pa.concat_tables(tables, promote_options="permissive")
    return topic.batch({name: table.column(name) for name in table.column_names})
