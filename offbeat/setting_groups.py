"""What can be set of the services and roles around the diagnosis; ``settings`` reads it from the environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from offbeat.secret_files import SECRETS, SUFFIX, secret
from producers.live.registration import DEFAULT_FOLDER
from schemas.errors import SettingsError
from streams.bus import GROUP_PREFIX, SaslMechanism, SecurityProtocol

PREFIX = "OFFBEAT_"
DELIMITER = "__"

DATA_DIR = Path("offbeat-data")
"""The chDB folder where none is named."""

Port = Annotated[int, Field(ge=1, le=65535)]

_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
"""It becomes part of statements, which take no parameter for a name."""


def _named(database: str) -> str:
    if not _DATABASE.fullmatch(database):
        raise PydanticCustomError("name", "This cannot name a database: give letters, digits, _ and -, at most 100")
    return database


DatabaseName = Annotated[str, AfterValidator(_named)]
_Nothing = BeforeValidator(lambda text: text or None)
"""Of what is not set where it is set to nothing."""

SecretFile = Annotated[Path | None, _Nothing]
ModelName = Annotated[str | None, _Nothing]


def variable_name(*path: str) -> str:
    """The environment variable of a setting, named by its groups and itself."""
    return PREFIX + DELIMITER.join(path).upper()


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Secretive(_Group):
    """A group whose secrets may be in files: those are read where the service is used, so that what needs it not does
    without them."""

    group: ClassVar[str]

    @model_validator(mode="after")
    def _given_once(self) -> Self:
        for name in self._in_files():
            if getattr(self, name):
                given = variable_name(self.group, name)
                raise SettingsError(f"{given} and {given + SUFFIX.upper()} are both set: give one of them")
        return self

    def with_secrets(self) -> Self:
        """The same settings with the secrets that files hold; raises ``SettingsError`` for a file that holds none."""
        held = {
            name: SecretStr(secret(path, variable_name(self.group, name + SUFFIX)))
            for name, path in self._in_files().items()
        }
        return self.model_copy(update=held)

    def _in_files(self) -> dict[str, Path]:
        named = {name: getattr(self, name + SUFFIX, None) for name in sorted(SECRETS)}
        return {name: path for name, path in named.items() if path is not None}


class KafkaSettings(_Secretive):
    """The brokers and how to be let in; certificates and keys are files in PEM form."""

    group: ClassVar[str] = "kafka"

    bootstrap_servers: str = "127.0.0.1:9092"
    """Brokers to ask first, as ``HOST:PORT``, with commas between them."""
    security_protocol: SecurityProtocol = "PLAINTEXT"
    """How brokers are spoken to: with TLS where it ends in ``SSL``, with a login where it begins with ``SASL``."""
    ca_file: str | None = None
    """The authority that signed the brokers' certificates; unset, those that the system trusts."""
    certificate_file: str | None = None
    """This client's certificate, for brokers that ask for one."""
    key_file: str | None = None
    """The private key of ``certificate_file``."""
    sasl_mechanism: SaslMechanism | None = None
    """How the login is made; needed, with ``username`` and a password, where the protocol has one."""
    username: str | None = None
    """Who logs in."""
    password: SecretStr | None = None
    """The password of ``username``."""
    password_file: SecretFile = None
    """The file that holds ``password``, instead of ``password``."""
    replication_factor: int | None = Field(None, ge=1)
    """Replicas of each topic that ``offbeat topics apply`` creates; unset, the brokers' default."""


class StoreSettings(_Secretive):
    """Where results are stored: a chDB folder or a ClickHouse server."""

    group: ClassVar[str] = "store"

    engine: Literal["chdb", "clickhouse"] = "chdb"
    """``chdb`` is the ClickHouse engine in this process, over the folder ``path``; ``clickhouse`` is a server, reached
    by native TCP."""
    path: Path = DATA_DIR
    """The folder of ``chdb``."""
    host: str = "localhost"
    """The server's name or address."""
    port: Port | None = None
    """The server's port for native TCP; unset, 9440 with ``secure`` and 9000 without."""
    database: DatabaseName = "default"
    """The database on the server; it has to exist."""
    user: str = "default"
    """Who logs in to the server."""
    password: SecretStr = SecretStr("")
    """The password of ``user``."""
    password_file: SecretFile = None
    """The file that holds ``password``, instead of ``password``."""
    secure: bool = False
    """Whether the server is reached over TLS."""
    verify: bool = True
    """Whether the server's certificate is checked; with false anybody can pose as the server."""
    ca_certificates: Path | None = None
    """The authority that signed the server's certificate, in PEM form; unset, those of certifi."""
    certificate: Path | None = None
    """This client's certificate in PEM form, for a server that asks for one."""
    key: Path | None = None
    """The private key of ``certificate``, in PEM form."""
    compression: bool = False
    """Whether what travels to and from the server is compressed, which pays between machines."""
    comm_ops: bool = True
    """Whether the sink stores the operators that travel, which are most of what is stored."""

    def in_folder(self, path: Path) -> Self:
        """The same settings for a chDB folder."""
        return self.model_copy(update={"engine": "chdb", "path": path})


