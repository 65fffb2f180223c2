"""How many operators a run logs, told without writing its programs: those of a job that is too large never end."""

from __future__ import annotations

from producers.simulation.scenario import Scenario
from producers.simulation.schedule import BUCKET_PARAMETERS
from schemas.errors import SettingsError

MOST_OPERATORS = 10_000_000
"""Of a run whose logs are all expanded; a million take 0.4 GB."""


def require_extent(scenario: Scenario) -> None:
    """Raise ``SettingsError`` for a job whose logs are too many to be expanded all."""
    operators = most_operators(scenario)
    if operators > MOST_OPERATORS:
        each = -(-operators // (scenario.world * scenario.iterations))
        raise SettingsError(
            f"scenario: {scenario.world} ranks x {scenario.iterations} iterations x about {each} operators are more "
            f"than the {MOST_OPERATORS} that can be simulated whole; give smaller tp, pp, cp or dp, fewer "
            "iterations, microbatches or layers, or a smaller hidden (`offbeat bench localization` simulates thousands "
            "of ranks: it works out only the logs that are looked at)"
        )


def most_operators(scenario: Scenario) -> int:
    """The operators that all ranks call in a run, at most four a rank and iteration more than there are."""
    passes = scenario.layers * _of_layer(scenario) + _of_ends(scenario) + _between_stages(scenario)
    ranks_of_stage = scenario.world // scenario.pp
    return scenario.iterations * ranks_of_stage * (scenario.microbatches * passes + _finishing(scenario))


def _of_layer(scenario: Scenario) -> int:
    """Of a microbatch, forward and backward."""
    tensor = scenario.tp > 1
    # Before and behind what is parallel over tensor ranks, in both directions.
    around = tensor * (5 if scenario.sequence_parallel else 2)
    attention = around + 3 * (scenario.cp > 1)
    experts = 4 + 2 * (tensor and not scenario.fold_experts)
    return attention + (around if scenario.ep == 1 else experts)


def _of_ends(scenario: Scenario) -> int:
    """Of a microbatch: the embedding in the first stage, the loss in the last."""
    return (scenario.tp > 1) * (5 + scenario.sequence_parallel)


def _between_stages(scenario: Scenario) -> int:
    """Of a microbatch: what stages send each other and receive, and the 8-bit scales of each."""
    return 4 * (scenario.pp - 1) + 2 * scenario.pp * (scenario.cp > 1)


def _finishing(scenario: Scenario) -> int:
    """Of an iteration: gradients, the optimizer, parameters; a bucket that is not full in each stage."""
    layer = scenario.hidden**2 // scenario.tp
    embeddings = min(scenario.pp, 2) * (scenario.vocabulary * scenario.hidden // scenario.tp)
    dense = scenario.layers * (12 if scenario.ep == 1 else 4) * layer + embeddings
    buckets = 0
    if scenario.dp * scenario.cp > 1:
        buckets += dense // BUCKET_PARAMETERS + scenario.pp
    if scenario.ep > 1 and scenario.stage_shape[0] > 1:
        buckets += scenario.layers * 8 * layer // BUCKET_PARAMETERS + scenario.pp
    embedding = 2 * (scenario.pp > 1)
    norm = scenario.pp * (scenario.tp * scenario.pp > 1)
    return (1 + scenario.distributed_optimizer) * buckets + embedding + norm + (scenario.dp * scenario.cp > 1)
