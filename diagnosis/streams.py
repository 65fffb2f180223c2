"""The streams of all ranks of a log that names no communicators, and what runs on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from diagnosis.arrays import Bools, Floats, Ints
from diagnosis.columns import codes, integers, sizes
from diagnosis.communicator_use import CommunicatorUse, communicator_uses
from diagnosis.iterations import looks
from diagnosis.rank_distance import Calls

SCALARS = 4096
"""More elements than this are gradients."""


_REGULAR = 0.25
"""Operators in fewer iterations are done now and then."""

_APART = 0.05
"""Streams with so many more operators an iteration do something else; fewer lines than that are lost."""


@dataclass(frozen=True)
class Streams:
    """The streams of all ranks: those of one rank together, in the order in which it first used them.

    ``rank``, ``paired`` (sends and receives only), ``alone`` (its numbers stand still: one rank), ``look`` (a
    number for what runs on it in an iteration), ``usual_calls`` (operators an iteration) and ``load`` (elements an
    iteration) have an entry a stream.
    """

    ranks: tuple[int, ...]
    names: list[str]
    rank: Ints
    paired: Bools
    alone: Bools
    look: Ints
    usual_calls: Floats
    load: Ints
    use: Mapping[int, CommunicatorUse]
    _began: Ints
    _numbered: Bools
    _rows: Mapping[int, Ints]
    _columns: Mapping[str, Ints]

    @classmethod
    def of(cls, table: pa.Table) -> Streams:
        stream, names = codes(table, "communicator")
        op, ops = codes(table, "op")
        rank, iteration, call = (integers(table, name) for name in ("rank", "iteration", "call_ns"))
        order = np.argsort(stream, kind="stable")
        heads = np.flatnonzero(np.diff(stream[order], prepend=-1))
        rows = dict.fromkeys(range(len(names)), order[:0])
        rows |= {int(stream[part[0]]): part for part in np.split(order, heads[1:]) if len(part)}
        of_rank = np.full(len(names), -1)
        of_rank[stream] = rank
        between = np.isin(op, [code for code, name in enumerate(ops) if name in ("send", "recv")])
        seq = integers(table, "seq")
        numbered = np.bincount(stream[seq >= 0], minlength=len(names)) > 0
        size = sizes(table)
        look = looks(op, op, size, integers(table, "peer"))
        following = np.append(np.where(np.diff(rank) == 0, call[1:], -1), -1)
        columns = {
            "key": (iteration * (int(integers(table, "position").max(initial=0)) + 1) + integers(table, "position")),
            "iteration": iteration,
            "call_ns": call,
            "following_ns": following,
            "send": (op == ops.index("send")).astype(np.int64) if "send" in ops else np.zeros(len(op), dtype=np.int64),
        }
        seen = {int(d): part[iteration[part] >= 0] for d, part in rows.items()}
        parts = [seen[d] for d in range(len(names))]
        usual = [_usual(iteration[part], look[part], np.maximum(size[part], 0)) for part in parts]
        found = cls(
            ranks=tuple(np.unique(rank).tolist()),
            names=names,
            rank=of_rank,
            paired=np.array([bool(len(rows[d]) and between[rows[d]].all()) for d in range(len(names))]),
            alone=~numbered & bool(numbered.any()),
            look=_alike(usual),
            usual_calls=np.array([what.calls for what in usual]),
            load=np.array([what.load for what in usual], dtype=np.int64),
            use={},
            _began=np.array([int(rows[d][0]) if len(rows[d]) else len(rank) for d in range(len(names))]),
            _numbered=numbered,
            _rows=seen,
            _columns=columns,
        )
        return replace(found, use=found._uses(table, rank))

    def _uses(self, table: pa.Table, rank: Ints) -> dict[int, CommunicatorUse]:
        """The use of each stream: worked out on one of the ranks whose streams look alike, and theirs is the same."""
        programs: dict[tuple[int, ...], dict[int, int]] = {}
        examples = []
        by_rank: dict[int, list[int]] = {}
        for stream in sorted(self._rows, key=lambda d: int(self._rows[d][0]) if len(self._rows[d]) else -1):
            by_rank.setdefault(int(self.rank[stream]), []).append(stream)
        for of_rank, streams in by_rank.items():
            program = tuple(sorted(int(self.look[d]) for d in streams))
            if program not in programs:
                programs[program] = {}
                examples.append(of_rank)
        chosen = table.filter(pa.array(np.isin(rank, examples)))
        found = {use.communicator: use for use in communicator_uses(chosen, {})}
        for of_rank in examples:
            program = tuple(sorted(int(self.look[d]) for d in by_rank[of_rank]))
            programs[program] = {int(self.look[d]): d for d in by_rank[of_rank] if self.names[d] in found}
        uses = {}
        for streams in by_rank.values():
            example = programs[tuple(sorted(int(self.look[d]) for d in streams))]
            for d in streams:
                if int(self.look[d]) in example:
                    uses[d] = found[self.names[example[int(self.look[d])]]]
        return uses

    @property
    def tensor(self) -> dict[int, int]:
        """The stream of each rank that may be its tensor group's: the busiest one in the passes of microbatches."""
        best: dict[int, int] = {}
        for d, use in self.use.items():
            if self.paired[d] or self.alone[d] or use.in_step or "all_to_all" in use.ops:
                continue
            rank = int(self.rank[d])
            if rank not in best or use.calls > self.use[best[rank]].calls:
                best[rank] = d
        return best

    @property
    def tensor_calls(self) -> dict[int, Calls]:
        """The calls of each rank that has such a stream on it, in the order of ranks."""
        return {rank: self.calls(stream) for rank, stream in sorted(self.tensor.items())}

    @property
    def heaviest_calls(self) -> dict[int, Calls]:
        """The calls of each rank on the stream that moves most in the optimizer step, in the order of ranks."""
        heaviest: dict[int, int] = {}
        for d, use in self.use.items():
            if use.in_step and not self.alone[d]:
                rank = int(self.rank[d])
                heaviest[rank] = max(heaviest.get(rank, d), d, key=self.load.__getitem__)
        return {rank: self.calls(stream) for rank, stream in sorted(heaviest.items())}

    def first_of_each_rank(self, chosen: Bools) -> dict[int, int]:
        """The chosen stream of each rank that has one."""
        return {int(self.rank[d]): d for d in reversed(range(len(self.names))) if chosen[d]}

    def alike(self) -> list[dict[int, int]]:
        """Streams of collectives that look alike, one of each rank: {rank: stream}."""
        classes: dict[tuple[int, int], dict[int, int]] = {}
        for d in range(len(self.names)):
            if d in self.use and not self.paired[d] and not self.alone[d]:
                rank, nth = int(self.rank[d]), 0
                while rank in classes.setdefault((int(self.look[d]), nth), {}):
                    nth += 1
                classes[int(self.look[d]), nth][rank] = d
        return list(classes.values())

    def first(self, alike: Mapping[int, int]) -> bool:
        """Whether each of these streams is the one that its rank used first."""
        return all(self._began[d] == min(self._began[self.rank == self.rank[d]]) for d in alike.values())

    def heaviest_of_step(self, alike: Mapping[int, int]) -> bool:
        """Whether, on the ranks that have them, these streams carry most of what the optimizer step moves."""
        rank, stream = next(iter(alike.items()))
        others = [d for d, use in self.use.items() if self.rank[d] == rank and use.in_step and not self.alone[d]]
        return bool(self.load[stream] > SCALARS and self.load[stream] == max(self.load[d] for d in others))

    def begins_with_send(self, stream: int) -> bool:
        """Whether the iterations of a pipeline's stream usually begin with a send."""
        rows = self._rows[stream]
        heads = np.flatnonzero(np.diff(self._columns["iteration"][rows], prepend=-1))
        return bool(len(heads) and self._columns["send"][rows[heads]].mean() > 0.5)

    def calls(self, stream: int) -> Calls:
        """The calls on a stream; where they are only counted, of iterations that have as many as usual."""
        rows = self._rows[stream]
        if not self._numbered[stream]:
            _, of_row, counts = np.unique(self._columns["iteration"][rows], return_inverse=True, return_counts=True)
            rows = rows[(counts == np.bincount(counts).argmax())[of_row]] if len(rows) else rows
        rows = rows[np.unique(self._columns["key"][rows], return_index=True)[1]]
        return Calls(*(self._columns[name][rows] for name in ("key", "call_ns", "following_ns")))


