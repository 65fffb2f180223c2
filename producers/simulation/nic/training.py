"""Schedules: a dense model in a pipeline, a mixture of experts, and collectives on their own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.programs import Compute, Programs
from producers.simulation.nic.scenario import NicScenario, Workload
from producers.simulation.nic.wiring import Side
from producers.simulation.noise import Floats, lognormal

_BACKWARD = 2.0
"""Times as long as a forward pass."""

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
            _pipeline(programs, iteration)
            programs.gradients(iteration, sharded=True)
        else:
            _alone(programs, iteration)
    return programs


def _pipeline(programs: Programs, iteration: int) -> None:
    """1F1B without interleaving."""
    s = programs.scenario
    sequences = programs.compute.sequences(iteration)
    for replica in range(s.dp):
        for column in range(s.tp):
            members = [(stage * s.dp + replica) * s.tp + column for stage in range(s.pp)]
            _one_pipeline(programs, f"pipeline{replica}.{column}", members, iteration, sequences[:, replica])


def _one_pipeline(programs: Programs, communicator: str, members: list[int], iteration: int, sequences: Floats) -> None:
    """``sequences``: how much longer each microbatch takes."""
    s = programs.scenario
    size = s.activation_bytes
    forward: list[list[tuple[Side, Side]]] = []
    backward: list[list[tuple[Side, Side]]] = []
    for one, other in pairwise(members):
        pairs = [
            programs.transfers(communicator, {(one, other): size, (other, one): size}) for _ in range(s.microbatches)
        ]
        forward.append([sides[one, other] for sides in pairs])
        backward.append([sides[other, one] for sides in pairs])
    last = len(members) - 1
    for stage, rank in enumerate(members):
        done = dict.fromkeys(("send forward", "recv forward", "send backward", "recv backward", "work", "work back"), 0)

        def talk(*whats: str, stage: int = stage, rank: int = rank, done: dict[str, int] = done) -> None:
            parts = []
            for what in whats:
                op, _, direction = what.partition(" ")
                up = (op == "send") == (direction == "forward")
                if stage == (last if up else 0):
                    continue
                sides = forward if direction == "forward" else backward
                side = sides[stage if up else stage - 1][done[what]][0 if op == "send" else 1]
                parts.append((op, members[stage + (1 if up else -1)], size, side))
                done[what] += 1
            programs.group(rank, communicator, parts, iteration)

        def work(what: str, rank: int = rank, done: dict[str, int] = done) -> None:
            back = what == "work back"
            seconds = s.forward_s * (_BACKWARD if back else 1.0) * float(sequences[done[what]])
            calls = s.layers * (4 if back else 2)
            programs.add_compute(
                rank, Compute(programs.compute.segment(rank, iteration, seconds, calls), iteration, calls)
            )
            done[what] += 1

        warm_up = min(last - stage, s.microbatches)
        for _ in range(warm_up):
            talk("recv forward")
            work("work")
            talk("send forward")
        steady = s.microbatches - warm_up
        if steady:
            talk("recv forward")
        for i in range(steady):
            work("work")
            talk("send forward", "recv backward")
            work("work back")
            talk("send backward", *(["recv forward"] if i < steady - 1 else []))
        for _ in range(warm_up):
            talk("recv backward")
            work("work back")
            talk("send backward")


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
        share /= share.sum(axis=1, keepdims=True)
        each = share * lognormal(chance.standard_normal((s.tp, s.hosts, s.hosts)), cv / 4)
        return each * s.token_bytes, share.sum(axis=0)


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
            _work(programs, iteration, each * _EXPERTS_SHARE * _BACKWARD, tokens)
            _to_experts(programs, sizes.transpose(0, 2, 1), iteration)
            _work(programs, iteration, each * (1 - _EXPERTS_SHARE) * _BACKWARD, length)


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
