"""Layouts of jobs, dense and with experts, up to 512 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product
from math import prod

from producers.simulation import Scenario

WORLDS = (8, 16, 64, 256, 512)
TENSOR, CONTEXT, PIPELINE = (1, 2, 4, 8), (1, 2, 4), (1, 2, 4, 8)
LAYERS_OF_STAGE = (1, 2, 3, 8)
MODELS = ((2048, 2048), (4096, 4096), (8192, 4096), (5120, 8192))
"""Width of the model, and length of its sequences."""

MOST_EXPERTS = 32
"""Ranks that share experts: each exchange is twice as many calls of each of them."""


def layouts(seed: int, most: int | None = None) -> list[Scenario]:
    """Every layout of tensor, context and pipeline parallelism that a world has room for, the rest data parallel.

    Models, layers, microbatches, how gradients and activations are synchronised, and whether there are experts, take
    turns. ``most``: so many of them, spread evenly.
    """
    found = [replace(layout, seed=seed + at) for at, layout in enumerate(_all())]
    step = 1.0 if most is None else max(len(found) / most, 1.0)
    return [found[int(at * step)] for at in range(min(len(found), most or len(found)))]


def _all() -> Iterator[Scenario]:
    turns = zip(
        cycle(LAYERS_OF_STAGE),
        cycle((False, False, True, True, True)),
        cycle((True, True, False)),
        cycle(MODELS + MODELS[:3]),
        cycle((False, False, True)),
        cycle((1, 2)),
        strict=False,
    )
    for world, tp, cp, pp in product(WORLDS, TENSOR, CONTEXT, PIPELINE):
        dp, rest = divmod(world, tp * cp * pp)
        if rest or not dp:
            continue
        layers, sequence_parallel, sharded, (hidden, sequence), experts, rounds = next(turns)
        dense = Scenario(
            seed=0,
            tp=tp,
            cp=cp,
            dp=dp,
            pp=pp,
            layers=layers * pp,
            hidden=hidden,
            sequence_length=sequence,
            microbatches=_microbatches(pp, layers, rounds),
            sequence_parallel=sequence_parallel,
            distributed_optimizer=sharded,
            iterations=3,
            compute_ms=400.0,
        )
        yield _with_experts(dense) if experts else dense


def _with_experts(dense: Scenario) -> Scenario:
    """Over tensor and data ranks alike where that is a few; else over data ranks; else none."""
    layers = min(dense.layers, 2 * dense.pp)
    few = replace(dense, layers=layers, microbatches=_microbatches(dense.pp, layers // dense.pp, 1), iterations=2)
    folded = dense.tp * dense.cp * min(dense.dp, 2)
    if dense.tp * dense.cp < folded <= MOST_EXPERTS:
        return replace(few, ep=folded, fold_experts=True)
    return replace(few, ep=dense.dp) if 1 < dense.dp <= MOST_EXPERTS else dense


def _microbatches(pp: int, layers: int, rounds: int) -> int:
    """A pipeline is filled once or twice. A single layer has several microbatches: without either nothing would come
    more often than gradients do."""
    return max(pp if layers >= LAYERS_OF_STAGE[-1] else pp * rounds, 2 if layers == 1 else 1)


def shown(scenario: Scenario) -> str:
    """A layout in short."""
    degrees = [f"{name}={getattr(scenario, name)}" for name in ("tp", "cp", "dp", "pp", "ep")]
    assert scenario.world == prod(getattr(scenario, name) for name in ("tp", "cp", "dp", "pp"))
    return " ".join([*degrees, f"layers={scenario.layers}", f"microbatches={scenario.microbatches}"])
