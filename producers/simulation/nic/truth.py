"""What really happened: the faults, and where every operator began and ended. It is in no message."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from producers.simulation.nic.execution import Execution
from producers.simulation.nic.faults import OF_HOST, Fault
from producers.simulation.nic.names import Names
from producers.simulation.nic.programs import Communicate, Item
from producers.simulation.nic.scenario import NicScenario, Workload
from producers.simulation.nic.slices import Ints
from producers.simulation.nic.training import Routing
from producers.simulation.nic.transport import Transport
from producers.simulation.nic.wiring import Plan
from producers.simulation.noise import Floats

OPERATORS = pa.schema(
    [
        ("rank", pa.int32()),
        ("communicator", pa.string()),
        ("seq", pa.int64()),
        ("op", pa.string()),
        ("iteration", pa.int32()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("bytes", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class FaultTruth:
    """A fault under the run's names. ``ranks`` suffer it: one, all of a host, or the two ends of a narrow path."""

    injection: str
    kind: str
    severity: float
    at_ns: int
    ranks: tuple[int, ...]
    host: str
    nic: str


@dataclass(frozen=True)
class NicTruth:
    """What is known of a run beyond its messages; times are of a perfect clock.

    ``faults`` are those that began before the run was over. ``operators`` (``OPERATORS``) has a row an operator
    between hosts, and custom collective, that a rank called: when its first byte left the rank's NIC and its last one
    (null: none did, or it never ended), and the bytes it had to send, headers included. ``iteration_ends_ns``
    (iterations, ranks) is -1 where a rank did not come so far. ``tokens`` (iterations, hosts), in the order of
    ``hosts``, is what experts of each host got, relative to an even share; without experts it has no iterations.
    """

    faults: tuple[FaultTruth, ...]
    operators: pa.Table
    iteration_ends_ns: Ints
    hung: bool
    hosts: tuple[str, ...]
    tokens: Floats

    def to_json(self) -> dict[str, Any]:
        """All but the operators."""
        faults = [asdict(fault) for fault in self.faults]
        return {
            "faults": faults,
            "hung": self.hung,
            "iteration_ends_ns": self.iteration_ends_ns.tolist(),
            "hosts": list(self.hosts),
            "tokens": self.tokens.tolist(),
        }


def truth_of(
    scenario: NicScenario,
    programs: list[list[Item]],
    plan: Plan,
    transport: Transport,
    execution: Execution,
    names: Names,
) -> NicTruth:
    """The truth of a run that has been executed."""
    began = np.maximum(transport.posted_at, np.append(0.0, transport.ended_at[:-1]))
    began[plan.connection_at] = transport.posted_at[plan.connection_at]
    began = _if_any_left(began, plan, transport)
    tables = [
        _operators(program, len(execution.called[rank]), plan, began, transport.ended_at, names, rank)
        for rank, program in enumerate(programs)
    ]
    return NicTruth(
        tuple(_fault(scenario, fault, names) for fault in scenario.faults if fault.at_s < execution.end_s),
        pa.concat_tables(tables),
        _ns(execution.iteration_ends, names),
        execution.hung,
        tuple(names.hosts),
        _tokens(scenario),
    )


def _tokens(scenario: NicScenario) -> Floats:
    if scenario.workload is not Workload.EXPERTS:
        return np.empty((0, scenario.hosts))
    routing = Routing(scenario)
    return np.array([routing.tokens(iteration) for iteration in range(scenario.iterations)])


def _if_any_left(began: Floats, plan: Plan, transport: Transport) -> Floats:
    """When slices began; never, of those that a NIC which is gone was handed and that never left it."""
    rows = np.diff(np.append(plan.connection_at, len(began)))
    left = plan.ends < np.repeat(transport.sent_bytes, rows)
    return np.where(left, began, np.inf)


def _operators(
    program: list[Item], called: int, plan: Plan, began: Floats, ended: Floats, names: Names, rank: int
) -> pa.Table:
    """The operators of a rank, in the order of its program; each goes on where the last one left its connections."""
    at = plan.connection_at.copy()
    items = [item for item in program if isinstance(item, Communicate)][:called]
    rows = []
    for item in items:
        side = item.side
        sends = side.sent_slices > 0
        first = at[side.outgoing[sends]]
        last = first + side.sent_slices[sends]
        at[side.outgoing] += side.sent_slices
        call = item.calls[0]
        op = "custom" if item.grouped else call.op
        times = (began[first].min(), ended[last - 1].max()) if len(first) else (np.inf, np.inf)
        size = int((plan.ends[last] - plan.ends[first]).sum())
        rows.append((names.communicator(call.communicator), call.seq, op, item.iteration, *times, size))
    communicator, seq, op_names, iteration, start, end, sizes = zip(*rows, strict=True) if rows else [()] * 7
    start_ns, end_ns = (_ns(np.array(times, dtype=np.float64), names) for times in (start, end))
    columns = [
        pa.array([int(names.rank[rank])] * len(rows), pa.int32()),
        pa.array(communicator, pa.string()),
        pa.array(seq, pa.int64()),
        pa.array(op_names, pa.string()),
        pa.array(iteration, pa.int32()),
        pa.array(start_ns, mask=start_ns < 0),
        pa.array(end_ns, mask=end_ns < 0),
        pa.array(sizes, pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=OPERATORS)


def _ns(times_s: Floats, names: Names) -> Ints:
    known = np.isfinite(times_s)
    return np.where(known, names.started_ns + np.rint(np.where(known, times_s, 0.0) * 1e9).astype(np.int64), -1)


def _fault(scenario: NicScenario, fault: Fault, names: Names) -> FaultTruth:
    host = scenario.host_of(fault.rank)
    ranks = [fault.rank] if fault.peer is None else [fault.rank, fault.peer]
    if fault.injection in OF_HOST:
        ranks = list(range(host * scenario.tp, (host + 1) * scenario.tp))
    return FaultTruth(
        injection=fault.injection.value,
        kind=fault.kind.value,
        severity=fault.severity,
        at_ns=names.started_ns + round(fault.at_s * 1e9),
        ranks=tuple(sorted(int(names.rank[r]) for r in ranks)),
        host=names.hosts[host],
        nic=names.nic(fault.rank),
    )
