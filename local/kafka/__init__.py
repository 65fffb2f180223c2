"""Apache Kafka as one Java process (KRaft), its jars fetched once with Maven."""

from local.kafka.broker import LocalKafka

__all__ = ["LocalKafka"]
