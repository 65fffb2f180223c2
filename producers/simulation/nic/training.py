"""Schedules: a dense model in a pipeline, a mixture of experts, and collectives on their own."""

from __future__ import annotations

from itertools import product

import numpy as np

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.pipeline import BACKWARD, Pipeline
from producers.simulation.nic.programs import Compute, Programs
from producers.simulation.nic.scenario import NicScenario, Workload
from producers.simulation.noise import Floats, lognormal

_EXPERTS_SHARE = 0.6
"""Of a layer's compute."""

_ALONE_PARTS = 8
"""Of the compute between two collectives on their own."""


def programs_of(scenario: NicScenario) -> Programs:
    """The programs of all ranks of a scenario."""
    programs = Programs(scenario)
    routing = Routing(scenario) if scenario.workload is Workload.EXPERTS else None
    for iteration in range(scenario.iterations):
        if routing is not None:
            _mixture(programs, routing, iteration)
            programs.gradients(iteration, sharded=False)
        elif scenario.workload is Workload.DENSE:
            _pipelines(programs, iteration)
            programs.gradients(iteration, sharded=True)
        else:
            _alone(programs, iteration)
    return programs


def _pipelines(programs: Programs, iteration: int) -> None:
    s = programs.scenario
    lengths = programs.compute.sequences(iteration)
    for replica in range(s.dp):
        for column in range(s.tp):
            ranks = [(stage * s.dp + replica) * s.tp + column for stage in range(s.pp)]
            Pipeline(programs, f"pipeline{replica}.{column}", ranks, iteration, lengths[:, replica].tolist()).lay_out()


class Routing:
    """Bytes that go from rank to rank in a dispatch: each host holds some experts, and some are chosen more often."""

    def __init__(self, scenario: NicScenario) -> None:
        self._scenario = scenario
        chance = stream(scenario.seed, Purpose.ROUTING)
        shape = (scenario.layers, scenario.hosts)
        self._popular = lognormal(chance.standard_normal(shape), scenario.noise.routing_cv)

    def dispatch(self, iteration: int, layer: int, microbatch: int) -> tuple[Floats, Floats]:
        """Bytes (columns, hosts, hosts) from each rank to each, and tokens (hosts,) relative to an even share."""
        s = self._scenario
        chance = stream(s.seed, Purpose.ROUTING, layer + 1, iteration * s.microbatches + microbatch)
        cv = s.noise.routing_cv
        share = self._popular[layer] * lognormal(chance.standard_normal((s.hosts, s.hosts)), cv)
        if s.hot is not None and iteration >= s.hot.iteration:
            share[:, s.hot.host] *= s.hot.times
        share /= share.sum(axis=1, keepdims=True)
        each = share * lognormal(chance.standard_normal((s.tp, s.hosts, s.hosts)), cv / 4)
        return each * s.token_bytes, share.sum(axis=0)

    def tokens(self, iteration: int) -> Floats:
        """Tokens that each host gets in an iteration, relative to an even share; shape (hosts,)."""
        s = self._scenario
        batches = product(range(s.layers), range(s.microbatches))
        got = [self.dispatch(iteration, layer, microbatch)[1] for layer, microbatch in batches]
        return np.asarray(np.mean(got, axis=0))


def _mixture(programs: Programs, routing: Routing, iteration: int) -> None:
    """Attention, tokens dispatched to experts, experts, results combined; and all of it backwards."""
    s = programs.scenario
    each = s.forward_s / s.layers
    sequences = programs.compute.sequences(iteration)
    for microbatch in range(s.microbatches):
        length = sequences[microbatch]
        routes = [routing.dispatch(iteration, layer, microbatch) for layer in range(s.layers)]
        for sizes, tokens in routes:
            _work(programs, iteration, each * (1 - _EXPERTS_SHARE), length, synced=True)
            _to_experts(programs, sizes, iteration)
            _work(programs, iteration, each * _EXPERTS_SHARE, tokens)
            _to_experts(programs, sizes.transpose(0, 2, 1), iteration)
        for sizes, tokens in reversed(routes):
            _to_experts(programs, sizes, iteration)
            _work(programs, iteration, each * _EXPERTS_SHARE * BACKWARD, tokens)
            _to_experts(programs, sizes.transpose(0, 2, 1), iteration)
            _work(programs, iteration, each * (1 - _EXPERTS_SHARE) * BACKWARD, length)


def _work(programs: Programs, iteration: int, seconds: float, load: Floats, synced: bool = False) -> None:
    """All ranks compute, on each host by its load (hosts,)."""
    s = programs.scenario
    for rank in range(s.world):
        took = programs.compute.segment(rank, iteration, seconds * float(load[s.host_of(rank)]))
        programs.add_compute(rank, Compute(took, iteration, tensor_calls=1, launching=0.3, synced=synced))


def _to_experts(programs: Programs, sizes: Floats, iteration: int) -> None:
    whole = (sizes // 512 * 512).astype(np.int64)
    for column in range(programs.scenario.tp):
        members = programs.communicators[f"exchange{column}"]
        pairs = {
            (source, destination): int(whole[column, i, j])
            for i, source in enumerate(members)
            for j, destination in enumerate(members)
            if i != j
        }
        programs.exchange(f"exchange{column}", pairs, iteration)


def _alone(programs: Programs, iteration: int) -> None:
    """A custom collective after a little compute."""
    s = programs.scenario
    for rank in range(s.world):
        programs.add_compute(
            rank, Compute(programs.compute.segment(rank, iteration, s.forward_s, _ALONE_PARTS), iteration)
        )
    size = s.scaled(s.message_bytes)
    for column in range(s.tp):
        members = programs.communicators[f"exchange{column}"]
        pairs = [(a, b) for a in range(s.dp) for b in range(s.dp) if a != b and _meet(s.workload, a, b)]
        programs.exchange(f"exchange{column}", {(members[a], members[b]): size for a, b in pairs}, iteration)


def _meet(workload: Workload, source: int, destination: int) -> bool:
    """Whether one member sends to another; neighbours sit in rows of two."""
    if workload is Workload.ALL_TO_ONE:
        return destination == 0
    if workload is Workload.ONE_TO_ALL:
        return source == 0
    return destination == source ^ 1 or abs(destination - source) == 2
