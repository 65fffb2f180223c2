"""A worker as the tests start it: one of the example processors, and faults that production code does not know.

python -m tests.streams.worker_script '{"servers": ..., "processor": ..., ...}'
"""

import json
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from producers.publisher import Publisher
from schemas.errors import OffbeatError
from schemas.processor import Processor
from streams import health
from streams.bus import Bus
from streams.control_view import Jobs
from streams.faust_loop import Pace
from streams.share import Context
from streams.worker import WorkerSettings, run_worker
from tests.streams.examples import Asker, Hoarder, LineSink, Sums, Topics


@dataclass(frozen=True)
class Plan:
    """What the worker is and what befalls it.

    ``die_at_flush`` kills it, once in its lives (``folder`` remembers), when that flush is done: the n-th of those
    that had something to send. ``sigterm_at_page``: it is told to end as soon as its page is there.
    """

    servers: str
    prefix: str
    folder: str
    processor: str = "sums"
    instance: str | None = "only"
    die_at_flush: int | None = None
    cycle_s: float = 0.2
    session_timeout_s: float = 3.0
    stop_within_s: float = 20.0
    stuck_after_s: float = 300.0
    health_port: int | None = None
    sigterm_at_page: bool = False
    partitions: int = 3


class MortalPublisher(Publisher):
    """Dies once at a chosen flush, as if the power had gone: everything is delivered, nothing is committed."""

    def __init__(self, servers: str, name: str, die_at_flush: int | None, died: Path) -> None:
        super().__init__(Bus(servers).librdkafka(), name)
        self._left = -1 if die_at_flush is None or died.exists() else die_at_flush
        self._died = died
        self._delivered = 0

    def flush(self) -> None:
        super().flush()
        if self.delivered > self._delivered:
            self._delivered = self.delivered
            self._left -= 1
            if self._left == 0:
                self._died.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def serve_and_be_told_to_end(*arguments: Any, **options: Any) -> int:
    port = health.serve(*arguments, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return port


def main(plan: Plan) -> int:
    if plan.sigterm_at_page:
        patch("streams.worker.serve", serve_and_be_told_to_end).start()
    topics, folder = Topics.named(plan.prefix, plan.partitions), Path(plan.folder)
    name = f"{plan.prefix}.{plan.processor}"

    def make(context: Context) -> Processor:
        return made(context.jobs)

    def made(jobs: Jobs) -> Processor:
        if plan.processor == "sums":
            return Sums(topics, jobs, name, mended=folder / "mended")
        if plan.processor == "asker":
            return Asker(topics, name)
        if plan.processor == "hoarder":
            return Hoarder(topics, name)
        return LineSink(folder / "lines", topics, name)

    example = made(Jobs())
    try:
        run_worker(
            make,
            name=name,
            reads=example.reads,
            writes=example.writes,
            bus=Bus(plan.servers),
            outbox=MortalPublisher(plan.servers, name, plan.die_at_flush, folder / "died"),
            settings=WorkerSettings(
                instance=plan.instance,
                pace=Pace(cycle_s=plan.cycle_s, session_timeout_s=plan.session_timeout_s),
                stop_within_s=plan.stop_within_s,
                stuck_after_s=plan.stuck_after_s,
                health_port=plan.health_port,
            ),
        )
    except OffbeatError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(level="WARNING")
    sys.exit(main(Plan(**json.loads(sys.argv[1]))))
