"""Apache Kafka as one Java process (KRaft), its jars fetched once with Maven."""

from local.kafka.broker import LocalKafka
from local.kafka.secured import SecuredKafka

__all__ = ["LocalKafka", "SecuredKafka"]
