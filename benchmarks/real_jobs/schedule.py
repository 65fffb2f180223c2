"""What a rank does in an iteration, step by step: microbatches forward and backward (1F1B), then gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.real_jobs.plan import Plan


@dataclass(frozen=True, slots=True)
class Compute:
    """Computing, in a phase."""

    phase: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of the rank's communicator of a kind; ``elements``: of its full buffer.

    ``posted``: it goes on beside what follows, until ``Await``.
    """

    kind: str
    op: str
    elements: int
    phase: str
    microbatch: int = -1
    posted: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A microbatch's activations, or their gradients, to or from another stage."""

    peer: int
    phase: str
    microbatch: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """A send and a receive, posted at once and waited for together; with ``late_waits`` the send until ``Await``."""

    send: Message | None
    receive: Message | None


@dataclass(frozen=True, slots=True)
class Await:
    """All that goes on beside is waited for."""


Step = Compute | Collective | Exchange | Await


def iteration(plan: Plan, rank: int) -> Iterator[Step]:
    """One iteration of a rank; every one is alike."""
    yield Compute("input", plan.forward_s / 10)
    yield from _Stage(plan, rank).steps()
    yield Await()
    if not plan.overlapped and not plan.sharded and plan.dp > 1:
        for _ in range(plan.buckets):
            yield Collective("data", "all_reduce", plan.gradient, "gradient")
    if plan.tp * plan.pp > 1:
        yield Collective("replica", "all_reduce", 1, "other")
    yield Compute("other", plan.forward_s / 2)


class _Stage:
    """A rank's part of the pipeline."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan = plan
        tensor, data, self._stage = plan.place(rank)
        self._before, self._after = (
            plan.rank(tensor, data, stage) if 0 <= stage < plan.pp else None
            for stage in (self._stage - 1, self._stage + 1)
        )

    def steps(self) -> Iterator[Step]:
        """All microbatches, forward and backward."""
        count = self._plan.microbatches
        ahead = min(self._plan.pp - 1 - self._stage, count)
        for microbatch in range(ahead):
            yield from self._exchange(receive=self._input(microbatch))
            yield from self._forward(microbatch)
            yield from self._exchange(send=self._output(microbatch))
        if ahead < count:
            yield from self._exchange(receive=self._input(ahead))
        for microbatch in range(count - ahead):
            newest = microbatch + ahead
            yield from self._forward(newest)
            yield from self._exchange(self._output(newest), self._output_gradient(microbatch))
            yield from self._backward(microbatch)
            following = self._input(newest + 1) if newest + 1 < count else None
            yield from self._exchange(self._input_gradient(microbatch), following)
        for microbatch in range(count - ahead, count):
            yield from self._exchange(receive=self._output_gradient(microbatch))
            yield from self._backward(microbatch)
            yield from self._exchange(send=self._input_gradient(microbatch))

    def _forward(self, microbatch: int) -> Iterator[Step]:
        for _ in range(self._plan.layers):
            yield from self._sharded("all_gather", "forward", microbatch)
            yield Compute("forward", self._plan.forward_s)
            yield from self._reduced("forward", microbatch)
            yield from self._routed("forward", microbatch)

    def _backward(self, microbatch: int) -> Iterator[Step]:
        for _ in range(self._plan.layers):
            yield from self._sharded("all_gather", "backward", microbatch)
            yield from self._routed("backward", microbatch)
            yield Compute("backward", 2 * self._plan.forward_s)
            yield from self._reduced("backward", microbatch)
            yield from self._sharded("reduce_scatter", "backward", microbatch)
            if self._plan.overlapped and microbatch == self._plan.microbatches - 1:
                yield Collective("data", "all_reduce", self._plan.gradient, "gradient", posted=True)

    def _reduced(self, phase: str, microbatch: int) -> Iterator[Step]:
        if self._plan.tp > 1:
            yield Collective("tensor", "all_reduce", self._plan.activation, phase, microbatch)

    def _sharded(self, op: str, phase: str, microbatch: int) -> Iterator[Step]:
        if self._plan.sharded:
            yield Collective("data", op, _shared(self._plan.gradient, self._plan.dp), phase, microbatch)

    def _routed(self, phase: str, microbatch: int) -> Iterator[Step]:
        if self._plan.experts:
            routed = Collective("data", "all_to_all", _shared(self._plan.activation, self._plan.dp), phase, microbatch)
            yield routed
            yield Compute(phase, self._plan.forward_s / 3)
            yield routed

    def _exchange(self, send: Message | None = None, receive: Message | None = None) -> Iterator[Step]:
        if send or receive:
            yield Exchange(send, receive)

    def _input(self, microbatch: int) -> Message | None:
        return None if self._before is None else Message(self._before, "forward", microbatch)

    def _input_gradient(self, microbatch: int) -> Message | None:
        return None if self._before is None else Message(self._before, "backward", microbatch)

    def _output(self, microbatch: int) -> Message | None:
        return None if self._after is None else Message(self._after, "forward", microbatch)

    def _output_gradient(self, microbatch: int) -> Message | None:
        return None if self._after is None else Message(self._after, "backward", microbatch)


def _shared(elements: int, ranks: int) -> int:
    """The elements that all ranks can hold equal shares of."""
    return elements // ranks * ranks
