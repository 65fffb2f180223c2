"""Which parallelism a communicator serves, told by what is called on it (Pulse 5.2, figure 5).

Collectives serve data or tensor parallelism, sends serve pipelines or experts. Activations are synchronised at every
layer, gradients once an iteration, in few large operators; what is small gathers losses and the like and serves none.
Sends that go to one neighbour at a time, and come back, are a pipeline's; a mesh of them is the experts'.

The tree has no leaf for context parallelism: rings of sends that all begin together, and what is called at every layer
by ranks that share their gradients, and so their parameters, are ``unknown``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from diagnosis.traffic.calls import Calls
from diagnosis.traffic.uses import RankUses, Sends, Use, uses_of_ranks

Parallelism = Literal["dp", "tp", "pp", "ep", "none", "unknown"]


@dataclass(frozen=True, slots=True)
class ParallelismRules:
    """``small_bytes``: collectives with less serve no parallelism.

    ``every_pass``: what is called in more than this share of the intervals between sends is called in every pass, since
    about half of them hold one; gradients are synchronised in one of several. ``every_layer``: the same of intervals
    between exchanges of tokens, every other of which holds nothing but experts. Without either it is the share of
    spells, beside what has most of them, where that has ``alternates`` times as many as another. ``few_calls``: what
    is alone, and called no more often an iteration, is no layers'; ``rest``: nor is what rests for so much of an
    iteration at once, as gradients do in all passes but the last.

    ``mesh``: share of the other members that a group of sends reaches in a full mesh, and of groups that receive as
    well, since experts that nobody chooses get none.
    """

    small_bytes: int = 1 << 16
    every_pass: float = 0.4
    every_layer: float = 0.25
    alternates: float = 4.0
    few_calls: float = 8.0
    rest: float = 0.5
    mesh: float = 0.7


@dataclass(frozen=True, slots=True)
class Parallelisms:
    """The tree for a job: ranks of each communicator, and whether two ranks share a host."""

    members: Mapping[str, Sequence[int]]
    same_host: Callable[[int, int], bool]
    rules: ParallelismRules = ParallelismRules()

    def identify(self, calls: Calls) -> dict[str, Parallelism]:
        """What each communicator serves, by what most of the ranks that call show.

        ``calls``: all of those ranks, of an iteration at least; one host's ranks show the same as all do.
        """
        votes: dict[str, Counter[Parallelism]] = {}
        for own in uses_of_ranks(calls, self.members, self.rules.small_bytes).values():
            for name, leaf in self._of_rank(own).items():
                votes.setdefault(name, Counter())[leaf] += 1
        return {name: leaves.most_common(1)[0][0] for name, leaves in votes.items()}

    def _of_rank(self, own: RankUses) -> dict[str, Parallelism]:
        leaves: dict[str, Parallelism] = {}
        collectives: list[Use] = []
        for use in own.uses:
            if use.sends is not None:
                leaves[use.communicator] = self._of_sends(use.sends, len(self.members.get(use.communicator, ())))
            elif use.exchanged_bytes > use.large_bytes:
                leaves[use.communicator] = "ep"
            elif not use.calls:
                leaves[use.communicator] = "none"
            else:
                collectives.append(use)
        return leaves | self._of_collectives(collectives, own, "ep" in leaves.values())

    def _of_sends(self, sends: Sends, members: int) -> Parallelism:
        others = members - 1
        mutual = sends.two_way >= self.rules.mesh * sends.sending > 0
        uneven = sends.to_self or sends.sizes > 2
        # between two ranks a ring reaches all others as well
        if mutual and sends.reach >= self.rules.mesh * others * sends.sending and (others > 1 or uneven):
            return "ep"
        neighbours = sends.sent_to == sends.received_from and 0 < len(sends.sent_to) <= 2
        # stages send before anything can come back; in a ring all send and receive together
        return "pp" if neighbours and not sends.to_self and sends.two_way < sends.groups else "unknown"

    def _of_collectives(self, uses: Sequence[Use], own: RankUses, experts: bool) -> dict[str, Parallelism]:
        at_layers = self._at_every_layer(uses, own, experts)
        gradients = [use for use in uses if use not in at_layers]
        shared = [set(self._members(use)) for use in gradients]
        leaves: dict[str, Parallelism] = {use.communicator: "dp" for use in gradients}
        # ranks with the same gradients hold the same parameters, which tensor parallelism splits
        split = [use for use in at_layers if not any(set(self._members(use)) <= ranks for ranks in shared)]
        busiest = max(split, key=lambda use: use.calls, default=None)
        return leaves | {use.communicator: "tp" if use is busiest else "unknown" for use in at_layers}

    def _at_every_layer(self, uses: Sequence[Use], own: RankUses, experts: bool) -> list[Use]:
        rules = self.rules
        if own.between:
            share = rules.every_layer if experts else rules.every_pass
            return [use for use in uses if use.intervals > share * own.between]
        if len(uses) == 1:
            return [] if self._alone_of_gradients(uses[0], own) else list(uses)
        most, least = (pick((use.spells for use in uses), default=0) for pick in (max, min))
        if most >= rules.alternates * least:
            return [use for use in uses if use.spells > rules.every_layer * most]
        return [use for use in uses if not any(self._are_gradients(use, other) for other in uses if other is not use)]

    def _alone_of_gradients(self, use: Use, own: RankUses) -> bool:
        """Whether the one family of collectives of a rank synchronises gradients; also where it does so at every layer,
        as sharded parameters are, which no tensor parallelism does between hosts without any other."""
        few = max(use.large.values()) <= self.rules.few_calls * own.turns
        rests = use.longest_pause_ns * own.turns > self.rules.rest * own.span_ns
        return few or rests or not self._one_host(use)

    def _are_gradients(self, use: Use, other: Use) -> bool:
        """Whether the first of two is the one of gradients: fewer calls, and larger ones. Where these disagree, ranks
        with the same gradients include those with the same activations; tensor parallelism stays on a host; else size
        decides."""
        fewer, larger = use.calls < other.calls, use.large_bytes * other.calls > other.large_bytes * use.calls
        ranks, others = set(self._members(use)), set(self._members(other))
        if fewer == larger:
            return larger
        if ranks < others or others < ranks:
            return others < ranks
        return self._one_host(other) if self._one_host(use) != self._one_host(other) else larger

    def _members(self, use: Use) -> Sequence[int]:
        return self.members.get(use.communicator, ())

    def _one_host(self, use: Use) -> bool:
        ranks = self._members(use)
        return all(self.same_host(ranks[0], rank) for rank in ranks[1:])
