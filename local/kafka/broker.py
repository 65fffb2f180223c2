"""One Kafka broker on loopback."""

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from local.kafka.jars import kafka_jars
from local.service import LOOPBACK, LocalService, LocalServiceError, find_program, free_ports, is_free

_HERE = Path(__file__).parent
_JVM = [
    "-Xms128m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it lives for minutes: start quickly rather than peak
    "-Djava.awt.headless=true",
    "-Dlog4j.shutdownHookEnabled=false",
    f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
]


class LocalKafka(LocalService):
    """Apache Kafka in one Java process: broker and controller, no replication, topics only on purpose.

    `port` is the one that clients use; a free one if it is not given.
    """

    name = "kafka"

    def __init__(self, folder: Path | None = None, port: int | None = None) -> None:
        super().__init__(folder)
        free_port, self._controller_port = free_ports(2)
        self._port = free_port if port is None else port
        self._cluster_id = ""

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    @property
    def client(self) -> dict[str, str | int | float | bool]:
        """How a client is let in, as properties of librdkafka."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @property
    def format_options(self) -> Sequence[str]:
        """What else a new cluster's data folder is made with."""
        return ()

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        if not is_free(self._port):
            raise LocalServiceError(f"port {self._port} on {LOOPBACK} is taken: give Kafka another one")
        java = find_program("java", "a Java of at least 17 (Debian: apt-get install openjdk-17-jre-headless)")
        command = [java, *_JVM, "-cp", f"{kafka_jars()}/*"]
        data, properties = self.folder / "data", self.folder / "server.properties"
        properties.write_text(self.settings(self._port, self._controller_port, data))
        if not (data / "meta.properties").exists():
            self._format(command, properties)
        self._cluster_id = _cluster_id(data / "meta.properties")
        return [*command, "kafka.Kafka", properties], None

    def settings(self, port: int, controller_port: int, data: Path) -> str:
        """The broker's settings, as server.properties writes them."""
        text = Template((_HERE / "server.properties").read_text())
        return text.substitute(broker_port=port, controller_port=controller_port, data_folder=data)

    def is_ready(self) -> bool:
        """Whether the broker answers as this cluster's: the port alone may be somebody else's."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(
            {
                **self.client,
                "log_level": 0,  # refused connections are what waiting looks like
                "socket.connection.setup.timeout.ms": 1000,
            }
        )
        try:
            answer = admin.list_topics(timeout=1)
        except KafkaException:
            return False
        return len(answer.brokers) == 1 and answer.cluster_id == self._cluster_id

    def _format(self, command: Sequence[str], properties: Path) -> None:
        """Make the data folder of a new cluster."""
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        # "=" keeps an id that begins with a dash from being read as an option.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", str(properties)]
        tool += self.format_options
        done = subprocess.run([*command, *tool], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LocalServiceError(f"Kafka could not format {self.folder}:\n{(done.stdout + done.stderr)[-2000:]}")


def _cluster_id(meta_properties: Path) -> str:
    for line in meta_properties.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "cluster.id":
            return value
    raise LocalServiceError(f"{meta_properties} names no cluster.id: remove its folder")
