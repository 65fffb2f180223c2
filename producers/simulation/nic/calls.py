"""The calls that a host's ranks made, as rows of telemetry.op_calls."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from producers.simulation.nic.clocks import Clocks
from producers.simulation.nic.execution import Execution
from producers.simulation.nic.losses import Losses
from producers.simulation.nic.names import Names
from producers.simulation.nic.programs import ELEMENT_BYTES, Programs
from producers.simulation.nic.scenario import NicScenario
from schemas.catalogue import OP_CALLS

_OPENING_S, _BETWEEN_S, _CLOSING_S = 2e-6, 1.5e-6, 4e-6
"""From the beginning of a group to its first call, between its calls, and from the last one to its end."""


def calls_of(
    scenario: NicScenario, programs: Programs, execution: Execution, names: Names, clocks: Clocks, losses: Losses,
    host: int,
) -> pa.RecordBatch:  # fmt: skip
    """The calls of a host's ranks that are told, sorted by time."""
    own = range(host * scenario.tp, (host + 1) * scenario.tp)
    made = pa.concat_tables([_between_hosts(programs, execution, names, rank) for rank in own])
    if scenario.tp > 1:
        within = [_within_host(scenario, programs, execution, names, rank) for rank in own]
        made = pa.concat_tables([made, *within])
    made = made.sort_by([("rank", "ascending"), ("at_s", "ascending"), ("seq", "ascending")])
    rank = np.asarray(made["rank"])
    first = np.searchsorted(rank, rank)
    columns = {name: made[name] for name in ("rank", "communicator", "communicator_rank", "seq", "op", "count", "peer")}
    columns["call_id"] = pa.array(np.arange(len(rank)) - first)
    columns["dtype"] = pa.array(["bfloat16"] * len(rank))
    reduces = np.isin(made["op"].to_pylist(), ["all_reduce", "reduce_scatter"])
    columns["reduce_op"] = pa.array(np.where(reduces, "sum", ""), mask=~reduces)
    columns["stream"] = pa.array(["0x7f10"] * len(rank))
    for column, source in (("call_ns", "at_s"), ("group_start_ns", "open_s"), ("group_end_ns", "close_s")):
        times = made[source].to_numpy()
        ns = clocks.host_ns(host, np.nan_to_num(times))
        columns[column] = pa.array(ns, mask=np.isnan(times))
    lost = np.zeros(len(rank), dtype=np.bool_)
    for one in own:
        rows = np.flatnonzero(rank == names.rank[one])
        lost[rows] = losses.calls(one, len(rows))
    return OP_CALLS.batch(columns).filter(pa.array(~lost)).sort_by("call_ns")


def _between_hosts(programs: Programs, execution: Execution, names: Names, rank: int) -> pa.Table:
    rows = []
    for made in execution.called[rank]:
        calls = made.item.calls
        last = made.at_s + (len(calls) - 1) * _BETWEEN_S
        for i, call in enumerate(calls):
            at = made.at_s + i * _BETWEEN_S
            grouped = made.item.grouped
            rows.append(
                (call.communicator, call.seq, call.op, call.count, call.peer, at,
                 made.at_s - _OPENING_S if grouped else np.nan, last + _CLOSING_S if grouped else np.nan)
            )  # fmt: skip
    communicator, seq, op, count, peer, at_s, open_s, close_s = zip(*rows, strict=True) if rows else [()] * 8
    members = programs.communicators
    return pa.table(
        {
            "rank": pa.array([int(names.rank[rank])] * len(rows), pa.int32()),
            "communicator": pa.array([names.communicator(c) for c in communicator], pa.string()),
            "communicator_rank": pa.array([members[c].index(rank) for c in communicator], pa.int32()),
            "seq": pa.array(seq, pa.int64()),
            "op": pa.array(op, pa.string()),
            "count": pa.array(count, pa.int64()),
            "peer": pa.array([None if p is None else int(names.rank[p]) for p in peer], pa.int32()),
            "at_s": pa.array(at_s, pa.float64()),
            "open_s": pa.array(open_s, pa.float64()),
            "close_s": pa.array(close_s, pa.float64()),
        }
    )


def _within_host(scenario: NicScenario, programs: Programs, execution: Execution, names: Names, rank: int) -> pa.Table:
    """Collectives of tensor parallelism, called while their segment is launched; one that hangs is launched as well."""
    done = [computed for computed in execution.computed[rank] if computed.item.tensor_calls]
    counts = np.array([computed.item.tensor_calls for computed in done], dtype=np.int64)
    total = int(counts.sum())
    ordinal = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = np.repeat([c.begin_s for c in done], counts)
    launching = np.repeat([c.item.seconds * c.item.launching * 0.9 for c in done], counts)
    at_s = begin + launching * (ordinal + 1) / (np.repeat(counts, counts) + 1)
    at_s = at_s[at_s < execution.silent_from.get(rank, np.inf)]
    total = len(at_s)
    name = f"tensor{scenario.host_of(rank)}"
    nothing = np.full(total, np.nan)
    return pa.table(
        {
            "rank": pa.array(np.full(total, names.rank[rank]), pa.int32()),
            "communicator": pa.array([names.communicator(name)] * total, pa.string()),
            "communicator_rank": pa.array(np.full(total, programs.communicators[name].index(rank)), pa.int32()),
            "seq": pa.array(np.arange(total), pa.int64()),
            "op": pa.array(["all_reduce"] * total, pa.string()),
            "count": pa.array(np.full(total, scenario.activation_bytes * scenario.tp // ELEMENT_BYTES), pa.int64()),
            "peer": pa.nulls(total, pa.int32()),
            "at_s": pa.array(at_s, pa.float64()),
            "open_s": pa.array(nothing),
            "close_s": pa.array(nothing),
        }
    )
