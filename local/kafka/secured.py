"""The same broker behind TLS and SASL: clients need the authority's certificate, a user and a password."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.certificates import make_certificates
from local.kafka.broker import LocalKafka

_SECURED = """
# Nobody is let in without TLS and a password.
sasl.enabled.mechanisms={mechanism}
sasl.mechanism.inter.broker.protocol={mechanism}
listener.name.sasl_ssl.{lower}.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
username="{user}" password="{password}";
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}

# Others than this user, and the controller, may do what ACLs allow them.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{user};User:ANONYMOUS
"""


class SecuredKafka(LocalKafka):
    """Apache Kafka with one listener, SASL_SSL; a user who may do everything, certificates in the folder.

    ``others`` are further users, with the same password, who may do nothing until ACLs let them.
    """

    mechanism = "SCRAM-SHA-512"
    user = "offbeat"

    def __init__(self, folder: Path | None = None, port: int | None = None, *, others: Sequence[str] = ()) -> None:
        super().__init__(folder, port)
        self._others = tuple(others)
        self.password = secrets.token_urlsafe(12)

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that signed the broker's."""
        return self.folder / "authority.pem"

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        return {
            **super().client,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca_file),
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    @property
    def format_options(self) -> Sequence[str]:
        users = (self.user, *self._others)
        scram = [f"{self.mechanism}=[name={user},password={self.password}]" for user in users]
        return [option for each in scram for option in ("--add-scram", each)]

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        if not self.ca_file.exists():
            make_certificates(self.folder)
        return super().prepare()

    def settings(self, port: int, controller_port: int, data: Path) -> str:
        plain = super().settings(port, controller_port, data)
        here = plain.replace("PLAINTEXT://", "SASL_SSL://").replace("PLAINTEXT:PLAINTEXT,", "SASL_SSL:SASL_SSL,")
        return here.replace("listener.name=PLAINTEXT", "listener.name=SASL_SSL") + _SECURED.format(
            mechanism=self.mechanism,
            lower=self.mechanism.lower(),
            user=self.user,
            password=self.password,
            keystore=self.folder / "server.pem",
            truststore=self.ca_file,
        )
