"""How to reach Kafka, and what a worker sends through."""

from __future__ import annotations

import logging
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from schemas.errors import SettingsError
from schemas.message import Message

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

LIBRDKAFKA = logging.getLogger("librdkafka")
"""What the clients below confluent-kafka have to say."""

GROUP_PREFIX = "offbeat"
"""Of the consumer groups, unless another one is set."""

_OF_SASL = re.compile(r"sasl|authenticat", re.IGNORECASE)
_OF_TLS = re.compile(r"ssl|tls|certificate|security\.protocol", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Bus:
    """The brokers and how to be let in; the files are in PEM form, None: not used.

    Raises ``SettingsError`` where a file that is needed cannot be read as that.
    """

    bootstrap_servers: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.encrypted:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            for name in ("ca_file", "certificate_file", "key_file"):
                if (path := getattr(self, name)) is not None:
                    _require_pem(name, path, context)

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

    def remedy(self, trouble: str) -> str:
        """What to do where no broker answers, by what librdkafka says of it."""
        if _OF_TLS.search(trouble):
            return (
                f"set OFFBEAT_KAFKA__SECURITY_PROTOCOL (it is {self.security_protocol}) to what the brokers speak "
                "there, and OFFBEAT_KAFKA__CA_FILE to the authority that signed their certificates"
            )
        if _OF_SASL.search(trouble):
            return "set OFFBEAT_KAFKA__SASL_MECHANISM, __USERNAME and __PASSWORD to what the brokers know"
        return "set OFFBEAT_KAFKA__BOOTSTRAP_SERVERS, or start a broker with `make kafka`"


def _require_pem(name: str, path: str, context: ssl.SSLContext) -> None:
    """Both of our clients would say of a bad file neither which one it is nor who named it."""
    try:
        held = Path(path).read_bytes()
        if name == "ca_file":
            context.load_verify_locations(path)
        elif b"-----BEGIN " not in held:
            raise SettingsError(f"OFFBEAT_KAFKA__{name.upper()}: {path} is not in PEM form")
    except ssl.SSLError as error:
        raise SettingsError(f"OFFBEAT_KAFKA__{name.upper()}: {path} holds no certificate in PEM form") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise SettingsError(f"OFFBEAT_KAFKA__{name.upper()}: {path}: {reason}; give a file in PEM form") from error


class Outbox(Protocol):
    """What a worker sends through; producers/publisher.py is the one there is.

    ``flush`` returns once everything sent so far is safe on the bus, and raises ``DeliveryError`` otherwise.
    """

    def send(self, message: Message) -> None: ...

    def flush(self) -> None: ...
