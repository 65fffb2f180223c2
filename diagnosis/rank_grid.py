"""Which ranks a layout puts together: the groups of each kind, in Megatron's order of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnosis.arrays import Ints
from diagnosis.job import Layout

Groups = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class RankGrid:
    """Ranks by stage, replica and place in the tensor group, in Megatron's order; shape (pp, replicas, tp)."""

    rank: Ints

    @classmethod
    def of(cls, layout: Layout) -> RankGrid:
        tp, pp, world = layout.tp or 1, layout.pp or 1, layout.world or 1
        return cls(np.arange(world).reshape(pp, world // (pp * tp), tp))

    @property
    def stages(self) -> int:
        return int(self.rank.shape[0])

    @property
    def replicas(self) -> int:
        return int(self.rank.shape[1])

    def ranks(self) -> tuple[int, ...]:
        return tuple(self.rank.ravel().tolist())

    def tensor(self) -> Groups:
        return _rows(self.rank)

    def data(self) -> Groups:
        return _rows(self.rank.transpose(0, 2, 1))

    def pipelines(self) -> Groups:
        return _rows(self.rank.transpose(1, 2, 0))

    def ends(self) -> Groups:
        return _rows(self.rank.transpose(1, 2, 0)[..., [0, -1]]) if self.stages > 1 else [()]

    def models(self) -> Groups:
        replicas = self.rank.transpose(1, 0, 2)
        return _rows(replicas.reshape(len(replicas), 1, -1))


def _rows(grid: Ints) -> Groups:
    return [tuple(sorted(row)) for row in grid.reshape(-1, grid.shape[-1]).tolist()]
