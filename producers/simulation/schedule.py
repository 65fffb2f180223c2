"""What each pipeline stage does in an iteration: a program of compute segments and communication operators.

The operators of a pass are those of Megatron-LM: with sequence parallelism all-gathers and reduce-scatters in the
tensor group, else all-reduces; with context parallelism keys and values gathered in the context group, and after
each pass the 8-bit scales reduced over both groups together. The order of microbatches is Megatron-LM's 1F1B
without interleaving: each stage fills the pipeline with as many forward passes as stages follow it, then alternates
one forward and one backward pass, then drains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from producers.simulation.scenario import Scenario

FORWARD, BACKWARD, GRADIENT, OTHER = "forward", "backward", "gradient", "other"

ATTENTION_SHARE = 1 / 3
EMBEDDING_WORK = 0.05
OPTIMIZER_WORK = 0.4
DATA_LOADING_WORK = 0.1
BACKWARD_WORK = 2.0
BUCKET_PARAMETERS = 80_000_000
EXPERTS_A_TOKEN = 2
SCALED_TENSORS = 18
"""8-bit tensors of a layer: inputs, weights and gradients of its matrix products, each with a scale."""


class Scope(StrEnum):
    """Group of ranks that an operator spans."""

    TENSOR = "tensor"
    DATA = "data"
    EXPERT = "expert"
    PIPELINE = "pipeline"
    EMBEDDING = "embedding"
    MODEL = "model"
    CONTEXT = "context"
    BLOCK = "block"
    """The tensor and context ranks of one replica of a stage."""
    EXPERT_DATA = "expert_data"
    """The ranks of a stage that hold the same experts."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One communication operator of a stage; ``size`` in bytes of the full buffer.

    ``ordinal`` counts the operators that meet each other: for a send or recv those of the same two stages and
    direction, else those of the same scope in the stage.
    """

    op: str
    scope: Scope
    size: int
    dtype: str
    phase: str
    microbatch: int | None
    ordinal: int
    peer_stage: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """Compute between two operators; ``work`` in forward passes of one layer.

    ``by_host``: as fast as the CPU, too, lets it be.
    """

    work: float
    phase: str
    microbatch: int | None = None
    expert_layer: int | None = None
    by_host: bool = False


@dataclass(frozen=True, slots=True)
class Compute:
    """Step: run a segment."""

    segment: int


@dataclass(frozen=True, slots=True)
class Communicate:
    """Step: call operators (indices) together, go on when all have ended."""

    operators: tuple[int, ...]


@dataclass
class Program:
    """What the ranks of one of ``stages`` stages do in every iteration."""

    stage: int
    stages: int
    steps: list[Compute | Communicate] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def compute(self, work: float, phase: str, microbatch: int | None = None, expert_layer: int | None = None) -> None:
        """Append a segment."""
        self.steps.append(Compute(len(self.segments)))
        self.segments.append(Segment(work, phase, microbatch, expert_layer))

    def load(self) -> None:
        """Append the loading of an iteration's data."""
        self.steps.append(Compute(len(self.segments)))
        self.segments.append(Segment(DATA_LOADING_WORK, OTHER, by_host=True))

    def communicate(self, *operators: Operator) -> None:
        """Append operators that are called together; none at all is no step."""
        if operators:
            first = len(self.operators)
            self.steps.append(Communicate(tuple(range(first, first + len(operators)))))
            self.operators.extend(operators)


def programs(scenario: Scenario) -> list[Program]:
    """The program of each stage."""
    return [program(scenario, stage) for stage in range(scenario.pp)]


def program(scenario: Scenario, stage: int) -> Program:
    """The program of one stage."""
    return _Writer(scenario, stage).write()


def head_work(scenario: Scenario) -> float:
    """The vocabulary projection in forward passes of one layer, by multiplications."""
    return scenario.vocabulary / (12 * scenario.hidden + 2 * scenario.sequence_length)


def work_of_passes(stages: list[Program]) -> list[float]:
    """Work of one microbatch, forward and backward, on a rank of each stage."""
    return [sum(s.work for s in program.segments if s.microbatch == 0) for program in stages]


def longest_chain(stages: list[Program], microbatches: int) -> float:
    """Work that no rank of a noiseless iteration can avoid waiting for.

    It is one microbatch through all stages, and the others through the heaviest one.
    """
    passes = work_of_passes(stages)
    return sum(passes) + (microbatches - 1) * max(passes) + OPTIMIZER_WORK + DATA_LOADING_WORK


