"""Rooms wired together: settings become what each room wants, rooms become the pipeline."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from diagnosis.irregularity.operator_detector import OperatorDetector
from diagnosis.job import Job, pivots
from offbeat import terminal
from offbeat.setting_groups import KafkaSettings, StoreSettings, variable_name
from offbeat.settings import Settings
from producers.job_source import JobSource, job_message
from producers.log_agent import LogAgent, agents
from schemas.errors import ModelError, StoreError
from schemas.message import Message
from schemas.processor import Processor
from streams import in_process
from streams.bus import Bus
from streams.compare import Compare
from streams.control_view import Jobs
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.search import Search
from streams.segment import Segment

if TYPE_CHECKING:  # in process nothing of Kafka, of ClickHouse or of HTTP is loaded
    from producers.publisher import Publisher
    from sinks.clickhouse.driver import ServerAddress
    from sinks.clickhouse.one_run import OneRun
    from sinks.clickhouse.sink import ClickHouseSink
    from sinks.clickhouse.store import Store
    from streams.search_metrics import SearchMetrics


_STEPS: Mapping[str, Callable[[Mapping[str, Job], Settings, SearchMetrics | None], Processor]] = {
    Monitor.name: lambda jobs, settings, _: Monitor(jobs, settings.monitor, settings.pivots, settings.like_ranks),
    Search.name: lambda jobs, settings, metrics: Search(jobs, settings.search, trained_detector(settings), metrics),
    Segment.name: lambda jobs, settings, _: Segment(jobs, settings.segment),
    Compare.name: lambda jobs, settings, _: Compare(jobs, settings.compare),
    Incidents.name: lambda jobs, settings, _: Incidents(jobs, settings.incidents),
}
"""What makes each step, in the order in which evidence passes them."""


def step(name: str, jobs: Mapping[str, Job], settings: Settings, metrics: SearchMetrics | None = None) -> Processor:
    """The diagnosing step of this name over the known jobs; ``metrics`` are counted by the one that searches."""
    return _STEPS[name](jobs, settings, metrics)


def steps(jobs: Mapping[str, Job], settings: Settings) -> dict[str, Processor]:
    """All of them by name, in the order in which evidence passes them."""
    return {name: step(name, jobs, settings) for name in _STEPS}


def trained_detector(settings: Settings) -> OperatorDetector | None:
    """The forest of the model that is set; None: none is. Raises ``ModelError`` where it cannot be used."""
    if settings.model is None:
        return None
    from offbeat import models

    try:
        return models.load(settings.model).detector
    except ModelError as error:
        raise ModelError(f"{variable_name('model')}: {error}") from error


def log_agents(job: Job, table: pa.Table, settings: Settings) -> list[LogAgent]:
    """The agents of a job's hosts over its recorded log (``table``: see ``producers.log_agent.agents``)."""
    published = job.ranks if settings.publish_all else pivots(job, settings.pivots)
    return agents(job, table, published)


def run_in_process(job: Job, table: pa.Table, settings: Settings, readers: Sequence[Processor] = ()) -> None:
    """Move a job's log through the whole pipeline in this process. ``readers`` come after it: sinks and listeners."""
    run_agents_in_process(job, log_agents(job, table, settings), settings, readers)


def run_agents_in_process(
    job: Job, hosts: Sequence[LogAgent], settings: Settings, readers: Sequence[Processor] = ()
) -> None:
    """The same with what the agents of a job's hosts tell."""
    jobs = Jobs()
    pipeline = steps(jobs, settings).values()
    in_process.run([JobSource(job, hosts), *hosts], [jobs, *hosts, *pipeline, *readers])


def run_traffic_in_process(
    job: Job,
    messages: Iterable[Message],
    settings: Settings,
    readers: Sequence[Processor] = (),
    hosts: Sequence[LogAgent] = (),
) -> None:
    """Move what was told of a job's NIC traffic through the pipeline: records of telemetry.nic_epochs, op_calls and
    queue_pairs, in the order of their time; in turn with them what the log agents of ``hosts`` tell. A job that has
    ended says so from the start."""
    jobs = Jobs()
    pipeline = steps(jobs, settings).values()
    sources: list[in_process.Source] = [in_process.Recorded([job_message(job)]), *hosts, in_process.Recorded(messages)]
    in_process.run(sources, [jobs, *hosts, *pipeline, *readers])


def bus(settings: KafkaSettings) -> Bus:
    """How to reach Kafka. Raises ``SettingsError`` where the file of its password holds none."""
    plain = settings.model_dump(exclude={"password", "password_file", "replication_factor"})
    password = settings.with_secrets().password
    return Bus(**plain, password=None if password is None else password.get_secret_value())


def publisher(settings: KafkaSettings, name: str) -> Publisher:
    """What sends to Kafka under a name."""
    from producers.publisher import Publisher

    return Publisher(bus(settings).librdkafka(), name)


def server_address(settings: StoreSettings) -> ServerAddress:
    """Where the ClickHouse server is, and who asks.

    Raises ``SettingsError`` where the file of its password holds none.
    """
    from sinks.clickhouse.driver import ServerAddress

    plain = settings.model_dump(exclude={"engine", "path", "port", "password", "password_file", "comm_ops"})
    port = settings.port or (9440 if settings.secure else 9000)
    return ServerAddress(**plain, port=port, password=settings.with_secrets().password.get_secret_value())


def migrating(settings: StoreSettings) -> str:
    """The command that brings the store to the schema of this build."""
    return f"offbeat store migrate{in_folder(settings)}"


def in_folder(settings: StoreSettings) -> str:
    """What a command ends in that is to take the same store, where it is a chDB folder."""
    return f" --data-dir {shlex.quote(str(settings.path))}" if settings.engine == "chdb" else ""


@contextmanager
def opened(settings: StoreSettings, *, existing: bool = False, retry_for_s: float = 0.0) -> Iterator[Store]:
    """The store; with ``existing`` none is made where a chDB folder is missing or holds none: ``StoreError``.

    ``retry_for_s`` is how long a server that does not answer is tried again.
    """
    if settings.engine == "chdb":
        from sinks.clickhouse.chdb import ChdbStore, holds_store

        if existing and not holds_store(settings.path):
            what = "holds no store" if settings.path.is_dir() else "no such chDB folder"
            raise StoreError(
                f"{settings.path}: {what}; name one with --data-dir, make it with "
                f"`{migrating(settings)}`, or reach a ClickHouse server with OFFBEAT_STORE__ENGINE=clickhouse and "
                "OFFBEAT_STORE__HOST"
            )
        if "path" not in settings.model_fields_set and not settings.path.is_dir():
            terminal.note(f"no store is set: making the chDB folder {settings.path.absolute()}")
        store: Store = ChdbStore(settings.path)
    else:
        from sinks.clickhouse.driver import DriverStore

        store = DriverStore(server_address(settings), retry_for_s=retry_for_s)
    try:
        yield store
    finally:
        store.close()


def store_sink(store: Store, settings: StoreSettings) -> ClickHouseSink:
    """The sink that fills a store, which it brings to the schema of this build first."""
    from sinks.clickhouse.migrate import migrate
    from sinks.clickhouse.sink import ClickHouseSink

    migrate(store)
    return ClickHouseSink(store, comm_ops=settings.comm_ops)


def one_run(store: Store, settings: StoreSettings, job: str) -> OneRun:
    """What puts a recorded run of a job in place of earlier ones, in a store that it migrates first."""
    from sinks.clickhouse.migrate import migrate
    from sinks.clickhouse.one_run import OneRun

    migrate(store)
    return OneRun(store, job, comm_ops=settings.comm_ops)
