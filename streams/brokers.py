"""Questions to the brokers, asked until they answer: leaders move, coordinators load, a new topic has no leader yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_exponential

from schemas.errors import BusError
from streams.bus import LIBRDKAFKA, Bus
from streams.share import Place

# confluent-kafka types none of these.
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
NEWEST: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

LASTING_OF_TOPICS = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
"""Of what a topic is refused for, what waiting does not mend."""

_LASTING = (
    *LASTING_OF_TOPICS,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
)

_Answer = TypeVar("_Answer")


class Brokers:
    """Asks for ``within_s``. Its methods raise ``BusError`` where nobody answers by then, or refuses for good."""

    def __init__(self, bus: Bus, *, within_s: float) -> None:
        self._properties = bus.librdkafka()
        self._within_s = within_s
        self._meet()

    def ask(self, about: str, question: Callable[[AdminClient], _Answer]) -> _Answer:
        """The answer to a question about a topic or a group, which raises ``KafkaException`` where there is none."""
        patiently = Retrying(
            retry=retry_if_exception(_passes),
            wait=wait_exponential(multiplier=0.05, max=1.0),
            stop=stop_after_delay(self._within_s),
            before_sleep=self._meet,
            reraise=True,
        )
        try:
            return patiently(lambda: question(self._admin))
        except KafkaException as error:
            raise BusError(f"{about} cannot be read: {error}") from error

    def offsets(self, places: Iterable[Place], spec: OffsetSpec) -> dict[Place, ListOffsetsResultInfo]:
        """Of each partition, all in one question; offset and timestamp (ms) are -1 where there is none such."""
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}

        def question(admin: AdminClient) -> dict[Place, ListOffsetsResultInfo]:
            answers = admin.list_offsets(asked, request_timeout=self._within_s)
            return {(place.topic, place.partition): answer.result() for place, answer in answers.items()}

        return self.ask(", ".join(sorted({place.topic for place in asked})), question)

    def _meet(self, _: RetryCallState | None = None) -> None:
        """Anew after each refusal: a client keeps asking with what it knew of a partition's leader, for ever."""
        self._admin = AdminClient(self._properties, logger=LIBRDKAFKA)


def _passes(error: BaseException) -> bool:
    """Whether an error is one of a broker that is away or of a leader that moves."""
    return isinstance(error, KafkaException) and error.args[0].code() not in _LASTING
