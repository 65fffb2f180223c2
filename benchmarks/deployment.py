"""The whole pipeline as processes on this machine: a broker, a server, every role, and somebody on call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from benchmarks.pages import OnCall
from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from local.service import LocalService, LocalServiceError, free_ports
from offbeat.setting_groups import KafkaSettings
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.store import Store

ROLES: Mapping[str, tuple[str, ...]] = {
    "monitor": ("worker", "monitor"),
    "search": ("worker", "search"),
    "incidents": ("worker", "incidents"),
    "sink": ("sink",),
    "alert": ("alert",),
    "agent": ("agent",),
}
"""How each role is started."""

_WITHIN_S = 10.0
_DRAINED_WITHIN_S = 600.0
_LAG_TOLD_EVERY_S = 6.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a role tells of itself: memory in bytes, and how far it is behind its inputs in seconds, if it knows."""

    rss_bytes: float
    lag_s: float | None


class Role(LocalService):
    """One role, which is ready once its page of metrics is there."""

    name = "role"

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        super().__init__(folder)
        self._arguments = arguments
        self._environment = environment
        [self._port] = free_ports(1)

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        command = [*offbeat(*self._arguments), "--health-port", str(self._port)]
        return command, self._environment

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/metrics", timeout=_WITHIN_S).is_success
        except httpx.TransportError:
            return False

    def sample(self) -> Sample:
        """What it tells now; raises ``httpx.HTTPError`` where it does not."""
        values = self._values()
        lags = values.get("offbeat_lag_seconds", [])
        return Sample(values["process_resident_memory_bytes"][0], max(lags, default=None))

    def total(self, counter: str) -> int:
        """A counter of all its series; raises ``httpx.HTTPError`` where it does not tell."""
        return int(sum(self._values().get(counter, [])))

    def _values(self) -> dict[str, list[float]]:
        page = httpx.get(f"http://127.0.0.1:{self._port}/metrics", timeout=_WITHIN_S).raise_for_status().text
        values: dict[str, list[float]] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                values.setdefault(sample.name, []).append(sample.value)
        return values


@dataclass(frozen=True, slots=True)
class Deployment:
    """The roles that run, what they are set to, and who is paged; the agent's host logs into ``rings``."""

    roles: Mapping[str, Role]
    kafka: LocalKafka
    clickhouse: LocalClickHouse
    on_call: OnCall
    rings: Path

    @contextmanager
    def store(self) -> Iterator[Store]:
        """What the sink fills."""
        server = self.clickhouse
        store = DriverStore(ServerAddress(server.host, server.tcp_port, user=server.user, password=server.password))
        try:
            yield store
        finally:
            store.close()

    def reached_by(self, settings: KafkaSettings) -> KafkaSettings:
        """The settings with this deployment's broker."""
        return settings.model_copy(update={"bootstrap_servers": self.kafka.bootstrap_servers})

    def drain(self) -> None:
        """Wait until no role is behind its inputs; raises ``LocalServiceError`` where one stays behind for minutes."""
        in_time = Retrying(
            retry=retry_if_result(lambda behind: behind),
            stop=stop_after_delay(_DRAINED_WITHIN_S),
            wait=wait_fixed(_LAG_TOLD_EVERY_S),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        time.sleep(_LAG_TOLD_EVERY_S)  # what a role tells is as old
        if behind := in_time(lambda: [name for name, role in self.roles.items() if role.sample().lag_s]):
            raise LocalServiceError(f"{', '.join(behind)}: still behind after {_DRAINED_WITHIN_S:g} s")


@contextmanager
def deployment(
    folder: Path, set_to: Mapping[str, str] | None = None, roles: Mapping[str, tuple[str, ...]] = ROLES
) -> Iterator[Deployment]:
    """Start everything, and stop it in the end; ``folder`` keeps what the roles say. ``set_to``: further settings.

    Raises ``LocalServiceError`` where something does not start.
    """
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka())
        clickhouse = stack.enter_context(LocalClickHouse())
        on_call = stack.enter_context(OnCall())
        rings = folder / "rings"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OFFBEAT_")} | {
            "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "OFFBEAT_STORE__ENGINE": "clickhouse",
            "OFFBEAT_STORE__HOST": clickhouse.host,
            "OFFBEAT_STORE__PORT": str(clickhouse.tcp_port),
            "OFFBEAT_STORE__USER": clickhouse.user,
            "OFFBEAT_STORE__PASSWORD": clickhouse.password,
            "OFFBEAT_WEBHOOK__URL": on_call.url,
            "OFFBEAT_LIVE__RINGS": str(rings),
            "OFFBEAT_LIVE__FOLDER": str(folder / "kept"),
            **(set_to or {}),
        }
        for prepared in (("topics", "apply"), ("store", "migrate")):
            _once(prepared, environment)
        started = {
            name: stack.enter_context(Role(arguments, environment, folder / name)) for name, arguments in roles.items()
        }
        yield Deployment(started, kafka, clickhouse, on_call, rings)


def _once(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(offbeat(*arguments), env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalServiceError(f"offbeat {' '.join(arguments)} ended with code {done.returncode}: {done.stderr}")


def offbeat(*arguments: str) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-c", "from offbeat.cli import main; main()", *arguments]
