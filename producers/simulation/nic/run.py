"""A run down to its NICs: executed once, then told as agents tell it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from diagnosis.job import Job
from producers.simulation.nic.clocks import Clocks
from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.execution import Execution
from producers.simulation.nic.lines import Lines
from producers.simulation.nic.names import Names, QueuePairs
from producers.simulation.nic.operator_log import operator_log
from producers.simulation.nic.proxies import Proxies, Service
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.telemetry import Telemetry
from producers.simulation.nic.traffic import Traffic
from producers.simulation.nic.training import programs_of
from producers.simulation.nic.transport import Transport
from producers.simulation.nic.truth import NicTruth, truth_of
from schemas.catalogue import TOPICS
from schemas.message import Message, decode
from schemas.topic import Topic


@dataclass(frozen=True)
class NicRun:
    """An executed run: the job's description, what its agents tell, and, apart, the truth.

    ``operators`` is the same run as a log of operators tells it, rows of telemetry.comm_ops of all ranks.
    """

    scenario: NicScenario
    job: Job
    truth: NicTruth
    telemetry: Telemetry
    operators: pa.Table

    def messages(self) -> Iterator[Message]:
        """Encoded records of telemetry.nic_epochs, op_calls and queue_pairs of all hosts, in the order of polls."""
        return self.telemetry.messages()

    def recorded(self) -> Iterator[tuple[str, pa.Table]]:
        """What each host tells on each of the three topics, rows and their ``host``, with the name of its file."""
        told: dict[tuple[str, Topic], list[pa.RecordBatch]] = {}
        for message in self.messages():
            topic = TOPICS[message.topic]
            told.setdefault((message.headers["host"], topic), []).append(decode(message, topic))
        for (host, topic), batches in sorted(told.items(), key=lambda one: (one[0][0], one[0][1].name)):
            rows = pa.Table.from_batches(batches).unify_dictionaries()
            name = f"{host}.{topic.name.rpartition('.')[2]}"
            yield name, rows.append_column("host", pa.array([host] * len(rows), pa.string()))


def simulate_nics(scenario: NicScenario) -> NicRun:
    """Execute a scenario."""
    seed, hardware = scenario.seed, scenario.hardware
    programs = programs_of(scenario)
    plan = programs.wiring.plan()
    usual = Service(stall_share=scenario.noise.proxy_stalls)
    proxies = Proxies(scenario.world, hardware.proxy_s, stream(seed, Purpose.PROXIES), usual)
    phase = stream(seed, Purpose.PHASE).integers(hardware.epoch_steps, size=scenario.world)
    transport = Transport(plan, hardware, scenario.world, proxies, phase, stream(seed, Purpose.LOSS))
    lines = Lines(scenario, plan, transport.capacity)
    execution = Execution(scenario, programs.of, plan, transport, lines, proxies)
    execution.run()
    lines.advance(execution.end_s)
    names = Names(scenario)
    pairs = QueuePairs(scenario, plan)
    traffic = Traffic(scenario, transport, pairs, lines.bursts, phase)
    clocks = Clocks(scenario, names.started_ns)
    ended_ns = None if execution.hung else names.started_ns + int(np.ceil(execution.end_s * 1e9))
    return NicRun(
        scenario,
        names.job(programs.communicators, ended_ns),
        truth_of(scenario, programs.of, plan, transport, execution, names),
        Telemetry(scenario, programs, execution, traffic, names, pairs, clocks),
        operator_log(scenario, programs, execution, names, clocks),
    )
