"""What segments and transfers of one iteration take: mechanism, noise and faults, before anybody waits.

All arrays have an axis of worlds: the same iteration under other faults, with the same randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from producers.simulation import noise
from producers.simulation.cluster import Cluster, Ints
from producers.simulation.faults import Fault, Kind
from producers.simulation.network import Network, Rates, World
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.scenario import Scenario
from producers.simulation.schedule import Operator, Program, Scope, longest_chain, programs

BASE_LATENCY_S = 15e-6
HOP_LATENCY_S = 4e-6


@dataclass(frozen=True, slots=True)
class StageDurations:
    """Times for one stage and iteration, with axes (segments or operators, worlds, ranks of the stage).

    ``transfers`` are alike for all members of a group; ``gaps`` come before each call, ``lags`` between the call and
    its start.
    """

    segments: Floats
    transfers: Floats
    gaps: Floats
    lags: Floats


class Durations:
    """Durations of every iteration of a scenario, each computed when it is asked for."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = Cluster(scenario)
        self.programs = programs(scenario)
        self.draws = Draws(scenario.seed, scenario.age_days)
        self.network = Network(self.cluster, self.draws)
        self.unit_s = unit_s(scenario, self.programs)
        self._stages = [_StageTable(self.cluster, program) for program in self.programs]
        self._compute_s = compute_s(self.cluster, self.draws, self.unit_s)

    def iteration(self, iteration: int, worlds: Sequence[World]) -> list[StageDurations]:
        """Durations of each stage in one iteration, under each world's faults."""
        rates = self.network.rates(iteration, worlds)
        lengths = noise.microbatch_factors(
            self.draws, iteration, self.scenario.microbatches, self.scenario.dp, self.scenario.noise
        )
        return [self._stage(stage, iteration, worlds, rates, lengths) for stage in range(self.scenario.pp)]

    def _stage(
        self, stage: int, iteration: int, worlds: Sequence[World], rates: Rates, lengths: Floats
    ) -> StageDurations:
        table, program = self._stages[stage], self.programs[stage]
        scenario, ranks = self.scenario, self.cluster.grid[stage]
        segment_noise = np.empty((len(program.segments), len(ranks)))
        operator_noise = np.empty((len(program.operators), len(ranks)))
        gaps, lags = np.empty_like(operator_noise), np.empty_like(operator_noise)
        kernels = np.full(len(program.segments), float(scenario.noise.kernels_per_segment))
        for i, rank in enumerate(ranks):
            stream = self.draws.at(Purpose.SEGMENTS, int(rank), iteration)
            segment_noise[:, i] = noise.factors(stream, kernels, scenario.noise)
            stream = self.draws.at(Purpose.OPERATORS, int(rank), iteration)
            operator_noise[:, i] = noise.factors(stream, table.parts, scenario.noise)
            for column in (gaps, lags):
                column[:, i] = scenario.noise.host_lag_s * noise.lognormal(stream.standard_normal(len(column)), 0.5)
        compute = table.work[:, None] * segment_noise * self._compute_s[iteration, stage]
        compute *= table.imbalance(lengths, self._expert_load(stage, iteration))
        slow = [Slowness.of(self.cluster, stage, iteration, world) for world in worlds]
        hosts = np.stack([s.launching for s in slow])
        return StageDurations(
            compute[:, None] * self._slow_segments(program, slow),
            table.transfers(rates, operator_noise),
            gaps[:, None] * hosts,
            lags[:, None] * hosts,
        )

    def _slow_segments(self, program: Program, slow: Sequence[Slowness]) -> Floats:
        """Slowness of compute; shape (segments, worlds, ranks of a stage)."""
        launching = np.stack([s.launching for s in slow])
        by_phase = {segment.phase: np.stack([s.computing(segment.phase) for s in slow]) for segment in program.segments}
        return np.stack([by_phase[s.phase] * (launching if s.by_host else 1.0) for s in program.segments])

    def _expert_load(self, stage: int, iteration: int) -> Floats:
        """Relative load of each rank's experts; shape (microbatches, layers, ranks of a stage)."""
        scenario = self.scenario
        layers = (scenario.microbatches, scenario.layers_of_stage[stage])
        if scenario.ep == 1:
            return np.ones((*layers, 1))
        stream = self.draws.at(Purpose.ROUTING, stage, iteration)
        experts = self.cluster.stage_ranks if scenario.fold_experts else scenario.dp
        load = noise.expert_factors(stream, (*layers, experts // scenario.ep, scenario.ep), scenario.noise.routing_cv)
        return np.repeat(load.reshape(*layers, experts), self.cluster.stage_ranks // experts, axis=-1)


@dataclass(frozen=True, slots=True)
class Slowness:
    """How slowly the ranks of one stage compute and launch under one world's faults; arrays (ranks of a stage,)."""

    faults: tuple[tuple[Fault, float, int], ...]
    launching: Floats

    @classmethod
    def of(cls, cluster: Cluster, stage: int, iteration: int, world: World) -> Slowness:
        """Of a stage in an iteration."""
        ranks = cluster.grid[stage]
        launching = np.ones(len(ranks))
        gpus = []
        for slow in world:
            fault = slow.fault
            if iteration not in fault.iterations:
                continue
            if fault.kind is Kind.CPU_SLOW:
                host = fault.rank // cluster.scenario.gpus_per_host
                launching[cluster.host[stage] == host] *= slow.factor
            elif fault.kind is Kind.GPU_SLOW and ranks[0] <= fault.rank <= ranks[-1]:
                gpus.append((fault, slow.factor, fault.rank - int(ranks[0])))
        return cls(tuple(gpus), launching)

    def computing(self, phase: str) -> Floats:
        """In a phase."""
        factors = np.ones(len(self.launching))
        for fault, factor, at in self.faults:
            if fault.slows(phase):
                factors[at] *= factor
        return factors


def unit_s(scenario: Scenario, stages: list[Program]) -> float:
    """Seconds of a forward pass of one layer, without noise."""
    return scenario.compute_ms / 1e3 / longest_chain(stages, scenario.microbatches)


def compute_s(cluster: Cluster, draws: Draws, unit: float) -> Floats:
    """Seconds that each rank takes for a unit of work; shape (iterations, pp, ranks of a stage)."""
    scenario = cluster.scenario
    profile, world = scenario.noise, scenario.world
    speeds = noise.gpu_speeds(draws, world, profile)
    series = noise.rank_series(draws, world, scenario.iterations, profile)
    common = noise.common_series(draws, scenario.iterations, scenario.compute_ms / 1e3, profile)
    return np.asarray(unit * (common[:, None] * speeds * series).reshape(-1, *cluster.grid.shape))


def volume(operator: Operator, members: int) -> float:
    """Bytes of an operator through the busiest hop of a ring."""
    around = (members - 1) / members
    if operator.op == "all_reduce":
        return operator.size * (2 * around)
    return operator.size * (around if operator.op in {"reduce_scatter", "all_gather", "all_to_all"} else 1.0)


def latency_s(operator: Operator, members: int) -> float:
    """Seconds of an operator that carries next to nothing."""
    if operator.op in {"send", "recv"}:
        return BASE_LATENCY_S
    rounds = {"all_reduce": 2 * (members - 1), "all_to_all": 1}.get(operator.op, members - 1)
    return BASE_LATENCY_S + HOP_LATENCY_S * rounds


class _StageTable:
    """What is the same in every iteration of one stage."""

    def __init__(self, cluster: Cluster, program: Program) -> None:
        self.cluster = cluster
        self.program = program
        self.work = np.array([s.work for s in program.segments])
        microbatches = cluster.scenario.microbatches
        self.slots = np.array([microbatches if o.microbatch is None else o.microbatch for o in program.operators])
        self.paths: dict[tuple[Scope, int | None], Ints] = {}
        for path in sorted({(o.scope, o.peer_stage) for o in program.operators}, key=str):
            hits = [i for i, o in enumerate(program.operators) if (o.scope, o.peer_stage) == path]
            self.paths[path] = np.array(hits)
        size = {scope: cluster.size(scope) for scope in cluster.scopes}
        part = cluster.scenario.noise.part_bytes
        self.parts = np.array([max(o.size / part, 1.0) for o in program.operators])
        self.bytes = np.array([volume(o, size[o.scope]) for o in program.operators])
        self.latency = np.array([latency_s(o, size[o.scope]) for o in program.operators])

    def imbalance(self, lengths: Floats, load: Floats) -> Floats:
        """Relative amount of work of each segment; shape (segments, ranks of a stage)."""
        a_length = self.cluster.stage_ranks // lengths.shape[1]
        factors = np.ones((len(self.work), self.cluster.stage_ranks))
        for i, segment in enumerate(self.program.segments):
            if segment.microbatch is not None:
                factors[i] = np.repeat(lengths[segment.microbatch], a_length)
                if segment.expert_layer is not None:
                    factors[i] *= load[segment.microbatch, segment.expert_layer]
        return factors

    def transfers(self, rates: Rates, noise_factors: Floats) -> Floats:
        """Seconds of every operator's transfer once all have entered; shape (operators, worlds, ranks of a stage).

        Of ``noise_factors`` (operators, ranks of a stage) the first member's count.
        """
        result = np.empty((len(self.slots), rates.port.shape[1], self.cluster.stage_ranks))
        stage = self.program.stage
        for (scope, peer), hits in self.paths.items():
            per_byte = rates.of_group(scope)[:, :, stage] if peer is None else rates.of_pair(stage, peer)
            factors = self.cluster.of_first(noise_factors[hits], scope)[:, None]
            of_slot = per_byte[rates.state[self.slots[hits]]]
            result[hits] = (self.latency[hits, None, None] + self.bytes[hits, None, None] * of_slot) * factors
        return result
