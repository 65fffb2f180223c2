"""What a host tells of its NIC traffic as messages: taken in alike by whoever looks for operators in it."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from schemas.catalogue import NIC_EPOCHS, OP_CALLS
from schemas.message import Message


class Taking(Protocol):
    """Takes rows of telemetry.nic_epochs, telemetry.op_calls and telemetry.queue_pairs.

    Of polls and calls it says up to when they tell; all calls before ``told_ns`` are known then.
    """

    def take_polls(self, table: pa.RecordBatch) -> int: ...

    def take_calls(self, table: pa.RecordBatch, told_ns: int) -> int: ...

    def take_pairs(self, table: pa.RecordBatch) -> None: ...


def take_in(traffic: Taking, message: Message, batch: pa.RecordBatch) -> int | None:
    """Give a message's rows to what takes them; up to when they tell, None where that is of no time."""
    newest_ns = None
    if message.topic == NIC_EPOCHS.name:
        newest_ns = traffic.take_polls(batch)
    elif message.topic == OP_CALLS.name:
        newest_ns = traffic.take_calls(batch, message.watermark_ns)
    else:
        traffic.take_pairs(batch)
    return newest_ns if batch.num_rows else None
