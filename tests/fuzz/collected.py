"""Targets: what collectors read on a host, left there by NIC agents and training processes, and recordings of it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from producers.collectors.addresses import Addresses
from producers.collectors.call_log import (
    CLOSED,
    CONNECTED,
    FACTS,
    GROUP_END,
    MEMBER,
    RING,
    CallLog,
    Member,
    QueuePair,
    communicator_name,
)
from producers.collectors.epoch_dump import HEADER, read
from producers.collectors.nic_clock import NicClock
from producers.collectors.poll import messages
from producers.importers.files import Limits
from producers.importers.traffic import TRAFFIC
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.message import decode, encode
from schemas.topic import LATEST_NS, Topic
from tests.fuzz.target import Target, Trial
from tests.producers.collectors.dumps import dump
from tests.producers.collectors.rings import pair, record, write
from tests.schemas.samples import good_samples


def targets() -> Iterator[Target]:
    """Epoch dumps, damaged before and after their checksums were made; processes' rings; recorded traffic."""
    yield Target("epoch dump", _epoch_dump)
    yield Target("epoch dump before its checksums", weight=6, make=_epoch_dump_unchecked)
    yield Target("ring of calls", _calls)
    yield Target("facts of a process", _facts)
    for topic in (OP_CALLS, QUEUE_PAIRS, NIC_EPOCHS):
        yield Target(f"recorded {topic.name}", partial(_traffic, topic))


def _seeds() -> list[bytes]:
    readings = [(1_000, 7, 3_000), (9_000, 6_007, 9_500)]
    flows = [(5, 3, [1, 0, 2, 65535]), (5, 40, [4] * 20), (9, 0, []), (1 << 20, 31_249, [7])]
    rich = dump(flows, readings=readings, aged=[1, 2], events_dropped=3)
    return [rich + dump(nic=b"mlx5_1"), dump(flows, count_bytes=4, unit_bytes=64), dump()]


def _tell(path: Path) -> None:
    """What is read becomes records that readers take."""
    for found in read(path):
        clock = NicClock()
        clock.take(found.readings)
        clock.offset(found.poll.from_ns, found.poll.to_ns)
        for message in messages([found.poll], "j", "h"):
            decode(message, NIC_EPOCHS)


def _epoch_dump(folder: Path) -> Trial:
    path = folder / "poll.epochs"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        _tell(path)

    return Trial(_seeds(), feed)


def _epoch_dump_unchecked(folder: Path) -> Trial:
    """What an agent of another make could have written: the checksums fit."""
    path = folder / "poll.epochs"

    def feed(data: bytes) -> None:
        head, body = data[: HEADER.size - 8], data[HEADER.size :]
        head += struct.pack("<I", zlib.crc32(body))
        path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + body)
        _tell(path)

    return Trial([dump([(5, 3, [1, 0, 2])], readings=[(1, 2, 3)], aged=[4]), _seeds()[1]], feed)


def _traffic(topic: Topic, folder: Path) -> Trial:
    """Recorded traffic, which becomes records that readers take."""
    path = folder / f"a.{topic.name.partition('.')[2]}.jsonl"
    rows = [row for sample in good_samples() if sample.topic is topic for row in sample.rows]

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        table = TRAFFIC[f"{topic.name.partition('.')[2]}.jsonl"].read([path], Limits())
        for batch in table.select(topic.schema.names).cast(topic.schema).to_batches():
            decode(encode(topic, batch, job="j"), topic)

    lines = [json.dumps(row).encode() for row in rows]
    bare = [json.dumps({name: value for name, value in row.items() if value is not None}).encode() for row in rows]
    return Trial([b"\n".join(lines), b"\n".join(bare)], feed)


def _calls(folder: Path) -> Trial:
    """The ring of a training process, which may write anything into it."""
    process = _process(folder)
    path = process / RING

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        log, addresses = CallLog(process), Addresses()
        addresses.tell("h1", {("communicator", communicator_name(7), 1): 1})
        for now_ns in (0, 10**18, LATEST_NS):
            log.look()
            decode(encode(OP_CALLS, log.calls(addresses, now_ns), job="j"), OP_CALLS)
            log.release()

    return Trial([path.read_bytes()], feed)


def _facts(folder: Path) -> Trial:
    """What a training process tells of its communicators and queue pairs."""
    process = _process(folder)
    path = process / FACTS

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        for fact in CallLog(process).facts():
            assert isinstance(fact, Member | QueuePair)

    return Trial([path.read_bytes()], feed)


def _process(folder: Path) -> Path:
    calls = [record(at_ns=10**18 + n, communicator=7, seq=n, op=n % 9, group=n // 9, peer=n % 2) for n in range(40)]
    facts = (record(MEMBER, communicator=7, place=1), pair(CONNECTED, at_ns=5, qpn=7), pair(CLOSED, at_ns=6, qpn=7))
    return write(folder / "3-a", *calls, record(GROUP_END, at_ns=10**18 + 50, group=2), facts=facts)
