"""What is collected, as the diagnosis reads it: from dumps and rings to series, calls and queue pairs."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from diagnosis.traffic.calls import Calls
from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.queue_pairs import FOREVER, QueuePairs
from diagnosis.traffic.series import EpochSeries
from producers.collectors.call_log import CONNECTED, GROUP_END, MEMBER
from producers.collectors.host import HostCollector
from schemas.catalogue import ADDRESSES, NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.comm_ops import OPS
from schemas.message import Message, decode, encode
from schemas.topic import Topic
from tests.producers.collectors.dumps import dump
from tests.producers.collectors.rings import live, pair, record, write

S = 1_000_000_000
NOW = 10**18
OFFSET = NOW - 5 * S
"""The host's clock less the NIC's."""


def table(messages: list[Message], topic: Topic) -> pa.Table:
    batches = [decode(message, topic) for message in messages if message.topic == topic.name]
    return pa.Table.from_batches(batches, topic.schema)


def test_what_a_host_tells_is_what_its_nics_and_processes_did(tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    for second in range(3):
        at = second * S
        readings = [(at + OFFSET - 500, at, at + OFFSET + 500), (at + OFFSET - 9000, at, at + OFFSET + 200)]
        runs = [(7, 10, [100, 0, 3]), (9, 20 + second, [1])]
        poll = dump(runs, from_ns=at, to_ns=at + S, readings=readings, events_dropped=int(second == 1))
        (tmp_path / "dumps" / f"{second}.epochs").write_bytes(poll)
    group = {"group": 1, "group_start_ns": NOW - 90, "communicator": 0xAB}
    calls = [
        record(at_ns=NOW - 80 + n, op=OPS.index(op), peer=1, count=n, seq=n, **group) for n, op in enumerate(OPS[-2:])
    ]
    alone = record(at_ns=NOW - 100, communicator=0xAB, seq=9, reduce_op=0)
    facts = (
        record(MEMBER, communicator=0xAB, place=0),
        pair(CONNECTED, at_ns=NOW - 200, qpn=7, destination_qpn=8, gid=bytes(16), destination_gid=bytes(15) + b"\1"),
    )
    ended = record(GROUP_END, at_ns=NOW - 60, group=1)
    lock = live(write(tmp_path / "calls" / "3-a", alone, *calls, ended, facts=facts, rank=3))
    collector = HostCollector("h0", calls=tmp_path / "calls", dumps=tmp_path / "dumps")
    met = [
        {"rank": 4, "kind": "communicator", "name": f"{0xAB:016x}", "number": 1},
        {"rank": 4, "kind": "queue_pair", "name": "::1", "number": 8},
    ]
    collector.process(encode(ADDRESSES, ADDRESSES.from_rows(met), job="llama", key="llama/h1"))
    told = list(collector.step(NOW))
    os.close(lock)

    series = EpochSeries.join(Poll.by_nic(table(told, NIC_EPOCHS))["mlx5_0"])
    assert (series.aligned, series.epoch_ns, series.unit_bytes) == (True, 32_000, 32)
    told_of = [{int(qpn) for qpn in part.poll.qpn} for part in series.parts if part.poll.qpn is not None]
    assert told_of == [{7, 9}] * 3
    starts = np.array([epoch * 32_000 + second * S + OFFSET for second in range(3) for epoch in (10, 12)])
    rows = np.concatenate([part.rows(0, 2)[0] for part in series.parts])
    assert np.abs(rows - starts).max() <= series.clock_error_ns < 200_000  # the first poll knows no drift
    assert [int(part.poll.units.sum()) for part in series.parts] == [104] * 3
    assert (series.covered[:, 1] - series.covered[:, 0]).tolist() == [S, S]  # lost counts cover nothing

    read = Calls.from_arrow(table(told, OP_CALLS))
    assert [read.ops[op] for op in read.op] == ["all_reduce", "send", "recv"]
    assert (read.rank.tolist(), read.peer.tolist()) == ([3, 3, 3], [-1, 4, 4])
    assert read.unit.tolist() == [0, 1, 1]
    assert read.launch_ns.tolist() == [NOW - 100, NOW - 80, NOW - 80]  # of a group from its first call on

    pairs = QueuePairs.from_arrow(table(told, QUEUE_PAIRS))
    assert [values.tolist() for values in (pairs.flow, pairs.source, pairs.destination)] == [[7], [3], [4]]
    assert (pairs.valid_from_ns.tolist(), pairs.valid_to_ns.tolist()) == ([NOW - 200], [FOREVER])
