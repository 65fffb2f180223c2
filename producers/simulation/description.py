"""What is told of a job's fabric: devices, cables, which spines ECMP may pick, and which it was seen to pick.

Not every pair of NICs was traced, and some paths have changed since, whether or not a device on them is slow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from diagnosis.job import Job
from producers.simulation.cluster import Ints
from producers.simulation.fabric import NIC_BYTES_PER_S, NVLINK_BYTES_PER_S, Fabric
from producers.simulation.noise import Draws, Purpose
from producers.simulation.schedule import Scope


def described(fabric: Fabric, job: Job) -> Job:
    """The job with its devices, links, path rules and routes, where the scenario has a fabric."""
    scenario = fabric.cluster.scenario
    if scenario.fabric is None:
        return job
    ranks, hosts = range(scenario.world), range(fabric.cluster.hosts)
    tors, spines = range(fabric.tors), range(fabric.shape.spines)
    rate = {"nvlink": NVLINK_BYTES_PER_S, "nic": NIC_BYTES_PER_S, "link": NIC_BYTES_PER_S}
    places: dict[str, list[tuple[str, str | None]]] = {
        "gpu": [(fabric.gpu_name(r), fabric.host(r)) for r in ranks],
        "cpu": [(f"cpu:h{h}", f"h{h}") for h in hosts],
        "nvlink": [(fabric.name("nvlink", h), f"h{h}") for h in hosts],
        "nic": [(fabric.name("nic", r), fabric.host(r)) for r in ranks],
        "link": [(fabric.name("link", r), None) for r in ranks],
        "tor": [(fabric.name("tor", t), None) for t in tors],
        "spine": [(fabric.name("spine", s), None) for s in spines],
    }
    devices: list[dict[str, Any]] = [
        {"device": name, "kind": kind, "host": host, "rate_bytes_per_s": rate.get(kind)}
        for kind, named in places.items()
        for name, host in named
    ]
    reached = [name for name, _ in places["spine"]]
    paths = [
        {"rail": t % scenario.gpus_per_host, "tor": name, "spines": reached}
        for t, (name, _) in enumerate(places["tor"])
    ]
    links = [_link(fabric, rank) for rank in ranks]
    more = {
        "devices": devices,
        "links": links,
        "paths": paths,
        "routes": None if scenario.omissions.routes else _routes(fabric),
    }
    return replace(job, row={**job.row, **more})


def _link(fabric: Fabric, rank: int) -> dict[str, Any]:
    port = f"{rank // fabric.cluster.scenario.gpus_per_host % fabric.shape.hosts_per_pod}"
    ends = {"a": fabric.name("nic", rank), "a_port": "1", "b": fabric.tor_name(rank), "b_port": port}
    return {"link": fabric.name("link", rank), **ends, "rate_bytes_per_s": NIC_BYTES_PER_S}


def _routes(fabric: Fabric) -> list[dict[str, Any]]:
    """Of the pairs of NICs that exchange anything those that were traced."""
    scenario = fabric.cluster.scenario
    source, destination = _exchanging(fabric)
    spine = fabric.spine(source, destination)
    stream = Draws(scenario.seed).stream(Purpose.ROUTES)
    traced = stream.random(len(source)) >= scenario.noise.untraced_share
    moved = (stream.random(len(source)) < scenario.noise.moved_share) & (spine >= 0)
    elsewhere = (spine + stream.integers(1, max(fabric.shape.spines, 2), len(source))) % fabric.shape.spines
    seen = np.where(moved, elsewhere, spine)
    return [
        {
            "source": fabric.name("nic", a),
            "destination": fabric.name("nic", b),
            "switches": [fabric.tor_name(a), *([fabric.name("spine", over), fabric.tor_name(b)] if over >= 0 else [])],
        }
        for a, b, over in zip(source[traced].tolist(), destination[traced].tolist(), seen[traced].tolist(), strict=True)
    ]


def _exchanging(fabric: Fabric) -> tuple[Ints, Ints]:
    """The pairs of ranks whose NICs send to each other, each once, ascending."""
    cluster = fabric.cluster
    pairs = []
    for scope in cluster.scopes:
        if scope is not Scope.PIPELINE:
            onward = fabric.next_host(scope)
            ranks = np.flatnonzero(onward >= 0)
            pairs.append(np.stack([ranks, onward[ranks]], axis=1))
    for stage in range(cluster.scenario.pp - 1):
        far = ~cluster.same_host(stage, stage + 1)
        ends = np.stack([cluster.grid[stage][far], cluster.grid[stage + 1][far]], axis=1)
        pairs += [ends, ends[:, ::-1]]
    once = np.unique(np.concatenate(pairs), axis=0) if pairs else np.zeros((0, 2), dtype=np.int64)
    return once[:, 0], once[:, 1]
