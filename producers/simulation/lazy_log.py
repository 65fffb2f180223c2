"""The log that ranks of a lazily expanded job write, rank by rank and iteration by iteration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from producers.simulation.cluster import Ints
from producers.simulation.lazy import LazyRun, Recent
from producers.simulation.logged import SCOPES, Clocks, Lines, OperatorFacts, batch, ring_gap
from producers.simulation.noise import Purpose
from producers.simulation.schedule import Scope
from schemas import comm_ops

Bools = npt.NDArray[np.bool_]

_NONE = -1
_SEND, _RECV = comm_ops.OPS.index("send"), comm_ops.OPS.index("recv")

_KEPT_LOST_BYTES = 750e6
"""Of which lines were lost: a search asks for a rank's iteration once a communicator, and where ends are not logged for
most ranks': five iterations of 8,192 are 0.6 GB.
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of a rank's rows: those of a communicator, if given, within bounds of ``seq`` (included).

    ``next_calls``: where no ends are logged they tell when the rank went on.
    """

    communicator: str | None = None
    seq_from: int | None = None
    seq_to: int | None = None
    next_calls: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """One iteration of a rank's log on its host's clock; -1: not known."""

    start_ns: int
    end_ns: int
    lost: int


class LazyLog:
    """What the ranks' logs hold. Iterations are numbered by their agents even where rows do not carry them."""

    def __init__(self, run: LazyRun) -> None:
        self.run = run
        self.clocks = Clocks.of(run.cluster)
        self._facts = [OperatorFacts.of(program) for program in run.programs]
        self._lost: Recent[Bools] = Recent(_KEPT_LOST_BYTES, lambda lost: lost.nbytes)

    def rows(
        self, ranks: Iterable[int], iterations: Sequence[int], wanted: Wanted = Wanted(), *, most: int | None = None
    ) -> tuple[pa.Table, Set[int]]:
        """Rows of telemetry.comm_ops by rank, iteration and call order, and the ranks of which some were lost.

        Once there are more than ``most`` rows, nothing that follows is worked out.
        """
        lacking: set[int] = set()
        count = 0
        of_stage: dict[int, list[Lines]] = {}
        for rank in sorted(ranks):
            of_rank = []
            for iteration in iterations:
                if most is not None and count > most:
                    break
                lines, complete = self._lines(rank, iteration, wanted)
                if not complete:
                    lacking.add(rank)
                count += len(lines.rank)
                of_rank += [lines] if len(lines.rank) else []
            if of_rank and wanted.next_calls and self.run.scenario.omissions.ends:
                of_rank = self._with_next_calls(rank, iterations, of_rank)
            of_stage.setdefault(rank // self.run.cluster.stage_ranks, []).extend(of_rank)
        schema = comm_ops.TOPIC.schema
        batches = [
            batch(self.run.cluster, self._facts[stage], _joined(lines)) for stage, lines in of_stage.items() if lines
        ]
        return pa.Table.from_batches(batches, schema).unify_dictionaries().combine_chunks(), lacking

    def span(self, rank: int, iteration: int) -> Span:
        """When a rank began and ended an iteration, as its log tells.

        It ends with the first call of the next; where a lost line hides either, its end is not known.
        """
        lost = self.lost(rank, iteration)
        if lost.all():
            return Span(-1, -1, len(lost))
        last = iteration == self.run.scenario.iterations - 1
        first = self.run.operators(rank, iteration, np.argmin(lost, keepdims=True))
        start = self._shown(rank, int(first[0, 0]))
        end = -1
        if last:
            if not (self.run.scenario.omissions.ends or lost.any()):
                end = self._shown(rank, int(self.run.operators(rank, iteration)[:, 2].max()))
        elif not (lost[0] or self.lost(rank, iteration + 1)[0]):
            following = self.run.operators(rank, iteration + 1, np.array([0]))
            end = self._shown(rank, int(following[0, 0]))
        return Span(start, end, int(lost.sum()))

    def latest_ns(self, ranks: Iterable[int], iteration: int) -> int:
        """The latest time that the ranks' clocks show by the end of an iteration."""
        chosen = np.array(sorted(ranks), dtype=np.int64)
        ended = self.run.began_ns(iteration + 1)[:, 0].ravel()[chosen]
        return int(self.clocks.read(chosen, ended).max(initial=0))

    def lost(self, rank: int, iteration: int) -> Bools:
        """Which operators of a rank's iteration its log does not hold; (operators,)."""
        return self._lost.get((rank, iteration), lambda: self._drawn_lost(rank, iteration))

    def _drawn_lost(self, rank: int, iteration: int) -> Bools:
        profile, draws = self.run.scenario.noise, self.run.climate.draws
        operators = len(self._facts[rank // self.run.cluster.stage_ranks].op)
        lost = draws.at(Purpose.LOSS, rank, iteration + 1).random(operators) < profile.lost_share
        gap_rank, first, last = self._gap
        if rank == gap_rank:
            a_rank = operators * self.run.scenario.iterations
            ordinal = iteration * operators + np.arange(operators)
            lost |= (ordinal >= int(first * a_rank)) & (ordinal < int(last * a_rank))
        lost.setflags(write=False)
        return lost

    @cached_property
    def _gap(self) -> tuple[int, float, float]:
        scenario = self.run.scenario
        return ring_gap(self.run.climate.draws, scenario.world, scenario.noise.ring_gap_probability)

    def _lines(self, rank: int, iteration: int, wanted: Wanted) -> tuple[Lines, bool]:
        stage = rank // self.run.cluster.stage_ranks
        facts = self._facts[stage]
        asked = self._asked(rank, iteration, facts, wanted)
        lost = self.lost(rank, iteration)
        operator = np.flatnonzero(asked & ~lost)
        times = self._times(rank, iteration, operator)
        who = np.full(len(operator), rank)
        call, start, end = (self.clocks.read(who, times[:, m]) for m in range(3))
        lines = Lines(
            rank=who,
            iteration=np.full(len(operator), iteration),
            operator=operator,
            call_order=iteration * len(facts.op) + operator,
            position=facts.seq[operator],
            call_ns=call,
            start_ns=start,
            end_ns=end,
        )
        return lines, not (asked & lost).any()

    def _with_next_calls(self, rank: int, iterations: Sequence[int], of_rank: Sequence[Lines]) -> list[Lines]:
        """Lines of a rank with when it went on, as all its lines of the iterations tell."""
        facts = self._facts[rank // self.run.cluster.stage_ranks]
        kept = {i: np.flatnonzero(~self.lost(rank, i)) for i in iterations}
        lengths = [len(one) for one in kept.values()]
        first = dict(zip(iterations, (np.cumsum(lengths) - lengths).tolist(), strict=True))
        iteration, operator = np.repeat(iterations, lengths), np.concatenate([*kept.values()])
        asked = [(int(lines.iteration[0]), lines.operator) for lines in of_rank]
        at = np.concatenate([first[i] + np.searchsorted(kept[i], operators) for i, operators in asked])
        telling = _next_lines(at, iteration, facts.op[operator], facts.peer_stage[operator])
        used, of_line = np.unique(telling, return_inverse=True)
        called = np.full(len(used), _NONE, dtype=np.int64)
        for i in iterations:
            own = (used != _NONE) & (iteration[used] == i)
            elapsed = self._times(rank, i, operator[used[own]])[:, 0]
            called[own] = self.clocks.read(np.full(len(elapsed), rank), elapsed)
        parts = np.split(called[of_line], np.cumsum([len(operators) for _, operators in asked])[:-1])
        return [replace(lines, next_ns=next_ns) for lines, next_ns in zip(of_rank, parts, strict=True)]

    def _asked(self, rank: int, iteration: int, facts: OperatorFacts, wanted: Wanted) -> Bools:
        asked = np.ones(len(facts.op), dtype=np.bool_)
        if wanted.communicator is not None:
            scope, members = self._communicators.get(wanted.communicator, (None, frozenset()))
            if scope is None or rank not in members:
                return np.zeros_like(asked)
            asked &= facts.scope == SCOPES.index(scope)
        seq = iteration * facts.calls + facts.seq
        if wanted.seq_from is not None:
            asked &= seq >= wanted.seq_from
        if wanted.seq_to is not None:
            asked &= seq <= wanted.seq_to
        return asked

    @cached_property
    def _communicators(self) -> dict[str, tuple[Scope, frozenset[int]]]:
        cluster = self.run.cluster
        return {
            name: (scope, frozenset(group.tolist()))
            for scope in cluster.scopes
            for name, group in zip(cluster.communicator_names[scope], cluster.groups(scope), strict=True)
        }

    def _times(self, rank: int, iteration: int, operator: Ints) -> Ints:
        """When some operators were called, started and ended; (operators, 3)."""
        if not len(operator):
            return np.zeros((0, 3), dtype=np.int64)
        return self.run.operators(rank, iteration, operator)

    def _shown(self, rank: int, elapsed_ns: int) -> int:
        return int(self.clocks.read(np.array([rank]), np.array([elapsed_ns]))[0])


def _next_lines(at: Ints, iteration: Ints, op: Ints, peer: Ints) -> Ints:
    """Of some of a rank's lines the line whose call tells when the rank went on; shape of ``at``, their places.

    That is the next one of all lines, unless an iteration is missing between them. A send and the receive from the same
    peer are posted at once and waited for together, so of the send it is the one after the receive.
    Agents say the same by code of their own, since what tests them shares none with them.
    """
    following = _after(at, iteration)
    paired = (following != _NONE) & (op[at] == _SEND) & (op[following] == _RECV) & (peer[at] == peer[following])
    following[paired] = _after(following[paired], iteration)
    return following


def _after(at: Ints, iteration: Ints) -> Ints:
    """The places that follow, where nothing is missing before them."""
    following = np.minimum(at + 1, len(iteration) - 1)
    goes_on = (following > at) & (iteration[following] - iteration[at] <= 1)
    return np.where(goes_on, following, _NONE)


def _joined(lines: Sequence[Lines]) -> Lines:
    columns = {field.name: [getattr(one, field.name) for one in lines] for field in fields(Lines)}
    return Lines(**{name: np.concatenate(parts) for name, parts in columns.items() if parts[0] is not None})
