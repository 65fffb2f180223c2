"""Finding operators in NIC traffic: how many NICs one core keeps up with, decoding and encoding included."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when it begins
    from benchmarks.traffic.busy_host import BusyHost
    from schemas.message import Message

_MIB = 1 << 20

HOSTS: dict[str, tuple[int, int, float, float, bool]] = {
    "10_flows": (8, 10, 400.0, 0.26, False),
    "10_flows_around_a_ring": (8, 10, 400.0, 0.26, True),
    "100_flows": (8, 100, 400.0, 0.26, False),
    "2000_flows": (1, 2000, 800.0, 0.94, False),
}
"""NICs, queue pairs of each that are active in at least a quarter of the epochs, Gb/s, share of the time that the line
is full, and whether collectives go around a ring or sends to many at once. At 400 Gb/s a full line has too few steps of
4 KB for a quarter of the epochs of 2,000 queue pairs."""


def run(
    *, polls: Annotated[int, typer.Option(min=2, help="Seconds of traffic that are timed, after a first one.")] = 4
) -> dict[str, Any]:
    """Segment the traffic of busy NICs in CPU seconds.

    ``nics_a_core``: how many NICs one core handles in real time. ``over_plain_pass``: CPU time over that of reading the
    same bytes once: decompressing them and adding them up.
    """
    from benchmarks.traffic.busy_host import BusyHost

    figures = {}
    with terminal.progress("busy hosts", len(HOSTS)) as shown:
        for done, (name, shape) in enumerate(HOSTS.items(), start=1):
            figures[name] = _measured(BusyHost(*shape), polls)
            shown.advance(done)
    return figures


def _measured(host: BusyHost, polls: int) -> dict[str, Any]:
    from schemas import catalogue
    from streams.segment import Segment

    job = host.job
    segment = Segment({job.job: job})
    took = plain = 0.0
    values = operators = 0
    sizes: list[int] = []
    for poll in range(polls + 1):
        messages = list(host.messages(poll))
        began = time.process_time()
        told = [out for message in messages for out in segment.process(message)]
        ended = time.process_time()
        if poll:  # the first one has no past
            took += ended - began
            values += _plain_pass(messages)
            plain += time.process_time() - ended
            operators += sum(_rows(out) for out in told if out.topic == catalogue.TRAFFIC_METRICS.name)
            sizes += [len(m.value or b"") for m in messages if m.topic == catalogue.NIC_EPOCHS.name]
    return {
        "nics": host.nics,
        "flows": host.flows,
        "active_epochs_share": round(values / polls / host.nics / host.flows / host.epochs_a_poll, 3),
        "operators_a_nic_and_second": round(operators / polls / host.nics, 1),
        "cpu_s_a_nic_and_second": round(took / polls / host.nics, 4),
        "nics_a_core": round(polls * host.nics / took, 1),
        "plain_pass_s_a_nic_and_second": round(plain / polls / host.nics, 5),
        "over_plain_pass": round(took / plain, 1),
        "messages_a_second": round(len(sizes) / polls, 1),
        "largest_message_bytes": max(sizes),
        "mib_a_nic_and_second": round(sum(sizes) / polls / host.nics / _MIB, 4),
    }


def _plain_pass(messages: list[Message]) -> int:
    """Read all epochs once; how many there are."""
    import numpy as np
    import pyarrow as pa

    from schemas.catalogue import NIC_EPOCHS

    count = 0
    for message in messages:
        if message.topic == NIC_EPOCHS.name:
            with pa.ipc.open_stream(message.value) as reader:
                batch = reader.read_next_batch()
            for name in ("qpn", "epoch", "units"):
                np.asarray(batch[name].flatten()).sum(dtype=np.int64)
            count += len(batch["units"].flatten())
    return count


def _rows(message: Message) -> int:
    from schemas.catalogue import TOPICS
    from schemas.message import decode

    return int(decode(message, TOPICS[message.topic]).num_rows)