def _buckets(parameters: int) -> list[int]:
    count = -(-parameters // BUCKET_PARAMETERS)
    return [parameters // count] * count if count else []


class _Writer:
    """Writes the program of one stage."""

    def __init__(self, scenario: Scenario, stage: int) -> None:
        self.scenario = scenario
        self.stage = stage
        self.first = stage == 0
        self.last = stage == scenario.pp - 1
        self.layers = scenario.layers_of_stage[stage]
        self.program = Program(stage, scenario.pp)
        self.tokens = scenario.sequence_length * scenario.micro_batch_size // scenario.cp
        self.activation = self.tokens * scenario.hidden * 2
        self.calls = dict.fromkeys(Scope, 0)

    def write(self) -> Program:
        """The whole iteration."""
        self.program.load()
        self._one_forward_one_backward()
        self._finish()
        return self.program

    def _one_forward_one_backward(self) -> None:
        count = self.scenario.microbatches
        warm_up = min(self.scenario.pp - self.stage - 1, count)
        steady = count - warm_up
        for i in range(warm_up):
            self.program.communicate(*self._receive(FORWARD, i))
            self._forward(i)
            self.program.communicate(*self._send(FORWARD, i))
        if steady:
            self.program.communicate(*self._receive(FORWARD, warm_up))
        for i in range(steady):
            self._forward(warm_up + i)
            self.program.communicate(*self._send(FORWARD, warm_up + i), *self._receive(BACKWARD, i))
            self._backward(i)
            following = self._receive(FORWARD, warm_up + i + 1) if i + 1 < steady else []
            self.program.communicate(*self._send(BACKWARD, i), *following)
        for i in range(steady, count):
            self.program.communicate(*self._receive(BACKWARD, i))
            self._backward(i)
            self.program.communicate(*self._send(BACKWARD, i))

    def _forward(self, microbatch: int) -> None:
        if self.first:
            self._tensor("broadcast", self.tokens * 8, FORWARD, microbatch, "int64")
            self.program.compute(EMBEDDING_WORK, FORWARD, microbatch)
            self._close(FORWARD, microbatch)
        for layer in range(self.layers):
            self._open(FORWARD, microbatch)
            self._attention(1.0, FORWARD, microbatch)
            self._close(FORWARD, microbatch)
            self._feed_forward(1.0, FORWARD, microbatch, layer)
        if self.last:
            self.program.compute(head_work(self.scenario), FORWARD, microbatch)
            for _ in ("maximum", "sum"):  # of the vocabulary-parallel cross-entropy
                self._tensor("all_reduce", self.tokens * 4, FORWARD, microbatch, "float32")
        self._scales(FORWARD, microbatch)

    def _backward(self, microbatch: int) -> None:
        if self.last:
            self.program.compute(BACKWARD_WORK * head_work(self.scenario), BACKWARD, microbatch)
            self._tensor("all_reduce", self.activation, BACKWARD, microbatch)
        for layer in reversed(range(self.layers)):
            self._feed_forward(BACKWARD_WORK, BACKWARD, microbatch, layer)
            self._open(BACKWARD, microbatch)
            self._attention(BACKWARD_WORK, BACKWARD, microbatch)
            self._close(BACKWARD, microbatch)
        if self.first:
            self._open(BACKWARD, microbatch)
            self.program.compute(BACKWARD_WORK * EMBEDDING_WORK, BACKWARD, microbatch)
        self._scales(BACKWARD, microbatch)

    def _attention(self, work: float, phase: str, microbatch: int) -> None:
        share = ATTENTION_SHARE * work
        if self.scenario.cp == 1:
            self.program.compute(share, phase, microbatch)
            return
        keys_and_values = 2 * self.activation // self.scenario.tp
        self.program.compute(share / 2, phase, microbatch)
        self._collective("all_gather", Scope.CONTEXT, keys_and_values, phase, microbatch, "bfloat16")
        self.program.compute(share / 2, phase, microbatch)
        if phase == BACKWARD:
            self._collective("reduce_scatter", Scope.CONTEXT, keys_and_values, phase, microbatch, "bfloat16")

    def _feed_forward(self, work: float, phase: str, microbatch: int, layer: int) -> None:
        share = (1 - ATTENTION_SHARE) * work
        if self.scenario.ep == 1:
            self._open(phase, microbatch)
            self.program.compute(share, phase, microbatch)
            self._close(phase, microbatch)
            return
        routed = EXPERTS_A_TOKEN * self.activation // self.scenario.tp
        self._collective("all_to_all", Scope.EXPERT, routed, phase, microbatch, "bfloat16")
        self.program.compute(share, phase, microbatch, layer)
        self._collective("all_to_all", Scope.EXPERT, routed, phase, microbatch, "bfloat16")
        if not self.scenario.fold_experts:
            self._tensor("all_reduce", self.activation, phase, microbatch)

    def _open(self, phase: str, microbatch: int) -> None:
        """Gather the sequence before a column-parallel layer; going back, the gradient of the row-parallel one."""
        if self.scenario.sequence_parallel:
            self._tensor("all_gather", self.activation, phase, microbatch)

    def _close(self, phase: str, microbatch: int) -> None:
        """Reduce behind a row-parallel layer; going back, behind the column-parallel one, its input gathered again."""
        if not self.scenario.sequence_parallel:
            self._tensor("all_reduce", self.activation, phase, microbatch)
            return
        if phase == BACKWARD:
            self._tensor("all_gather", self.activation, phase, microbatch)
        self._tensor("reduce_scatter", self.activation, phase, microbatch)

    def _scales(self, phase: str, microbatch: int) -> None:
        """Reduce the largest magnitudes of all 8-bit tensors of a pass."""
        if self.scenario.cp > 1:
            size = 4 * SCALED_TENSORS * self.layers
            self._collective("all_reduce", Scope.BLOCK, size, phase, microbatch, "float32")

    def _finish(self) -> None:
        """Exchange gradients, step the optimizer, gather parameters."""
        scenario = self.scenario
        exchanged = self._exchanged()
        reduction = "reduce_scatter" if scenario.distributed_optimizer else "all_reduce"
        for scope, parameters in exchanged:
            self._collective(reduction, scope, parameters * 4, GRADIENT, None, "float32")
        if scenario.pp > 1 and (self.first or self.last):
            self._collective("all_reduce", Scope.EMBEDDING, self._embedding() * 4, GRADIENT, None, "float32")
        if scenario.tp * scenario.pp > 1:
            self._collective("all_reduce", Scope.MODEL, 4, OTHER, None, "float32")
        self.program.compute(OPTIMIZER_WORK, OTHER)
        for scope, parameters in exchanged if scenario.distributed_optimizer else ():
            self._collective("all_gather", scope, parameters * 2, GRADIENT, None, "bfloat16")
        if self.last and scenario.dp * scenario.cp > 1:
            self._collective("all_reduce", Scope.DATA, 4, OTHER, None, "float32")

    def _embedding(self) -> int:
        return self.scenario.vocabulary * self.scenario.hidden // self.scenario.tp

    def _exchanged(self) -> list[tuple[Scope, int]]:
        """Gradient buckets of one rank: over whom each is exchanged, and its parameters.

        Experts are exchanged by those that hold the same ones, where there are any.
        """
        scenario = self.scenario
        layer = scenario.hidden**2 // scenario.tp
        dense = self.layers * (12 if scenario.ep == 1 else 4) * layer + self._embedding() * (self.first or self.last)
        buckets = [(Scope.DATA, size) for size in _buckets(dense)] if scenario.dp * scenario.cp > 1 else []
        if scenario.ep > 1 and scenario.stage_shape[0] > 1:
            buckets += [(Scope.EXPERT_DATA, size) for size in _buckets(self.layers * 8 * layer)]
        return buckets

    def _tensor(self, op: str, size: int, phase: str, microbatch: int, dtype: str = "bfloat16") -> None:
        if self.scenario.tp > 1:
            self._collective(op, Scope.TENSOR, size, phase, microbatch, dtype)

    def _collective(self, op: str, scope: Scope, size: int, phase: str, microbatch: int | None, dtype: str) -> None:
        self.program.communicate(Operator(op, scope, size, dtype, phase, microbatch, self.calls[scope]))
        self.calls[scope] += 1

    def _receive(self, phase: str, microbatch: int) -> list[Operator]:
        return self._point_to_point("recv", self.stage + (-1 if phase == FORWARD else 1), phase, microbatch)

    def _send(self, phase: str, microbatch: int) -> list[Operator]:
        return self._point_to_point("send", self.stage + (1 if phase == FORWARD else -1), phase, microbatch)

    def _point_to_point(self, op: str, peer: int, phase: str, microbatch: int) -> list[Operator]:
        """Activations or their gradients; between two stages one direction carries nothing else."""
        if not 0 <= peer < self.scenario.pp:
            return []
        size = self.activation // self.scenario.tp if self.scenario.sequence_parallel else self.activation
        return [Operator(op, Scope.PIPELINE, size, "bfloat16", phase, microbatch, microbatch, peer)]
