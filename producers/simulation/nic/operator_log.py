"""The same run as a log of operators tells it: what is judged beside NIC counters, on the same faults.

It is a log of events on the GPUs' streams: an operator is called when its rank's kernel begins. One that never
begins is told by its process's call alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from producers.simulation.logged import ordinals
from producers.simulation.nic.clocks import Clocks
from producers.simulation.nic.execution import Called, Computed, Execution
from producers.simulation.nic.names import Names
from producers.simulation.nic.programs import ELEMENT_BYTES, Programs
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints
from producers.simulation.noise import Floats
from schemas.catalogue import COMM_OPS


@dataclass(frozen=True, slots=True)
class _Rows:
    """Operators of one rank; times in seconds, infinite where something did not happen."""

    communicator: list[str]
    seq: list[int]
    op: list[str]
    count: list[int]
    peer: list[int]
    iteration: list[int]
    call_s: Floats
    start_s: Floats
    end_s: Floats


def operator_log(
    scenario: NicScenario, programs: Programs, execution: Execution, names: Names, clocks: Clocks
) -> pa.Table:
    """Rows of telemetry.comm_ops of all ranks, sorted by rank and call; nothing is lost of them."""
    tables = []
    for rank in sorted(range(scenario.world), key=lambda r: int(names.rank[r])):
        between = _between_hosts(execution.called[rank], programs)
        within = _within_host(execution.computed[rank], scenario, rank, execution.silent_from.get(rank, np.inf))
        tables.append(_table(scenario, names, clocks, rank, (between, within)))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _between_hosts(called: list[Called], programs: Programs) -> _Rows:
    made = [(one, call) for one in called for call in one.item.calls]
    times = np.array([(one.at_s, one.begin_s, one.end_s) for one, _ in made]).reshape(-1, 3)
    whole = {name: len(members) for name, members in programs.communicators.items()}
    return _Rows(
        [call.communicator for _, call in made],
        [call.seq for _, call in made],
        [call.op for _, call in made],
        [
            call.count * (whole[call.communicator] if call.op in {"reduce_scatter", "all_gather"} else 1)
            for _, call in made
        ],
        [-1 if call.peer is None else call.peer for _, call in made],
        [one.item.iteration for one, _ in made],
        *(times[:, i] for i in range(3)),
    )


def _within_host(computed: list[Computed], scenario: NicScenario, rank: int, silent_from: float) -> _Rows:
    """Collectives of tensor parallelism: each comes when the rank has computed its part, and ends for all at once."""
    own = [one for one in computed if one.item.tensor_calls]
    counts = np.array([one.item.tensor_calls for one in own], dtype=np.int64)
    total = int(counts.sum())
    place = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, part, alone, launched = (
        np.repeat(np.array(values, dtype=np.float64), counts)
        for values in (
            [one.begin_s for one in own],
            [one.seconds / one.item.tensor_calls for one in own],
            [one.own_s / one.item.tensor_calls for one in own],
            [one.item.seconds * one.item.launching * 0.9 / (one.item.tensor_calls + 1) for one in own],
        )
    )
    call = begin + launched * (place + 1)
    whole = np.isfinite(part)
    passed = np.where(whole, part, 0.0) * place
    start = np.where(whole | (place == 0), begin + passed + alone, np.inf)
    end = np.where(whole, begin + passed + part, np.inf)
    made = int((call < silent_from).sum())
    return _Rows(
        [f"tensor{scenario.host_of(rank)}"] * made,
        list(range(made)),
        ["all_reduce"] * made,
        [scenario.activation_bytes * scenario.tp // ELEMENT_BYTES] * made,
        [-1] * made,
        np.repeat([one.item.iteration for one in own], counts)[:made].tolist(),
        call[:made],
        np.maximum(start, call)[:made],
        np.maximum(end, call)[:made],
    )


def _table(scenario: NicScenario, names: Names, clocks: Clocks, rank: int, parts: tuple[_Rows, ...]) -> pa.Table:
    start_s = np.concatenate([rows.start_s for rows in parts])
    call_s = np.where(np.isfinite(start_s), start_s, np.concatenate([rows.call_s for rows in parts]))
    order = np.argsort(call_s, kind="stable")

    def joined(name: str) -> Ints:
        return np.array([value for rows in parts for value in getattr(rows, name)], dtype=np.int64)[order]

    def texts(name: str) -> pa.Array:
        return pa.array([value for rows in parts for value in getattr(rows, name)], pa.string()).take(order)

    def shown(times: Floats) -> pa.Array:
        never = ~np.isfinite(times[order])
        return pa.array(clocks.host_ns(scenario.host_of(rank), np.where(never, 0.0, times[order])), mask=never)

    communicator, op = texts("communicator").dictionary_encode(), texts("op")
    used = [names.communicator(name) for name in communicator.dictionary.to_pylist()]
    code = np.asarray(communicator.indices, dtype=np.int64)
    peer, iteration, count = joined("peer"), joined("iteration"), joined("count")
    paired = peer >= 0
    sends = np.asarray(pc.equal(op, "send"))
    batch = COMM_OPS.batch(
        {
            "rank": np.full(len(order), names.rank[rank]),
            "communicator": pa.DictionaryArray.from_arrays(communicator.indices, pa.array(used, pa.string())),
            "seq": joined("seq"),
            "position": ordinals(code * scenario.iterations + iteration),
            "call_order": np.arange(len(order)),
            "op": op,
            "dtype": ["bfloat16"] * len(order),
            "count": count,
            "bytes": count * ELEMENT_BYTES,
            "peer": pa.array(names.rank[np.maximum(peer, 0)], mask=~paired),
            "p2p_seq": pa.array(ordinals(2 * peer + sends), mask=~paired),
            "iteration": iteration,
            "call_ns": shown(call_s),
            "start_ns": shown(start_s),
            "end_ns": shown(np.concatenate([rows.end_s for rows in parts])),
        }
    )
    return pa.Table.from_batches([batch])
