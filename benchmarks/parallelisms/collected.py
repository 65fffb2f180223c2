"""Calls of a simulated job as collectors tell them: opaque communicators, what was passed, and no word of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from producers.simulation import SimulatedRun
from schemas.catalogue import OP_CALLS

Ints = npt.NDArray[np.int64]

_COLD = 0.03
"""Share of the exchanges in which nobody chooses an expert."""


def op_calls(run: SimulatedRun, *, native: bool) -> pa.Table:
    """Rows of telemetry.op_calls of all ranks. All-to-alls are groups of sends and receives, as PyTorch makes them of
    parts of unlike size, or, ``native``, one call each, as libraries have had them since NCCL 2.28."""
    members = run.job.members
    log = _Log.of(run.table, members)
    exchanges = np.zeros(len(log.rank), dtype=np.bool_) if native else log.named("all_to_all")
    kept = log.take(np.flatnonzero(~exchanges))
    rows = [kept.as_passed(), *_exchanged(log.take(np.flatnonzero(exchanges)), members, run.scenario.seed)]
    table = pa.concat_tables(rows).sort_by([("rank", "ascending"), ("order", "ascending")]).combine_chunks()
    rank = np.asarray(table["rank"])
    columns = {name: table[name] for name in table.column_names if name != "order"}
    columns["call_id"] = pa.array(np.arange(len(rank)) - np.searchsorted(rank, rank))
    return pa.Table.from_batches([OP_CALLS.batch(columns)])


class _Log:
    """Columns of telemetry.comm_ops; ``opened`` is when the group began that holds a call, -1 without. ``width``: ranks
    of its communicator, of which ``place`` is the caller's."""

    def __init__(self, table: pa.Table, width: Ints, place: Ints, opened: Ints) -> None:
        self.table, self.width, self.place, self.opened = table, width, place, opened
        self.rank = np.asarray(table["rank"]).astype(np.int64)

    @classmethod
    def of(cls, table: pa.Table, members: Mapping[str, Sequence[int]]) -> _Log:
        communicator, rank = table["communicator"].combine_chunks(), np.asarray(table["rank"]).astype(np.int64)
        code, groups = np.asarray(communicator.indices), [members[name] for name in communicator.dictionary.to_pylist()]
        width = np.array([len(ranks) for ranks in groups], dtype=np.int64)
        world = int(rank.max()) + 1
        places = np.concatenate(groups) + np.repeat(np.arange(len(groups)), width) * world
        place = np.searchsorted(places, rank + code * world) - (np.cumsum(width) - width)[code]
        return cls(table, width[code], place, _opened(table))

    def take(self, rows: Ints) -> _Log:
        table = self.table.take(pa.array(rows)).combine_chunks()
        return _Log(table, self.width[rows], self.place[rows], self.opened[rows])

    def named(self, *ops: str) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.is_in(self.table["op"].cast(pa.string()), pa.array(ops)))

    def as_passed(self) -> pa.Table:
        parts = self.named("all_gather", "reduce_scatter", "all_to_all")
        count = np.asarray(self.table["count"]) // np.where(parts, self.width, 1)
        order = np.asarray(self.table["call_order"]).astype(np.float64)
        return _rows(self, count, self.table["peer"], self.opened, order)


def _opened(table: pa.Table) -> Ints:
    """Sends and receives that are called before the one before them has ended were called together."""
    rank, order, call = (np.asarray(table[name]) for name in ("rank", "call_order", "call_ns"))
    end = np.asarray(pc.fill_null(table["end_ns"], 0))
    paired = np.asarray(pc.is_valid(table["peer"]))
    together = np.zeros(len(rank), dtype=np.bool_)
    together[1:] = paired[1:] & paired[:-1] & (rank[1:] == rank[:-1]) & (np.diff(order) == 1) & (call[1:] < end[:-1])
    first = np.maximum.accumulate(np.where(together, 0, np.arange(len(rank))))
    grouped = together | np.append(together[1:], False)
    return np.where(grouped, call[first], -1)


def _exchanged(log: _Log, members: Mapping[str, Sequence[int]], seed: int) -> list[pa.Table]:
    """Each all-to-all as a group: a send to and a receive from every rank, the own one too, that has something for it.

    How much an expert gets of everybody differs between experts, and between exchanges.
    """
    told = []
    communicator = log.table["communicator"].combine_chunks().cast(pa.string())
    for at, name in enumerate(pc.unique(communicator).to_pylist()):
        rows = np.flatnonzero(np.asarray(pc.equal(communicator, name)))
        own, ranks = log.take(rows), np.array(members[name])
        seq = np.asarray(own.table["seq"])
        chance = np.random.default_rng((seed, at))
        chosen = chance.gamma(4.0, 0.25, (int(seq.max()) + 1, len(ranks)))
        chosen[chance.random(chosen.shape) < _COLD] = 0.0
        part = np.asarray(own.table["count"]) / len(ranks)
        for place, peer in enumerate(ranks.tolist()):
            for op, share in (("send", chosen[seq, place]), ("recv", chosen[seq, own.place])):
                size = (part * share).astype(np.int64)
                some = np.flatnonzero(size)
                of = own.take(some)
                within = (2 * place + (op == "recv")) / (2 * len(ranks) + 2)
                order, opened = np.asarray(of.table["call_order"]) + within, np.asarray(of.table["call_ns"])
                told.append(_rows(of, size[some], pa.array(np.full(len(some), peer), pa.int32()), opened, order, op))
    return told


def _rows(log: _Log, count: Ints, peer: object, opened: Ints, order: object, op: str | None = None) -> pa.Table:
    """``order``: of a rank's calls. ``op``: in place of the log's."""
    table = log.table
    return pa.table(
        {
            "rank": log.rank,
            "communicator": table["communicator"].cast(pa.string()),
            "communicator_rank": log.place,
            "seq": table["seq"],
            "op": table["op"].cast(pa.string()) if op is None else pa.array([op] * len(table), pa.string()),
            "dtype": table["dtype"].cast(pa.string()),
            "count": count,
            "peer": peer,
            "call_ns": table["call_ns"],
            "group_start_ns": pa.array(opened, mask=opened < 0),
            "order": order,
        }
    )
