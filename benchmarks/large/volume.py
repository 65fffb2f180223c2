"""How much all ranks of a job log: nobody works out thousands of logs to weigh them."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.telemetry_bytes import TelemetryBytes
from producers.log_agent import LogAgent
from producers.simulated_store import SimulatedStore
from producers.simulation import LazyLog

ITERATIONS = 2
"""Of each host in the sample so many iterations are weighed."""

_STAGES = 3
"""One host in the first, a middle and the last stage of the pipeline: embedding and loss log differently."""


def operators_an_iteration(log: LazyLog) -> int:
    """Operators that all ranks call in an iteration."""
    return sum(len(program.operators) for program in log.run.programs) * log.run.cluster.stage_ranks


@dataclass(frozen=True, slots=True)
class Volume:
    """Bytes of a run were all its logs published, summaries included; and those of all ranks' summaries alone."""

    everything: int
    summaries: int


def volume(log: LazyLog) -> Volume:
    """What a run comes to, told from a sample: of the logs by their operators, of the summaries by the ranks."""
    counted, operators, sampled = TelemetryBytes(), 0, _sampled(log)
    for host, ranks in sampled.items():
        agent = LogAgent(SimulatedStore(log, ranks), host, ranks)
        for _ in range(ITERATIONS):
            for message in agent.advance() or ():
                counted.process(message)
        operators += ITERATIONS * sum(_operators(log, rank) for rank in ranks)
    scenario, logs = log.run.scenario, ITERATIONS * sum(map(len, sampled.values()))
    pivots = counted.pivots * operators_an_iteration(log) * scenario.iterations / operators
    summaries = counted.summaries * scenario.world * scenario.iterations / logs
    return Volume(int(pivots + summaries), int(summaries))


def _sampled(log: LazyLog) -> dict[str, tuple[int, ...]]:
    """The ranks of a few hosts."""
    job, stages = log.run.job, log.run.scenario.pp
    chosen = {at * (stages - 1) // (_STAGES - 1) for at in range(_STAGES)}
    hosts = {job.place[stage * log.run.cluster.stage_ranks].host for stage in chosen}
    return {host: ranks for host, ranks in job.ranks_of_host.items() if host in hosts}


def _operators(log: LazyLog, rank: int) -> int:
    return len(log.run.programs[rank // log.run.cluster.stage_ranks].operators)
