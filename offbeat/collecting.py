"""What the agent of a host collects beside the operator log, as the settings say."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from diagnosis.job import Job
from offbeat.settings import Settings
from producers.collectors.edge import Edge
from producers.collectors.host import HostCollector
from producers.collectors.port_counters import PortCounters
from schemas.message import Message

log = logging.getLogger(__name__)


class Collecting:
    """Collects for as long as it is entered; port counters are sampled by a thread of its own.

    ``described`` gives the jobs whose operators are looked for at the ``edge``, if they are to be.
    """

    def __init__(self, settings: Settings, described: Callable[[str], Job | None]) -> None:
        collect = settings.collect
        self._every_s, self._epoch_s = collect.every_s, collect.epoch_ms / 1000
        self._ports: PortCounters | None = None
        if collect.port_counters:
            self._ports = PortCounters(time.time_ns, int(collect.epoch_ms * 1e6), collect.infiniband)
        self.collector = HostCollector(
            settings.live.host or os.uname().nodename,
            calls=collect.calls,
            dumps=collect.dumps,
            ports=self._ports,
            job=collect.job,
        )
        self.edge: Edge | None = None
        if collect.segment_at == "edge":
            self.edge = Edge(settings.live.folder / "traffic", collect.keep_bytes, settings.segment, described)
        if collect.dumps is not None and not collect.dumps.is_dir():
            log.warning("%s is no folder yet: no NIC agent has dumped anything there", collect.dumps)
        if self._ports is not None and not self._ports.found:
            log.warning("there is no RDMA port to count below %s", collect.infiniband)
        self._due = 0.0
        self._stopped = threading.Event()
        self._sampling = threading.Thread(target=self._sample, name="port counters", daemon=True)

    def take_turn(self) -> bool:
        """Whether it is time to look again; where it is, that turn is taken."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + self._every_s
        return True

    def step(self, now_ns: int) -> Iterator[Message]:
        """What there is to tell by now. Whoever asks for the next message has made the last one safe."""
        collected = self.collector.step(now_ns)
        return collected if self.edge is None else self.edge.step(collected)

    def __enter__(self) -> Self:
        if self._ports is not None:
            self._sampling.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._sampling.is_alive():
            self._sampling.join()

    def _sample(self) -> None:
        """Once an epoch, however long a sample takes."""
        due = time.monotonic()
        while self._ports is not None and not self._stopped.wait(max(0.0, due - time.monotonic())):
            self._ports.sample()
            due = max(due + self._epoch_s, time.monotonic())
