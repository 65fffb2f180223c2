"""From the end of a slow collective, or the time-out of one that hangs, to the stored finding, over Kafka, with
a worker process a step.

Simulated hosts are replayed as fast as they ran: what a host tells at a moment of simulated time is published that
moment of this machine's clock, so every poll is as late as a real one. What agents add on their way to Kafka is left
out: that they look for dumps now and then (``OFFBEAT_COLLECT__EVERY_S``), and their spool.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.compute as pc

from benchmarks.deployment import Deployment, deployment
from benchmarks.traffic.detection import HANG_NS
from local.service import LocalServiceError
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import job_message
from producers.simulation.nic import Fault, Injection, NicRun, NicScenario, Setup, healthy
from schemas import catalogue
from schemas.message import Message, decode
from sinks.clickhouse.store import Store
from streams.follower import Follower

ROLES = {name: ("worker", name) for name in ("segment", "compare", "incidents")} | {"sink": ("sink",)}
SETTLES_WITHIN_S = 60.0
SETTINGS = {
    "OFFBEAT_COMPARE__COURSE__HANG_NS": str(HANG_NS),
    "OFFBEAT_COMPARE__COURSE__LEARN_NS": "2000000000",
}
"""Jobs are short: where a communicator is never used iterations are told after two seconds, not after a minute."""

_LOOK_EVERY_S = 0.01
_STORED = "SELECT id FROM findings WHERE job = {job:String}"


class Kind(StrEnum):
    """What a run shows: a slow built-in collective, a slow custom one, or a NIC that stops."""

    COLLECTIVE = "collective"
    CUSTOM = "custom"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Delay:
    """One finding that names the faulty rank; all times are seconds after the collective had ended, a custom one the
    last of those that were looked at, or after what hangs had been silent for the time-out.

    ``polled``: every host had told of that moment. ``segmented``: the metrics of every host up to it were on the bus.
    ``found``: so was the finding. ``stored``: it was in the store.
    """

    polled: float
    segmented: float
    found: float
    stored: float


def scenario(seed: int, kind: Kind = Kind.COLLECTIVE) -> NicScenario:
    """16 ranks on 8 hosts that train with half a second an iteration, or four that exchange as often; from about the
    fifth on one NIC is slow, or down.

    It is one of the first stage: what gradients of the last one lose the pipeline hides.
    """
    if kind is Kind.CUSTOM:
        job = replace(healthy(Setup.NEIGHBOURS, seed), forward_s=0.45, shrink=4, iterations=16)
    else:
        job = replace(healthy(Setup.GPT2_70B, seed), tp=2, dp=4, pp=2, forward_s=0.03, iterations=16)
    injection = Injection.NIC_DOWN if kind is Kind.STOP else Injection.PCIE_DOWNGRADE
    severity = 1.0 if kind is Kind.STOP else 0.15
    fault = Fault(injection, rank=seed * 5 % (job.tp * job.dp), at_s=2.4, severity=severity)
    return replace(job, faults=(fault,), describe_layout=True, hang_s=1.5 * HANG_NS / 1e9)


@contextmanager
def deployed() -> Iterator[Deployment]:
    """The steps that look at NIC traffic, and the store."""
    with TemporaryDirectory(prefix="offbeat-bench-") as folder, deployment(Path(folder), SETTINGS, ROLES) as running:
        yield running


def measure(run: NicRun, settings: Settings, running: Deployment) -> list[Delay]:
    """Replay a run; the delay of each finding that names the rank that is at fault.

    Raises ``LocalServiceError`` where what was found is not stored in a minute.
    """
    kafka = running.reached_by(settings.kafka)
    ended_ns = run.job.ended_ns or 0
    before = [message for message in run.messages() if message.watermark_ns < ended_ns]
    after = [message for message in run.messages() if message.watermark_ns >= ended_ns]
    messages = [job_message(replace(run.job, ended_ns=None)), *before, job_message(run.job), *after]
    publisher = wiring.publisher(kafka, "agents")
    since_ns = time.time_ns()
    topics = (catalogue.TRAFFIC_METRICS, catalogue.FINDINGS)
    with (
        Follower(wiring.bus(kafka), topics[0].name, since_ns=since_ns) as segmented,
        Follower(wiring.bus(kafka), topics[1].name, since_ns=since_ns) as found,
        running.store() as store,
    ):
        watched = Watched(run, segmented, found, store)
        began_ns = time.time_ns() - (run.job.started_ns or 0)
        for message in messages:
            while (wait_s := (message.watermark_ns + began_ns - time.time_ns()) / 1e9) > 0:
                if not watched.look():
                    time.sleep(min(wait_s, _LOOK_EVERY_S))
            publisher.send(message)
            publisher.flush()
            watched.published(message)
        deadline = time.monotonic() + SETTLES_WITHIN_S
        while not watched.is_over:
            if time.monotonic() > deadline:
                raise LocalServiceError(f"{run.job.job}: not all is stored {SETTLES_WITHIN_S:g} s after its end")
            if not watched.look():
                time.sleep(_LOOK_EVERY_S)
    return list(watched.delays(began_ns))


@dataclass
class Watched:
    """What comes of a job, and when: by this machine's clock, which is the broker's as well."""

    run: NicRun
    segmented: Follower
    found: Follower
    store: Store
    polled_at: list[tuple[str, int, int]] = field(default_factory=list)
    segmented_at: list[tuple[str, int, int]] = field(default_factory=list)
    found_at: dict[str, tuple[dict[str, Any], int]] = field(default_factory=dict)
    stored_at: dict[str, int] = field(default_factory=dict)
    over: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the comparison has said its last, or what hangs, and all it said is stored."""
        told = self.over or (self.run.truth.hung and any(row["active"] for row, _ in self.found_at.values()))
        return told and self.stored_at.keys() >= self.found_at.keys()

    def published(self, message: Message) -> None:
        """Note up to when a host has told what its NICs sent; calls are told after epochs."""
        if message.topic == catalogue.OP_CALLS.name:
            self.polled_at.append((message.headers["host"], message.watermark_ns, time.time_ns()))

    def look(self) -> bool:
        """See what has come; whether anything had."""
        job, before = self.run.job.job, len(self.segmented_at) + len(self.found_at) + len(self.stored_at)
        for message in (one for one in self.segmented.poll() if one.job == job):
            self.segmented_at.append((message.headers["host"], message.watermark_ns, message.timestamp_ns))
        for message in (one for one in self.found.poll() if one.job == job):
            for row in decode(message, catalogue.FINDINGS).to_pylist():
                self.over |= bool(row["last"])
                self.found_at[row["id"]] = row, message.timestamp_ns
        if self.found_at.keys() - self.stored_at.keys():
            now_ns, asked = time.time_ns(), {"job": job}
            for row in self.store.query(_STORED, asked).to_pylist():
                self.stored_at.setdefault(row["id"], now_ns)
        return before < len(self.segmented_at) + len(self.found_at) + len(self.stored_at)

    def delays(self, began_ns: int) -> Iterator[Delay]:
        """The delays of what names the faulty rank; ``began_ns``: this machine's clock less the simulated one."""
        [fault] = self.run.truth.faults
        for key, (row, found_ns) in self.found_at.items():
            communicator = (row["root_operator"] or {}).get("communicator")
            if row["active"] and (self.run.truth.hung or communicator) and set(row["ranks"]) & set(fault.ranks):
                hung = self.run.truth.hung
                end_ns = self._timed_out() if hung else self._ended(row["iteration"], str(communicator))
                times = (*(self._passed(at, end_ns) for at in (self.polled_at, self.segmented_at)), found_ns)
                seconds = [(at_ns - end_ns - began_ns) / 1e9 for at_ns in (*times, self.stored_at[key])]
                yield Delay(*seconds)

    def _timed_out(self) -> int:
        """When the first operator of those that hang had been silent for the time-out, at the earliest: at the fault
        nothing of it, or of what went on, had been silent."""
        [fault] = self.run.truth.faults
        return fault.at_ns + HANG_NS

    def _ended(self, iteration: int, communicator: str) -> int:
        """When the last operator of a communicator in an iteration really ended, at the last rank."""
        operators = self.run.truth.operators
        own = pc.and_(pc.equal(operators["iteration"], iteration), pc.equal(operators["communicator"], communicator))
        return int(pc.max(operators.filter(own)["end_ns"]).as_py())

    @staticmethod
    def _passed(told: Sequence[tuple[str, int, int]], end_ns: int) -> int:
        """When every host had told of a moment: ``told`` are hosts, up to when they tell, and when they did."""
        first: dict[str, int] = {}
        for host, until_ns, at_ns in told:
            if until_ns >= end_ns:
                first.setdefault(host, at_ns)
        return max(first.values())
