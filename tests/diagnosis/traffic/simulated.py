"""A simulated run, seen through the encoded records of its agents alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from diagnosis.traffic.association import Association, associate
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.ports import Ports
from diagnosis.traffic.queue_pairs import QueuePairs
from diagnosis.traffic.results import metrics_table
from diagnosis.traffic.series import EpochSeries
from producers.simulation.nic.run import NicRun
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS, TRAFFIC_METRICS
from schemas.message import decode

_TOPICS = {topic.name: topic for topic in (NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS)}


class Seen(NamedTuple):
    """What one NIC's records tell."""

    nic: str
    series: EpochSeries
    calls: Calls
    found: Association


def seen(run: NicRun) -> Iterator[Seen]:
    """Each NIC of each host."""
    told: dict[str, dict[str, list[pa.RecordBatch]]] = defaultdict(lambda: defaultdict(list))
    for message in run.messages():
        told[dict(message.headers)["host"]][message.topic].append(decode(message, _TOPICS[message.topic]))
    job = run.job
    for records in told.values():
        calls = Calls.from_arrow(_table(records[OP_CALLS.name]))
        pairs = _table(records[QUEUE_PAIRS.name])
        polls: dict[str, list[Poll]] = defaultdict(list)
        for batch in records[NIC_EPOCHS.name]:
            for nic, own in Poll.by_nic(batch).items():
                polls[nic] += own
        names = np.array(pairs.column("nic").to_pylist())
        for nic, own in polls.items():
            queue_pairs = QueuePairs.from_arrow(pairs.filter(pa.array(names == nic)))
            series = EpochSeries.join(own)
            served = calls.take(np.isin(calls.rank, queue_pairs.source))
            found = associate(
                Ports((series,)), queue_pairs, served, job.members, lambda a, b: job.place[a].host == job.place[b].host
            )
            yield Seen(nic, series, served, found)


def metrics(run: NicRun) -> pa.Table:
    """The rows of analysis.traffic_metrics that come of a run."""
    tables = [metrics_table(one.found, one.calls, [one.nic]) for one in seen(run)]
    columns = [{name: table.column(name).combine_chunks() for name in table.column_names} for table in tables]
    return _table([TRAFFIC_METRICS.batch(each) for each in columns])


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