class WebhookSettings(_Secretive):
    """Whom incidents are paged to. docs/paging.md goes through it."""

    group: ClassVar[str] = "webhook"

    receiver: Literal["webhook", "alertmanager", "pagerduty", "slack"] = "webhook"
    """How the receiver is spoken to; ``webhook`` is one of your own."""
    url: SecretStr | None = None
    """Where pages go, a secret since many services put the credential into it; of Alertmanagers that form a cluster
    all, with commas, and for PagerDuty only where its account is not of the default region."""
    url_file: SecretFile = None
    """The file that holds ``url``, instead of ``url``."""
    secrets: SecretStr = SecretStr("")
    """What requests are signed with; two, with a comma, while one is being replaced."""
    secrets_file: SecretFile = None
    """The file that holds ``secrets``, instead of ``secrets``."""
    authorization: SecretStr | None = None
    """The header ``Authorization`` of each request."""
    authorization_file: SecretFile = None
    """The file that holds ``authorization``, instead of ``authorization``."""
    routing_key: SecretStr | None = None
    """The integration key of PagerDuty, which needs it."""
    routing_key_file: SecretFile = None
    """The file that holds ``routing_key``, instead of ``routing_key``."""
    severity: str = "critical"
    """The severity of every page; PagerDuty takes ``critical``, ``error``, ``warning`` and ``info``, and Slack is told
    none."""
    external_url: str = ""
    """The link on a page, in which ``{job}`` and ``{incident}`` stand for their ids."""
    pages_per_job: int = Field(5, ge=1)
    """How many incidents of a job get a page of their own within ``window_s``; one summary tells of the others, and a
    hang always has its own."""
    window_s: float = Field(600.0, gt=0)
    """The time in which ``pages_per_job`` counts, in seconds."""

    @property
    def is_set(self) -> bool:
        """Whether anything is set here: where incidents are paged, whom to is."""
        return self.model_dump() != type(self)().model_dump()


class WorkerGroup(_Group):
    """How a role runs."""

    group_prefix: str = GROUP_PREFIX
    """What the names of consumer groups begin with; under another one a worker reads from the start and saves its
    states apart."""
    instance: str | None = None
    """This process's name within its group, the same after a restart, by which it resumes at once; unset, it resumes
    after ``session_timeout_s``."""
    health_port: Port | None = None
    """The port of /metrics and /live; unset, nothing listens."""
    health_host: str = "127.0.0.1"
    """The address that they listen on; whoever reaches it is answered, so name another than the loopback one only in a
    network of your own."""
    session_timeout_s: float = Field(6.0, gt=0)
    """Seconds of silence after which the brokers give a worker's partitions to others; at most 30, and brokers refuse
    less than 6 unless they are set otherwise."""
    stop_within_s: float = Field(20.0, gt=0)
    """Seconds that a worker may take to stop before its process is ended; what was not committed comes again."""
    tuning: Path | None = None
    """A file of settings of the diagnosis, one a line as variables, which a step goes by as soon as it changes."""


class LiveSettings(_Group):
    """The log agent of a host. docs/logging.md goes through it."""

    rings: Path = DEFAULT_FOLDER
    """Where training processes log, in memory that they share with the agent; the same for both."""
    folder: Path = Path("offbeat-agent")
    """Where the agent keeps what it has collected, and what waits for Kafka."""
    keep_bytes: int = Field(4 << 30, ge=1 << 20)
    """Bytes of iterations that are kept of each job, the newest; searches cannot look further back."""
    spool_bytes: int = Field(256 << 20, ge=1 << 20)
    """Bytes of messages that may wait for Kafka; beyond that the oldest are dropped and counted."""
    look_every_s: float = Field(0.1, gt=0)
    """Seconds between two looks at the rings."""
    host: str | None = None
    """This host's name where no job gives it one; unset, the machine's, which in a container is the container's."""


class CollectSettings(_Group):
    """What the agent of a host collects beside the operator log. docs/collectors.md goes through it."""

    calls: Path = DEFAULT_FOLDER / ".calls"
    """Where processes log that have the preloaded library in them; the same for them and the agent."""
    dumps: Path | None = None
    """Where NIC agents put their epoch dumps; unset, none are read."""
    port_counters: bool = False
    """Whether the counters of RDMA ports are read, for NICs without an agent."""
    infiniband: Path = Path("/sys/class/infiniband")
    """The kernel's folder of RDMA devices: their counters, and the addresses that the preloaded library looks up."""
    epoch_ms: float = Field(10.0, ge=1, le=100)
    """The length of an epoch of port counters, in milliseconds."""
    every_s: float = Field(0.5, gt=0)
    """Seconds between two looks at calls, dumps and port counters."""
    job: str | None = None
    """The name of the job: for processes with the library in them, and for what NICs sent where no such process runs
    here."""
    segment_at: Literal["stream", "edge"] = "stream"
    """Who looks for operators in NIC traffic: the worker ``segment`` (``stream``), which is told all of it, or the
    agent (``edge``), which tells operators and metrics alone."""
    keep_bytes: int = Field(512 << 20, ge=1 << 20)
    """With ``edge``, bytes of NIC traffic and calls that are kept of each job, the newest: what is still open needs
    them, and whoever asks gets them."""


def check_protocol(kafka: KafkaSettings) -> None:
    """What a protocol does not use must not be set, or someone would take a connection for safe that is not."""
    protocol = kafka.security_protocol
    encrypted, authenticated = protocol.endswith("SSL"), protocol.startswith("SASL")
    said = f"{variable_name('kafka', 'security_protocol')} is {protocol}"
    for used, kind, names in (
        (encrypted, "SSL or SASL_SSL", ("ca_file", "certificate_file", "key_file")),
        (authenticated, "SASL_SSL or SASL_PLAINTEXT", ("sasl_mechanism",)),
    ):
        given = [name for name in names if getattr(kafka, name) is not None]
        if given and not used:
            raise ValueError(f"{variable_name('kafka', given[0])} is set, but {said}: set that to {kind}")
    for name in ("sasl_mechanism", "username", "password"):
        if authenticated and getattr(kafka, name) is None and getattr(kafka, name + SUFFIX, None) is None:
            raise ValueError(f"{said}: set {variable_name('kafka', name)} as well")
