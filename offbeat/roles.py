"""The long-running roles of the deployed pipeline: a step, the store's sink, paging. Each is one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry

from offbeat import wiring
from offbeat.exposition import registry
from offbeat.settings import Settings
from offbeat.telling import TellingOutbox, TellingStore
from offbeat.tuning import Tuning
from schemas import catalogue
from schemas.errors import MessageError
from schemas.message import Message
from schemas.metrics import STORED_ROWS
from schemas.processor import Processor, Stateful, Waiting
from schemas.topic import Topic
from streams.bus import Outbox
from streams.dead_letters import dead_letter
from streams.faust_loop import Pace
from streams.search import Search
from streams.search_metrics import SearchMetrics
from streams.share import Context
from streams.worker import WorkerSettings, run_worker

_STORE_AWAY_S = 60.0
"""How long a store may be away before its sink stops, with its offsets held."""

_PACE = Pace()
_PACE_OF_STORE = Pace(cycle_s=0.5)
"""Somebody may be looking at what is stored. Oftener would make many small parts in ClickHouse."""


def run_step(name: str, settings: Settings) -> None:
    """Run a diagnosing step until SIGTERM; raises ``OffbeatError`` for what stops it."""
    step = wiring.step(name, {}, settings)
    figures = registry(f"worker {name}")
    searching = SearchMetrics(figures) if name == Search.name else None
    tuning = Tuning(name, settings)
    outbox = TellingOutbox(wiring.publisher(settings.kafka, name))
    _run(
        f"offbeat worker {name}",
        name,
        lambda context: tuning.following(wiring.step(name, context.jobs, tuning.settings, searching)),
        step.reads,
        step.writes,
        outbox,
        settings,
        figures,
        at_once=isinstance(step, Stateful) and isinstance(step, Waiting),  # what it saved may be overdue
        before_batch=tuning.look,
    )


def run_store_sink(settings: Settings) -> None:
    """Fill the store until SIGTERM; raises ``OffbeatError`` for what stops it."""
    from sinks.clickhouse.migrate import require_migrated
    from sinks.clickhouse.sink import ClickHouseSink

    with wiring.opened(settings.store, existing=True, retry_for_s=_STORE_AWAY_S) as opened:
        require_migrated(opened, wiring.migrating(settings.store))
        figures = registry("sink")
        store = TellingStore(opened, STORED_ROWS.made(figures))

        def make(_: Context) -> Processor:
            return ClickHouseSink(store, comm_ops=settings.store.comm_ops)

        sink = ClickHouseSink(store, comm_ops=settings.store.comm_ops)
        outbox = wiring.publisher(settings.kafka, sink.name)
        try:
            _run(
                "offbeat sink",
                sink.name,
                make,
                sink.reads,
                sink.writes,
                outbox,
                settings,
                figures,
                pace=_PACE_OF_STORE,
            )
        finally:
            store.tell()


def run_paging(settings: Settings) -> None:
    """Page incidents until SIGTERM; raises ``OffbeatError`` for what stops it."""
    from offbeat.paging import following, paging
    from sinks.webhook.sink import WebhookSink

    figures = registry("alert")
    outbox = wiring.publisher(settings.kafka, WebhookSink.name)
    with (
        following(settings.kafka) as silences,
        paging(settings.webhook, _burying(outbox, WebhookSink.name), figures, silences=silences) as make,
    ):
        _run(
            "offbeat alert",
            WebhookSink.name,
            lambda context: make(context.jobs),
            WebhookSink.reads,
            (catalogue.DEAD_LETTERS,),
            outbox,
            settings,
            figures,
            at_once=True,
        )


def _burying(outbox: Outbox, name: str) -> Callable[[Message, MessageError], None]:
    """Puts a record that was refused for good into dead_letters, safely before its offset is committed."""

    def bury(message: Message, refusal: MessageError) -> None:
        outbox.send(dead_letter(message, refusal, name))
        outbox.flush()

    return bury


def _run(
    command: str,
    name: str,
    make: Callable[[Context], Processor],
    reads: tuple[Topic, ...],
    writes: tuple[Topic, ...],
    outbox: Outbox,
    settings: Settings,
    figures: CollectorRegistry,
    *,
    at_once: bool = False,
    before_batch: Callable[[], None] = lambda: None,
    pace: Pace = _PACE,
) -> None:
    worker = settings.worker
    run_worker(
        make,
        name=name,
        command=command,
        reads=reads,
        writes=writes,
        bus=wiring.bus(settings.kafka),
        outbox=outbox,
        settings=WorkerSettings(
            group_prefix=worker.group_prefix,
            instance=worker.instance,
            pace=replace(pace, session_timeout_s=worker.session_timeout_s),
            stop_within_s=worker.stop_within_s,
            health_port=worker.health_port,
            health_host=worker.health_host,
        ),
        registry=figures,
        at_once=at_once,
        before_batch=before_batch,
    )
