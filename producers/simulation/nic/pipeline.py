"""1F1B without interleaving, as Megatron-LM orders it: what each stage of a pipeline computes, sends and receives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from producers.simulation.nic.programs import Compute, Programs
from producers.simulation.nic.wiring import Side

BACKWARD = 2.0
"""Times as long as a forward pass."""


class Pipeline:
    """One pipeline in one iteration; ``lengths`` is how much longer each microbatch takes than on average."""

    def __init__(
        self, programs: Programs, communicator: str, ranks: Sequence[int], iteration: int, lengths: Sequence[float]
    ) -> None:
        self.programs, self.communicator, self.ranks = programs, communicator, ranks
        self.iteration, self.lengths = iteration, lengths
        self.microbatches = len(lengths)
        self._sides: dict[tuple[int, int], list[tuple[Side, Side]]] = {}
        size = programs.scenario.activation_bytes
        for one, other in pairwise(ranks):
            for source, destination in ((one, other), (other, one)):
                self._sides[source, destination] = [
                    programs.wiring.transfer(communicator, size, source, destination) for _ in lengths
                ]

    def lay_out(self) -> None:
        """Append the iteration to the programs of all stages."""
        for stage in range(len(self.ranks)):
            _Stage(self, stage).lay_out()

    def sending(self, source: int, destination: int, microbatch: int) -> Side:
        """What the source of a transfer does."""
        return self._sides[source, destination][microbatch][0]

    def receiving(self, source: int, destination: int, microbatch: int) -> Side:
        """What its destination does."""
        return self._sides[source, destination][microbatch][1]


class _Stage:
    """A stage's part: some microbatches forward ahead of the others, then one forward and one backward in turn."""

    def __init__(self, pipeline: Pipeline, stage: int) -> None:
        self._pipeline, self._stage = pipeline, stage
        self._rank = pipeline.ranks[stage]
        self._before = pipeline.ranks[stage - 1] if stage else None
        self._after = pipeline.ranks[stage + 1] if stage + 1 < len(pipeline.ranks) else None
        self._done: Counter[str] = Counter()

    def lay_out(self) -> None:
        """Append the stage's iteration to its rank's program."""
        ahead = min(len(self._pipeline.ranks) - 1 - self._stage, self._pipeline.microbatches)
        steady = self._pipeline.microbatches - ahead
        for _ in range(ahead):
            self._talk("receive forward")
            self._compute("forward")
            self._talk("send forward")
        if steady:
            self._talk("receive forward")
        for turn in range(steady):
            self._compute("forward")
            self._talk("send forward", "receive backward")
            self._compute("backward")
            self._talk("send backward", *(["receive forward"] if turn < steady - 1 else []))
        for _ in range(ahead):
            self._talk("receive backward")
            self._compute("backward")
            self._talk("send backward")

    def _talk(self, *whats: str) -> None:
        """Send to and receive from neighbours in one group, as far as there are any."""
        parts = []
        size = self._pipeline.programs.scenario.activation_bytes
        for what in whats:
            sends = what.startswith("send")
            peer = self._after if what in {"send forward", "receive backward"} else self._before
            if peer is None:
                continue
            microbatch = self._done[what]
            self._done[what] += 1
            side = (
                self._pipeline.sending(self._rank, peer, microbatch)
                if sends
                else self._pipeline.receiving(peer, self._rank, microbatch)
            )
            parts.append(("send" if sends else "recv", peer, size, side))
        self._pipeline.programs.group(self._rank, self._pipeline.communicator, parts, self._pipeline.iteration)

    def _compute(self, direction: str) -> None:
        """The next microbatch's pass in a direction; each layer has two collectives of tensor parallelism a pass."""
        programs, iteration = self._pipeline.programs, self._pipeline.iteration
        times = BACKWARD if direction == "backward" else 1.0
        length = float(self._pipeline.lengths[self._done[direction]])
        self._done[direction] += 1
        layers = programs.scenario.layers
        calls, head = (
            round(2 * times) * layers,
            0.0 if self._after is not None else programs.scenario.head_layers / layers,
        )
        seconds = programs.scenario.forward_s * (1.0 + head) * times * length
        seconds = programs.compute.segment(self._rank, iteration, seconds, calls)
        programs.add_compute(self._rank, Compute(seconds, iteration, calls))
