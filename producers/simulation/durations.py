"""What segments and transfers of one iteration take: mechanism, noise and faults, before anybody waits.

All arrays have an axis of worlds: the same iteration under other faults, with the same randomness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from producers.simulation import noise
from producers.simulation.cluster import (
    BASE_LATENCY_S,
    HOP_LATENCY_S,
    NIC_BYTES_PER_S,
    NVLINK_BYTES_PER_S,
    Cluster,
    Ints,
)
from producers.simulation.faults import Fault, Kind
from producers.simulation.noise import Draws, Floats, Purpose
from producers.simulation.scenario import Scenario
from producers.simulation.schedule import Program, Scope, longest_chain, programs

GROUP_AXIS = {Scope.TENSOR: -1, Scope.DATA: -2, Scope.EXPERT: -2}
"""Axis of (.., dp, tp) that a group within one stage extends over."""


@dataclass(frozen=True, slots=True)
class SlowDevice:
    """A fault whose device factor is known."""

    fault: Fault
    factor: float


World = tuple[SlowDevice, ...]
"""The faults that are present; empty: a healthy cluster."""


@dataclass(frozen=True, slots=True)
class StageDurations:
    """Seconds for one stage and iteration.

    ``segments`` (segments, worlds, dp, tp); ``transfers`` (operators, worlds, dp, tp), alike for all members of
    a group; ``gaps`` before each call and ``lags`` from the call to its start, both (operators, dp, tp).
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
        self.draws = Draws(scenario.seed)
        self.unit_s = scenario.compute_ms / 1e3 / longest_chain(self.programs, scenario.microbatches)
        self._stages = [_StageTable(self.cluster, program) for program in self.programs]
        profile = scenario.noise
        world, shape = scenario.world, self.cluster.grid.shape
        speeds = noise.gpu_speeds(self.draws, world, profile)
        series = noise.rank_series(self.draws, world, scenario.iterations, profile)
        common = noise.common_series(self.draws, scenario.iterations, scenario.compute_ms / 1e3, profile)
        self._compute_s = self.unit_s * (common[:, None] * speeds * series).reshape(-1, *shape)

    def iteration(self, iteration: int, worlds: Sequence[World]) -> list[StageDurations]:
        """Durations of each stage in one iteration, under each world's faults."""
        nic = self._seconds_a_byte(iteration, worlds)
        lengths = noise.microbatch_factors(
            self.draws, iteration, self.scenario.microbatches, self.scenario.dp, self.scenario.noise
        )
        return [self._stage(stage, iteration, worlds, nic, lengths) for stage in range(self.scenario.pp)]

    def _stage(
        self, stage: int, iteration: int, worlds: Sequence[World], nic: Floats, lengths: Floats
    ) -> StageDurations:
        table, program = self._stages[stage], self.programs[stage]
        scenario = self.scenario
        segment_noise = np.empty((len(program.segments), scenario.world // scenario.pp))
        operator_noise = np.empty((len(program.operators), scenario.world // scenario.pp))
        gaps, lags = np.empty_like(operator_noise), np.empty_like(operator_noise)
        kernels = np.full(len(program.segments), float(scenario.noise.kernels_per_segment))
        for i, rank in enumerate(self.cluster.grid[stage].ravel()):
            stream = self.draws.stream(Purpose.SEGMENTS, int(rank), iteration)
            segment_noise[:, i] = noise.factors(stream, kernels, scenario.noise)
            stream = self.draws.stream(Purpose.OPERATORS, int(rank), iteration)
            operator_noise[:, i] = noise.factors(stream, table.parts, scenario.noise)
            for column in (gaps, lags):
                column[:, i] = scenario.noise.host_lag_s * noise.lognormal(stream.standard_normal(len(column)), 0.5)
        shape = (scenario.dp, scenario.tp)
        compute = table.work[:, None, None] * segment_noise.reshape(-1, *shape) * self._compute_s[iteration, stage]
        compute *= table.imbalance(lengths, self._expert_load(stage, iteration))[:, :, None]
        segments = compute[:, None] * self._gpu_factors(stage, iteration, worlds)
        transfers = table.transfers(nic, operator_noise.reshape(-1, *shape))
        return StageDurations(segments, transfers, gaps.reshape(-1, *shape), lags.reshape(-1, *shape))

    def _expert_load(self, stage: int, iteration: int) -> Floats:
        scenario = self.scenario
        shape = (scenario.microbatches, scenario.layers_of_stage[stage], scenario.dp)
        if scenario.ep == 1:
            return np.ones(shape)
        return noise.expert_factors(self.draws, stage, iteration, shape, scenario.noise.routing_cv)

    def _gpu_factors(self, stage: int, iteration: int, worlds: Sequence[World]) -> Floats:
        """Slowness of compute; shape (segments, worlds, dp, tp)."""
        segments = self.programs[stage].segments
        factors = np.ones((len(segments), len(worlds), *self.cluster.grid.shape[1:]))
        for w, world in enumerate(worlds):
            for slow in world:
                at, dp, tp = np.argwhere(self.cluster.grid == slow.fault.rank)[0]
                if at == stage and iteration in slow.fault.iterations:
                    hit = np.array([slow.fault.slows(segment.phase) for segment in segments])
                    factors[hit, w, dp, tp] *= slow.factor
        return factors

    def _seconds_a_byte(self, iteration: int, worlds: Sequence[World]) -> Floats:
        """Time that a byte takes through each rank's NIC; shape (slots, worlds, pp, dp, tp).

        Slots are the microbatches and, last, what follows them.
        """
        scenario, cluster = self.scenario, self.cluster
        slots = scenario.microbatches + 1
        busy = noise.background_traffic(self.draws, iteration, slots, scenario.gpus_per_host, scenario.noise)
        faulty = np.ones((len(worlds), *cluster.grid.shape))
        for w, world in enumerate(worlds):
            for slow in world:
                if slow.fault.kind is Kind.NIC_SLOW and iteration in slow.fault.iterations:
                    faulty[w][cluster.grid == slow.fault.rank] *= slow.factor
        return np.asarray(busy[:, cluster.gpu][:, None] * faulty / NIC_BYTES_PER_S)


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
        self.shares: dict[Scope, Floats] = {
            scope: cluster.nic_share(scope) for scope in cluster.scopes if scope is not Scope.PIPELINE
        }
        part = cluster.scenario.noise.part_bytes
        self.parts = np.array([max(o.size / part, 1.0) for o in program.operators])
        self.bytes = np.array([o.size * _volume(o.op, cluster.size(o.scope)) for o in program.operators])
        self.latency = np.array([_latency(o.op, cluster.size(o.scope)) for o in program.operators])

    def imbalance(self, lengths: Floats, load: Floats) -> Floats:
        """Relative amount of work of each segment; shape (segments, dp)."""
        factors = np.ones((len(self.work), lengths.shape[1]))
        for i, segment in enumerate(self.program.segments):
            if segment.microbatch is not None:
                factors[i] = lengths[segment.microbatch]
                if segment.expert_layer is not None:
                    factors[i] *= load[segment.microbatch, segment.expert_layer]
        return factors

    def transfers(self, nic: Floats, noise_factors: Floats) -> Floats:
        """Seconds of every operator's transfer once all have entered; shape (operators, worlds, dp, tp).

        ``nic`` as ``_seconds_a_byte``; ``noise_factors`` (operators, dp, tp), of which the first member's count.
        """
        result = np.empty((len(self.slots), nic.shape[1], *nic.shape[3:]))
        for (scope, peer), hits in self.paths.items():
            per_byte = self._seconds_a_byte(scope, peer, nic)[self.slots[hits]]
            factors = _first_member(noise_factors[hits], scope)[:, None]
            seconds = self.latency[hits, None, None, None] + self.bytes[hits, None, None, None] * per_byte
            result[hits] = seconds * factors
        return result

    def _seconds_a_byte(self, scope: Scope, peer: int | None, nic: Floats) -> Floats:
        """Of the slowest part of the path that a byte of each rank's operator takes; (slots, worlds, dp, tp)."""
        stage = self.program.stage
        nvlink = 1 / NVLINK_BYTES_PER_S
        if peer is not None:
            local = self.cluster.same_host(stage, peer)
            return np.where(local, nvlink, np.maximum(nic[:, :, stage], nic[:, :, peer]))
        through = nic * self.shares[scope]
        if scope is Scope.EMBEDDING:
            slowest = np.maximum(through[:, :, 0], through[:, :, -1])
        elif scope is Scope.MODEL:
            slowest = through.max(axis=(2, 4), keepdims=True)[:, :, 0]
        else:
            slowest = through[:, :, stage].max(axis=GROUP_AXIS[scope], keepdims=True)
        return np.maximum(slowest, nvlink)


def _first_member(factors: Floats, scope: Scope) -> Floats:
    if scope is Scope.TENSOR:
        return factors[..., :1]
    if scope in {Scope.DATA, Scope.EXPERT}:
        return factors[..., :1, :]
    return factors[..., :1] if scope is Scope.MODEL else factors


def _volume(op: str, members: int) -> float:
    """Bytes through the busiest hop of a ring, relative to the full buffer."""
    around = (members - 1) / members
    if op == "all_reduce":
        return 2 * around
    return around if op in {"reduce_scatter", "all_gather", "all_to_all"} else 1.0


def _latency(op: str, members: int) -> float:
    if op in {"send", "recv"}:
        return BASE_LATENCY_S
    rounds = {"all_reduce": 2 * (members - 1), "all_to_all": 1}.get(op, members - 1)
    return BASE_LATENCY_S + HOP_LATENCY_S * rounds