@dataclass(frozen=True, slots=True)
class _Usual:
    """What usually runs on a stream in an iteration: which kinds of operators, how many, and what they move."""

    looks: tuple[int, ...] = ()
    calls: float = 0.0
    load: int = 0


def _usual(iteration: Ints, look: Ints, size: Ints) -> _Usual:
    """Told from many iterations, so that neither lost lines nor what is done now and then changes it."""
    if not len(iteration):
        return _Usual()
    _, of_row = np.unique(iteration, return_inverse=True)
    found, kind = np.unique(look, return_inverse=True)
    counts = np.zeros((len(found), int(of_row.max()) + 1))
    np.add.at(counts, (kind, of_row), 1)
    regular = (counts > 0).mean(axis=1) > _REGULAR
    calls = np.quantile(counts[regular], 0.9, axis=1, method="nearest").sum()
    return _Usual(tuple(found[regular].tolist()), float(calls), int(np.median(np.bincount(of_row, weights=size))))


def _alike(usual: list[_Usual]) -> Ints:
    """A number a stream that is the same for those on which the same kinds of operators run, about as often."""
    by_looks: dict[tuple[int, ...], list[int]] = {}
    for stream, what in enumerate(usual):
        by_looks.setdefault(what.looks, []).append(stream)
    number = np.zeros(len(usual), dtype=np.int64)
    classes = 0
    for streams in by_looks.values():
        calls = np.array([usual[stream].calls for stream in streams])
        order = np.argsort(calls, kind="stable")
        apart = np.diff(calls[order]) > _APART * calls[order][:-1]
        number[np.array(streams)[order]] = classes + np.concatenate([[0], np.cumsum(apart)])
        classes = int(number.max()) + 1
    return number
