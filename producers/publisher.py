"""The one way to write to Kafka: idempotent, acknowledged by all replicas, compressed, stamped and counted."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from schemas.errors import DeliveryError
from schemas.message import Message, TopicKey

log = logging.getLogger("librdkafka")

MAX_MESSAGE_BYTES = 8 << 20
"""Largest record that any topic takes, its headers included."""

_ERRORS_KEPT = 3


class Publisher:
    """Sends messages under one name; ``delivered`` and ``failed`` count what became of them.

    ``client`` holds librdkafka's properties of the connection. ``gaps`` counts the numbers that were left out, for
    whoever gave messages up, who may clear it. Each start has an id of its own and numbers its
    messages per topic and key from 0, so that a reader, who may have only some of the partitions, can tell loss from
    a restart. ``send`` and ``flush`` belong to one thread at a time.
    """

    def __init__(
        self,
        client: Mapping[str, str | int | float | bool],
        name: str,
        *,
        flush_within_s: float = 60.0,
    ) -> None:
        self.producer = f"{name}/{secrets.token_hex(4)}"
        self.delivered = 0
        self.failed = 0
        self.gaps: Counter[TopicKey] = Counter()
        self._flush_within_s = flush_within_s
        self._numbered: Counter[TopicKey] = Counter()
        self._skipped: Counter[TopicKey] = Counter()
        self._errors: list[str] = []
        self._client = Producer(
            {
                "client.id": name,
                "linger.ms": 5,
                "compression.type": "zstd",
                **client,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": "murmur2_random",
                "message.max.bytes": MAX_MESSAGE_BYTES,
                "delivery.timeout.ms": int(flush_within_s * 1000),
            },
            logger=log,
        )

    def send(self, message: Message) -> None:
        """Stamp a message and hand it over; waits where too much is under way.

        What is not delivered in the time that a flush has fails, which makes room and is told by the next flush.
        Raises ``DeliveryError`` for a message that no topic could take.
        """
        stamped = message.stamped(self.producer, self._number((message.topic, message.key)), time.time_ns())
        headers: list[tuple[str, str | bytes | None]] = [
            (name, text.encode()) for name, text in stamped.headers.items()
        ]
        while True:
            try:
                self._client.produce(
                    stamped.topic,
                    value=stamped.value,
                    key=stamped.key.encode() or None,
                    headers=headers,
                    on_delivery=self._on_delivery,
                )
                break
            except BufferError:
                self._client.poll(0.1)
            except KafkaException as error:
                size = len(stamped.value or b"")
                raise DeliveryError(f"{stamped.topic}: a record of {size} bytes was refused: {error}") from error
        self._client.poll(0)

    def skip(self, topic: str, key: str, messages: int) -> None:
        """Leave a gap in the numbers for messages that were given up: a reader then knows of the loss.

        It comes after the first message: that one may bear any number, to a reader who begins in the middle. What is
        said again before the gap is left replaces what was said.
        """
        self._skipped[topic, key] = messages

    def flush(self) -> None:
        """Return once everything sent is acknowledged.

        Raises ``DeliveryError`` where a message failed since the last flush, or some are still under way at the end
        of the time.
        """
        left = self._client.flush(self._flush_within_s)
        if left or self._errors:
            why = "not acknowledged in time" if left else "refused"
            known = "; ".join(self._errors) or "no answer from the broker"
            self._errors.clear()
            raise DeliveryError(
                f"{self.producer}: {left} messages under way, {self.failed} failed so far, {why}: {known}"
            )

    def _number(self, place: TopicKey) -> int:
        number = self._numbered[place]
        if number and (skipped := self._skipped.pop(place, 0)):
            number += skipped
            self.gaps[place] += skipped
        self._numbered[place] = number + 1
        return number

    def _on_delivery(self, error: KafkaError | None, message: Delivered) -> None:
        if error is None:
            self.delivered += 1
            return
        self.failed += 1
        if len(self._errors) < _ERRORS_KEPT:
            self._errors.append(f"{message.topic()}: {error.str()}")
