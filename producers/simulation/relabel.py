"""The same run under other names: for tests that a diagnosis depends on what happened, not on what it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from diagnosis.job import Communicator, Job, Place
from producers.simulation.cluster import Ints
from producers.simulation.faults import Kind
from producers.simulation.run import SimulatedRun
from producers.simulation.truth import FaultTruth, Truth
from schemas import comm_ops


def relabelled(
    run: SimulatedRun,
    ranks: Mapping[int, int],
    hosts: Mapping[str, str],
    communicator: Callable[[str], str] = lambda name: name,
    device: Callable[[str], str] = lambda name: name,
) -> SimulatedRun:
    """A run with its ranks, hosts, communicators and devices renamed, in the logs, the job and the truth.

    ``ranks`` maps every rank to another one, ``hosts`` every host; ``device`` gives a NIC another name on its host, and
    a switch another one at all. The degrees of parallelism are left out:
    with them comes an order of ranks, which no longer holds. Raises ``ValueError`` where names would merge.
    """
    for what, names in (("ranks", ranks), ("hosts", hosts)):
        if len(set(names.values())) != len(names):
            raise ValueError(f"two {what} would get one name")
    table, order = _table(run.table, ranks, communicator)
    named = _device_names(hosts, device)
    job = _job(run.job, ranks, hosts, communicator, device)
    job = replace(job, row=_fabric(job.row, hosts, named))
    return SimulatedRun(run.scenario, job, table, _truth(run, ranks, named, order))


def _table(table: pa.Table, ranks: Mapping[int, int], communicator: Callable[[str], str]) -> tuple[pa.Table, Ints]:
    batch = table.combine_chunks().to_batches()[0]
    new = np.zeros(max(ranks) + 1, dtype=np.int32)
    new[list(ranks)] = list(ranks.values())
    columns = {name: batch.column(name) for name in batch.schema.names}
    rank = new[columns["rank"].to_numpy()]
    peer = columns["peer"]
    columns["rank"] = pa.array(rank)
    columns["peer"] = pa.array(new[peer.fill_null(0).to_numpy()], mask=peer.is_null().to_numpy(zero_copy_only=False))
    codes = columns["communicator"]
    names = pa.array([communicator(name) for name in codes.dictionary.to_pylist()], pa.string())
    columns["communicator"] = pa.DictionaryArray.from_arrays(codes.indices, names)
    order = np.argsort(rank, kind="stable")
    return pa.Table.from_batches([comm_ops.TOPIC.batch(dict(columns)).take(pa.array(order))]), order


def _job(
    job: Job,
    ranks: Mapping[int, int],
    hosts: Mapping[str, str],
    communicator: Callable[[str], str],
    device: Callable[[str], str],
) -> Job:
    places = [
        Place(ranks[p.rank], None if p.host is None else hosts[p.host], p.gpu, tuple(map(device, p.nics)))
        for p in job.places
    ]
    communicators = [
        Communicator(communicator(c.communicator), tuple(sorted(ranks[r] for r in c.ranks)), c.kind)
        for c in job.communicators
    ]
    return replace(
        job,
        places=tuple(sorted(places, key=lambda place: place.rank)),
        communicators=tuple(sorted(communicators, key=lambda c: c.communicator)),
        layout=None,
    )


def _device_names(hosts: Mapping[str, str], device: Callable[[str], str]) -> Callable[[str], str]:
    """What devices that bear their kind and place in their names are called now."""

    def renamed(name: str) -> str:
        kind, _, place = name.partition(":")
        if kind in {"tor", "spine"}:
            return f"{kind}:{device(place)}"
        host, slash, own = place.partition("/")
        return f"{kind}:{hosts[host]}{slash}{device(own) if kind in {'nic', 'link'} else own}"

    return renamed


def _fabric(row: Mapping[str, Any], hosts: Mapping[str, str], device: Callable[[str], str]) -> dict[str, Any]:
    """What a job's record says of its fabric, under the names that ``device`` gives."""
    renamed = dict(row)
    if row.get("devices"):
        renamed["devices"] = [
            {**d, "device": device(d["device"]), "host": hosts.get(d["host"], d["host"])} for d in row["devices"]
        ]
    if row.get("links"):
        renamed["links"] = [
            {**cable, **{end: device(cable[end]) for end in ("link", "a", "b")}} for cable in row["links"]
        ]
    if row.get("paths"):
        renamed["paths"] = [
            {**path, "tor": device(path["tor"]), "spines": [device(spine) for spine in path["spines"]]}
            for path in row["paths"]
        ]
    if row.get("routes"):
        renamed["routes"] = [
            {
                "source": device(route["source"]),
                "destination": device(route["destination"]),
                "switches": [device(switch) for switch in route["switches"]],
            }
            for route in row["routes"]
        ]
    return renamed


def _truth(run: SimulatedRun, ranks: Mapping[int, int], device: Callable[[str], str], order: Ints) -> Truth:
    def renamed(fault: FaultTruth) -> FaultTruth:
        same = tuple(device(name) for name in fault.inseparable)
        rank = fault.rank if fault.kind == Kind.SPINE_SLOW else ranks[fault.rank]
        return replace(fault, rank=rank, device=device(fault.device), inseparable=same)

    truth = run.truth
    return replace(truth, faults=tuple(renamed(f) for f in truth.faults), abnormal=truth.abnormal[order])
