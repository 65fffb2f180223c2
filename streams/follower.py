"""Reading a topic whole with a plain consumer, outside every consumer group, and following it.

For what every worker must know entirely, not just of its partitions: control.jobs and control.state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import OffsetSpec

from schemas.errors import BusError
from schemas.message import Message
from streams.brokers import EARLIEST, LASTING_OF_TOPICS, LATEST, Brokers
from streams.bus import LIBRDKAFKA, Bus
from streams.received import received

log = logging.getLogger(__name__)


class Follower:
    """Reads one topic from its start, or from a point in time, and goes on where it stopped.

    With ``newest`` it begins with no more than so many messages of each partition; ``shortened`` are those that hold
    others since that point in time. ``cut`` are the partitions of which there is nothing older than what it begins
    with, although there was.
    Raises ``BusError`` where the topic is missing or the brokers do not answer within ``within_s``. One thread at
    a time.
    """

    def __init__(
        self,
        bus: Bus,
        topic: str,
        *,
        since_ns: int | None = None,
        newest: int | None = None,
        within_s: float = 30.0,
    ) -> None:
        self._topic = topic
        self._within_s = within_s
        self._brokers = Brokers(bus, within_s=within_s)
        self._consumer = Consumer(
            {
                **bus.librdkafka(),
                "group.id": "offbeat.followers",  # the client wants one; it is never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "queued.max.messages.kbytes": 16_384,
            },
            logger=LIBRDKAFKA,
        )
        self.cut: frozenset[int] = frozenset()
        self.shortened: frozenset[int] = frozenset()
        try:
            self._reached = self._starts(since_ns)
            if newest is not None:
                self._shorten(newest)
            self._go_on()
        except KafkaException as error:
            self._consumer.close()
            raise self._failed(error) from error
        except BusError:
            self._consumer.close()
            raise

    def catch_up(self) -> Iterator[Message]:
        """Everything that the topic holds by now beyond what was read, a partition's messages in their order."""
        if self._resting:
            self._go_on()
        yield from (message for message in self.up_to(self.ends()) if message is not None)

    def ends(self, until_ns: int | None = None) -> dict[int, int]:
        """The offset after what each partition holds by now; of ``until_ns`` the first that came then or later."""
        ends = self._offsets(self._reached, LATEST)
        if until_ns is None:
            return ends
        found = self._offsets(self._reached, OffsetSpec.for_timestamp(-(-until_ns // 1_000_000)))
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}

    def up_to(self, ends: Mapping[int, int]) -> Iterator[Message | None]:
        """What comes until each partition has been read to its end, and maybe a little more.

        None now and then while nothing comes: whoever has asked a partition to ``wait`` sees to it then.
        """
        deadline = time.monotonic() + self._within_s
        while self.behind(ends):
            if time.monotonic() > deadline:
                raise BusError(f"{self._topic}: nothing came for {self._within_s:g} s: are brokers away?")
            record = self._consumer.poll(0.1)
            message = None if record is None else self._take(record)
            yield message
            if message is not None:
                deadline = time.monotonic() + self._within_s

    def behind(self, ends: Mapping[int, int]) -> frozenset[int]:
        """The partitions that have not been read to their ends."""
        return frozenset(partition for partition, end in ends.items() if self._reached[partition] < end)

    def wait(self, partition: int) -> None:
        """Bring nothing more of a partition, but for what is under way, until it may ``follow_on``."""
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def follow_on(self, partition: int) -> None:
        """Bring what comes of a partition again."""
        self._consumer.resume([TopicPartition(self._topic, partition)])

    def rest(self) -> None:
        """Fetch nothing until the next ``catch_up``: what is fetched and not polled would fill the client's queue."""
        self._consumer.unassign()
        self._resting = True

    def poll(self, within_s: float = 0.0) -> Iterator[Message]:
        """What has arrived, while it does not rest; where nothing has, it is waited for for so many seconds."""
        record = self._consumer.poll(within_s)
        while record is not None:
            if (message := self._take(record)) is not None:
                yield message
            record = self._consumer.poll(0)

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _go_on(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self._reached.items()])
        self._resting = False

    def _starts(self, since_ns: int | None) -> dict[int, int]:
        metadata = self._consumer.list_topics(self._topic, timeout=self._within_s).topics[self._topic]
        if metadata.error is not None or not metadata.partitions:
            raise BusError(f"topic {self._topic} is missing: run `offbeat topics apply`")
        if since_ns is None:
            return self._offsets(metadata.partitions, EARLIEST)
        found = self._offsets(metadata.partitions, OffsetSpec.for_timestamp(since_ns // 1_000_000))
        ends = self._offsets(metadata.partitions, LATEST)
        starts = {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}
        oldest = self._offsets(metadata.partitions, EARLIEST)
        self.cut = frozenset(partition for partition, offset in starts.items() if 0 < offset <= oldest[partition])
        return starts

    def _shorten(self, newest: int) -> None:
        least = {partition: end - newest for partition, end in self.ends().items()}
        self.shortened = frozenset(
            partition for partition, offset in self._reached.items() if offset < least[partition]
        )
        self._reached |= {partition: least[partition] for partition in self.shortened}

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """One question for all partitions, and not on the consumer's connection: that may be waiting for records."""
        found = self._brokers.offsets([(self._topic, partition) for partition in partitions], spec)
        return {partition: answer.offset for (_, partition), answer in found.items()}

    def _take(self, record: Received) -> Message | None:
        error = record.error()
        if error is None:
            message = _message(record)
            self._reached[message.partition] = message.offset + 1
            return message
        if error.code() == KafkaError._PARTITION_EOF:
            # The end counts like a message: compaction may have removed the last ones.
            partition, end = record.partition() or 0, record.offset() or 0
            self._reached[partition] = max(self._reached[partition], end)
        elif error.code() in LASTING_OF_TOPICS:  # that it may not join its group, say, does not keep it from reading
            raise self._failed(KafkaException(error))
        else:
            log.warning("reading %s: %s", self._topic, error)
        return None

    def _failed(self, error: KafkaException) -> BusError:
        return BusError(f"{self._topic} cannot be read: {error}")


def _message(record: Received) -> Message:
    kind, timestamp_ms = record.timestamp()
    headers = record.headers()
    return received(
        record.topic() or "",
        record.partition() or 0,
        record.offset() or 0,
        key=record.key(),
        value=record.value(),
        headers=headers.items() if isinstance(headers, dict) else headers,
        timestamp_ns=timestamp_ms * 1_000_000 if kind == TIMESTAMP_LOG_APPEND_TIME else 0,
    )
