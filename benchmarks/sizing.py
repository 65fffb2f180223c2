"""What an operator and an iteration cost on the bus, in the store, and in the step that sees every host.

These are the coefficients of the formula in docs/operations.md.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # heavy: loaded when it begins
    from diagnosis.job import Job
    from producers.log_agent import LogAgent
    from schemas.message import Message

_PER_HOST = 8
_SECOND_NS = 10**9
_COMMIT_EVERY = 500
"""Records between two commits of a worker: states are saved then."""


def run(
    *,
    ranks: Annotated[int, typer.Option(min=8, help="Of the job that the monitor watches.")] = 10_000,
    iterations: Annotated[int, typer.Option(min=2, help="Of both jobs.")] = 12,
    microbatches: Annotated[int, typer.Option(min=1, help="Of the job whose operators are counted.")] = 8,
) -> dict[str, Any]:
    """Measure bytes and time that a job's telemetry takes."""
    from offbeat import options
    from producers.log_agent import agents
    from producers.simulation import simulate
    from schemas import catalogue

    scenario = f"seed=5,tp=8,pp=4,dp=2,microbatches={microbatches},layers=16,iterations={iterations}"
    made = simulate(options.scenario(scenario, []))
    told = [message for host in agents(made.job, made.table, made.job.ranks) for message in _all_of(host)]
    operators = [message for message in told if message.topic == catalogue.COMM_OPS.name]
    summaries = [message for message in told if message.topic == catalogue.ITERATION_SUMMARIES.name]
    return {
        "operators": made.table.num_rows,
        "bus_bytes_an_operator": round(_bytes(operators) / made.table.num_rows, 1),
        "stored_bytes_an_operator": round(_stored_bytes(operators) / made.table.num_rows, 1),
        "bus_bytes_a_host_and_iteration": round(_bytes(summaries) / len(summaries)),
        "monitor_cpu_ms_a_host_and_iteration": round(_monitor_cpu_s(ranks, iterations) * 1e3, 3),
    }


def _all_of(host: LogAgent) -> Iterable[Message]:
    while (messages := host.advance()) is not None:
        yield from messages


def _bytes(messages: Sequence[Message]) -> int:
    return sum(len(message.value or b"") for message in messages)


def _stored_bytes(operators: Sequence[Message]) -> int:
    """On disk, once parts are merged."""
    from sinks.clickhouse.chdb import ChdbStore
    from sinks.clickhouse.migrate import migrate
    from sinks.clickhouse.sink import ClickHouseSink

    with tempfile.TemporaryDirectory() as folder:
        store = ChdbStore(Path(folder) / "store")
        try:
            migrate(store)
            sink = ClickHouseSink(store)
            for offset, message in enumerate(operators):
                sink.process(replace(message, offset=offset))
            sink.flush()
            store.execute("OPTIMIZE TABLE comm_ops FINAL")
            parts = "SELECT sum(bytes_on_disk) AS size FROM system.parts WHERE active AND table = 'comm_ops'"
            return int(store.query(parts).column("size")[0].as_py())
        finally:
            store.close()


def _monitor_cpu_s(ranks: int, iterations: int) -> float:
    """Seconds of a core for the record of one host and one iteration of a job, saving its state included."""
    from diagnosis.job import Job, Place
    from streams.monitor import Monitor
    from streams.step import Step

    job = Job("sized", tuple(Place(rank, f"host{rank // _PER_HOST}", rank % _PER_HOST) for rank in range(ranks)), ())
    messages = [_summary(job, host, iteration) for iteration in range(iterations) for host in job.ranks_of_host]
    step = Step(Monitor({job.job: job}))
    began = time.process_time()
    for offset, message in enumerate(messages):
        step.take(replace(message, offset=offset))
        if offset % _COMMIT_EVERY == 0:
            step.changed_states()
    return (time.process_time() - began) / len(messages)


def _summary(job: Job, host: str, iteration: int) -> Message:
    from schemas.catalogue import ITERATION_SUMMARIES
    from schemas.message import encode

    start, end = iteration * 5 * _SECOND_NS, (iteration + 1) * 5 * _SECOND_NS
    rows = [
        {"rank": rank, "iteration": iteration, "start_ns": start, "end_ns": end, "operators": 4500, "lost_lines": 0}
        for rank in job.ranks_of_host[host]
    ]
    return encode(ITERATION_SUMMARIES, ITERATION_SUMMARIES.from_rows(rows), job=job.job, watermark_ns=end)
