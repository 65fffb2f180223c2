"""Throughput: through Kafka and a worker, into ClickHouse, and from recorded files."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offbeat import terminal

if TYPE_CHECKING:  # heavy: loaded when it begins
    from offbeat.setting_groups import KafkaSettings, StoreSettings
    from sinks.clickhouse.driver import ServerAddress
    from streams.bus import Bus

_ROWS_A_MESSAGE = 25_000


def run(
    *,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Kafka with the catalogue's topics, instead of one started for this."),
    ] = None,
    clickhouse: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="ClickHouse, instead of one started for this; who asks is set as for the store.",
        ),
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="Records of 1 MB that are read.")] = 200,
    rows: Annotated[int, typer.Option(min=1, help="Rows that are inserted.")] = 200_000,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations of the recording, 6,800 rows each.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the medians are told.")] = 3,
) -> dict[str, Any]:
    """Measure throughput, each beside its yardstick.

    bus: MB a second of 1 MB records through Kafka and one worker, as ratios to a plain consumer of confluent-kafka;
    with a processor that decodes nothing, and with one that decodes. store: rows a second into ClickHouse through
    the sink, as a ratio to a bare insert of the driver. importer: rows a second of a recording of JSON lines.
    """
    from offbeat.settings import Settings

    settings = Settings.load()
    load = os.getloadavg()
    with terminal.progress("throughput", 3) as shown:
        with _kafka(settings.kafka, bootstrap) as bus:
            through_kafka = _bus(bus, records, repeats)
        shown.advance(1)
        with _clickhouse(settings.store, clickhouse) as address:
            into_clickhouse = _store(address, rows, repeats)
        shown.advance(2)
        from_files = _importer(iterations, repeats)
        shown.advance(3)
    return {
        "machine": {
            "cores": os.cpu_count(),
            "load_average_before": round(load[0], 2),
            "load_average_after": round(os.getloadavg()[0], 2),
        },
        "repeats": repeats,
        "bus": through_kafka,
        "store": into_clickhouse,
        "importer": from_files,
    }


def _bus(bus: Bus, records: int, repeats: int) -> dict[str, Any]:
    from benchmarks.bus_reader import Reader
    from benchmarks.bus_throughput import measure_bus

    rates = measure_bus(bus, records=records, rounds=repeats)
    rate = {reader: rates.median_mb_per_s(reader) for reader in Reader}
    plain, decoding = rate[Reader.CONSUMER], rate[Reader.CONSUMER_DECODE]
    return {
        "records": records,
        "record_bytes": rates.record_bytes,
        "mb_per_s": {reader.value: round(rate[reader], 1) for reader in Reader},
        "worker_to_consumer": round(rate[Reader.WORKER] / plain, 3),
        "worker_decode_to_consumer": round(rate[Reader.WORKER_DECODE] / plain, 3),
        "worker_decode_to_consumer_decode": round(rate[Reader.WORKER_DECODE] / decoding, 3),
        "cpu_ms_per_mb": {reader.value: round(rates.cpu_ms_per_mb(reader), 2) for reader in Reader},
        "rounds_mb_per_s": {reader.value: [round(each, 1) for each in rates.mb_per_s(reader)] for reader in Reader},
    }


def _store(address: ServerAddress, rows: int, repeats: int) -> dict[str, Any]:
    from benchmarks.store_insert import measure_inserts, operator_messages

    messages = operator_messages(rows, rows_per_message=_ROWS_A_MESSAGE)
    rates = measure_inserts(address, messages, repeats=repeats)
    return {
        "rows": rates.rows,
        "messages": len(messages),
        "sink_rows_per_s": round(rates.sink_rows_per_s),
        "bare_insert_rows_per_s": round(rates.bare_rows_per_s),
        "sink_to_bare_insert": round(rates.ratio, 3),
    }


def _importer(iterations: int, repeats: int) -> dict[str, Any]:
    from producers.importers.recording import load
    from producers.simulation import Scenario, simulate, write

    with tempfile.TemporaryDirectory(prefix="offbeat-bench-") as folder:
        run = simulate(Scenario(seed=0, iterations=iterations))
        write(run, Path(folder))
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            recording = load([Path(folder)])
            seconds.append(time.perf_counter() - started)
    rows = recording.table.num_rows
    if rows != run.table.num_rows:
        raise RuntimeError(f"{rows} of {run.table.num_rows} rows were imported")
    return {"rows": rows, "files": len(recording.files), "rows_per_s": round(rows / statistics.median(seconds))}


@contextmanager
def _kafka(settings: KafkaSettings, bootstrap: str | None) -> Iterator[Bus]:
    from local.kafka import LocalKafka
    from offbeat import wiring
    from schemas.catalogue import TOPICS
    from streams import topics
    from streams.bus import Bus

    with ExitStack() as stack:
        if bootstrap is None:
            bus = Bus(stack.enter_context(LocalKafka()).bootstrap_servers)
            topics.apply(bus, TOPICS.values())
        else:
            bus = wiring.bus(settings.model_copy(update={"bootstrap_servers": bootstrap}))
        yield bus


@contextmanager
def _clickhouse(settings: StoreSettings, address: str | None) -> Iterator[ServerAddress]:
    from local.clickhouse import LocalClickHouse
    from offbeat import wiring
    from sinks.clickhouse.driver import ServerAddress

    with ExitStack() as stack:
        if address is None:
            server = stack.enter_context(LocalClickHouse())
            yield ServerAddress(server.host, server.tcp_port, user=server.user, password=server.password)
        else:
            host, _, port = address.partition(":")
            own = wiring.server_address(settings)
            yield replace(own, host=host, port=_port(port, address) if port else own.port)


def _port(text: str, address: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"{address}: {text} is not a port; give HOST:PORT", param_hint="--clickhouse")
    return int(text)
