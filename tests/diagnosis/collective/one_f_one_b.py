"""1F1B on machines that compute, and send and receive at once, as Megatron schedules it; times in milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from diagnosis.collective.participation import UNKNOWN
from diagnosis.collective.pipelines import Pipelines

FORWARD, BACKWARD, TRANSFER = 2.0, 4.0, 0.2

Transfer = tuple[int, int, str, int]
"""From one stage to another, forward or back, of which microbatch."""


@dataclass
class Step:
    """Compute, then send and receive together."""

    computes: float
    transfers: list[Transfer] = field(default_factory=list)


def schedule(stage: int, stages: int, microbatches: int) -> Iterator[Step]:
    """What one stage does."""
    warm_up = min(stages - 1 - stage, microbatches)
    first, last = stage == 0, stage == stages - 1

    def receive(n: int) -> list[Transfer]:
        return [] if first or n >= microbatches else [(stage - 1, stage, "F", n)]

    def send(n: int) -> list[Transfer]:
        return [] if last else [(stage, stage + 1, "F", n)]

    def get_back(n: int) -> list[Transfer]:
        return [] if last else [(stage + 1, stage, "B", n)]

    def give_back(n: int) -> list[Transfer]:
        return [] if first else [(stage, stage - 1, "B", n)]

    yield Step(0.0, receive(0))
    for n in range(warm_up):
        yield Step(FORWARD, send(n))
        yield Step(0.0, receive(n + 1))
    for n in range(microbatches - warm_up):
        yield Step(FORWARD, [*send(n + warm_up), *get_back(n)])
        more = n + 1 < microbatches - warm_up
        yield Step(BACKWARD, [*give_back(n), *(receive(n + 1 + warm_up) if more else [])])
    for n in range(microbatches - warm_up, microbatches):
        yield Step(0.0, get_back(n))
        yield Step(BACKWARD, give_back(n))


def replica(
    stages: int,
    microbatches: int,
    slower: Mapping[int, float],
    stops: tuple[int, int] | None = None,
    sends_ms: Mapping[int, float] | None = None,
) -> dict[int, list[tuple[int, float, float]]]:
    """Receiver, start and end of each stage's sends, in order; NaN of those that never start.

    ``slower``: how many times as long a stage computes; ``stops``: a stage, and the step that it does not compute;
    ``sends_ms``: what each send of a stage takes.
    """
    takes = dict.fromkeys(range(stages), TRANSFER) | dict(sends_ms or {})
    steps = [list(schedule(stage, stages, microbatches)) for stage in range(stages)]
    at, now = [0] * stages, [0.0] * stages
    ready: dict[tuple[int, int], float] = {}
    begins: dict[Transfer, float] = {}
    going = True
    while going:
        going = False
        for stage in range(stages):
            if at[stage] == len(steps[stage]) or stops == (stage, at[stage]):
                continue
            step, key = steps[stage][at[stage]], (stage, at[stage])
            if key not in ready:
                ready[key] = now[stage] + step.computes * slower.get(stage, 1.0)
                going = True
            ends = [ready[key]]
            for transfer in step.transfers:
                other = transfer[0] if transfer[0] != stage else transfer[1]
                there = (other, at[other])
                if transfer not in begins and there in ready and transfer in steps[other][at[other]].transfers:
                    begins[transfer] = max(ready[key], ready[there])
                ends.append(begins.get(transfer, np.inf) + takes[transfer[0]])
            if max(ends) < np.inf:
                at[stage], now[stage], going = at[stage] + 1, max(ends), True
    return {
        stage: [
            (transfer[1], begins.get(transfer, np.nan), begins.get(transfer, np.nan) + takes[stage])
            for step in steps[stage]
            for transfer in step.transfers
            if transfer[0] == stage
        ]
        for stage in range(stages)
    }


def pipelines(replicas: list[dict[int, list[tuple[int, float, float]]]], apart_ns: list[float]) -> Pipelines:
    """Replicas side by side; machines by stage, then by replica. ``apart_ns``: how far each stage's moment is off."""
    stages, width = len(replicas[0]), len(replicas)
    sends = max(len(own) for own in replicas[0].values())
    start, end = (np.full((stages * width, sends), np.nan) for _ in range(2))
    peer = np.full((stages * width, sends), UNKNOWN, dtype=np.int64)
    absent = np.ones((stages * width, sends), dtype=np.bool_)
    for stage in range(stages):
        for at, own in enumerate(replicas):
            for send, (to, begins, ends) in enumerate(own[stage]):
                machine = stage * width + at
                start[machine, send] = begins * 1e6 + apart_ns[stage]
                end[machine, send] = ends * 1e6 + apart_ns[stage]
                peer[machine, send] = UNKNOWN if np.isnan(begins) else to * width + at
                absent[machine, send] = np.isnan(begins)
    machines = np.arange(stages * width)
    nobody = np.full((stages * width, sends), UNKNOWN, dtype=np.int64)
    return Pipelines(
        host=tuple(f"h{machine}" for machine in machines),
        stage=machines // width,
        start=start,
        end=end,
        absent=absent,
        peer=peer,
        stuck=nobody,
        stuck_to=nobody,
        again_to=nobody,
        after=np.where(machines // width < stages - 1, machines + width, UNKNOWN),
        before=np.where(machines >= width, machines - width, UNKNOWN),
        shared=not any(apart_ns),
        coverage=1.0,
    )
