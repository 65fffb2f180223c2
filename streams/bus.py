"""How to reach Kafka, and what a worker sends through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from schemas.message import Message

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class Bus:
    """The brokers and how to be let in; the files are in PEM form, None: not used."""

    bootstrap_servers: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def authenticated(self) -> bool:
        return self.security_protocol.startswith("SASL")

    def librdkafka(self) -> dict[str, str | int | float | bool]:
        """The same as properties of librdkafka, for confluent-kafka's clients."""
        properties = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }
        return {name: value for name, value in properties.items() if value is not None}


class Outbox(Protocol):
    """What a worker sends through; producers/publisher.py is the one there is.

    ``flush`` returns once everything sent so far is safe on the bus, and raises ``DeliveryError`` otherwise.
    """

    def send(self, message: Message) -> None: ...

    def flush(self) -> None: ...
