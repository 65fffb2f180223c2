"""The rail-optimised fabric under a cluster: devices, what crosses them, and which of them no evidence separates.

Rail ``i`` is made of the NICs of index ``i``. In each pod of hosts every rail has a ToR; each ToR reaches every
spine. What stays on a rail within a pod crosses one ToR; all else crosses two and the spine that ECMP picks by the
two NICs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from producers.simulation.cluster import Cluster, Ints
from producers.simulation.faults import Fault, Kind
from producers.simulation.scenario import FabricShape
from producers.simulation.schedule import Scope

NVLINK_BYTES_PER_S = 180e9
NIC_BYTES_PER_S = 42e9

DEVICE_KINDS = {
    Kind.GPU_SLOW: "gpu",
    Kind.CPU_SLOW: "cpu",
    Kind.NVLINK_SLOW: "nvlink",
    Kind.NIC_SLOW: "nic",
    Kind.LINK_SLOW: "link",
    Kind.TOR_SLOW: "tor",
    Kind.SPINE_SLOW: "spine",
}
_CARRIERS = ("nic", "link", "nvlink", "tor", "spine")
"""Kinds that carry traffic, in the order of their codes."""


@dataclass(frozen=True)
class Fabric:
    """The devices of a cluster. Without a described fabric all hosts are one pod."""

    cluster: Cluster

    @property
    def shape(self) -> FabricShape:
        """Sizes of the fabric."""
        return self.cluster.scenario.fabric or FabricShape(hosts_per_pod=self.cluster.hosts, spines=1)

    @cached_property
    def tor(self) -> Ints:
        """Number of the ToR that each rank's NIC is connected to; shape (ranks,)."""
        pod = self.cluster.host.ravel() // self.shape.hosts_per_pod
        return np.asarray(pod * self.cluster.scenario.gpus_per_host + self.cluster.gpu.ravel())

    @property
    def tors(self) -> int:
        """Number of ToRs."""
        pods = -(-self.cluster.hosts // self.shape.hosts_per_pod)
        return pods * self.cluster.scenario.gpus_per_host

    def spine(self, one: Ints, other: Ints) -> Ints:
        """Number of the spine that ranks' NICs reach each other by, -1 where they share a ToR; shapes as given."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        mixed = (low * 2_654_435_761 ^ high * 2_246_822_519) >> 13
        return np.where(self.tor[one] == self.tor[other], -1, mixed % self.shape.spines)

    def next_host(self, scope: Scope) -> Ints:
        """The member of each rank's group that it reaches through its NIC, -1: none; shape (ranks,).

        It is the one at the same place among the group's members on the next host.
        """
        cluster = self.cluster
        onward = np.full(cluster.scenario.world, -1, dtype=np.int64)
        hosts = cluster.host.ravel()
        for group in cluster.groups(scope):
            starts = np.flatnonzero(np.diff(hosts[group], prepend=-1))
            if len(starts) > 1:
                local = np.split(group, starts[1:])
                for here, there in zip(local, local[1:] + local[:1], strict=True):
                    onward[here] = there[np.minimum(np.arange(len(here)), len(there) - 1)]
        return onward

    def device(self, fault: Fault) -> str:
        """Name of the device that a fault slows."""
        kind = DEVICE_KINDS[fault.kind]
        if kind == "gpu":
            return self.gpu_name(fault.rank)
        if kind == "cpu":
            return f"cpu:{self.host(fault.rank)}"
        return self.name(kind, self._index(kind, fault.rank))

    def gpu_name(self, rank: int) -> str:
        """``gpu:host/index``."""
        host, gpu = divmod(rank, self.cluster.scenario.gpus_per_host)
        return f"gpu:h{host}/{gpu}"

    def host(self, rank: int) -> str:
        """Name of a rank's host."""
        return f"h{rank // self.cluster.scenario.gpus_per_host}"

    def tor_name(self, rank: int) -> str:
        """Name of the ToR that a rank's NIC is connected to."""
        return self.name("tor", int(self.tor[rank]))

    def inseparable(self, fault: Fault) -> tuple[str, ...]:
        """Names of the devices that no evidence can tell from a fault's device, itself included.

        Devices that carry the very same traffic slow the very same operators: a NIC and its only uplink, all NICs
        of a ring that carry nothing else. Where the job's fabric is not described, links and switches are unknown.
        """
        device = self.device(fault)
        return self.sets.get(device, (device,))

    @cached_property
    def sets(self) -> dict[str, tuple[str, ...]]:
        """The devices that carry traffic, each with all that carry the very same."""
        device, channel = self._crossings
        alike: dict[tuple[str, bytes], list[str]] = {}
        codes, starts = np.unique(device, return_index=True)
        described = self.cluster.scenario.fabric is not None
        ends = np.append(starts, len(channel))[1:]
        for code, start, end in zip(codes, starts, ends, strict=True):
            kind, index = self._decoded(int(code))
            alike.setdefault(("" if described else kind, channel[start:end].tobytes()), []).append(
                self.name(kind, index)
            )
        return {name: tuple(names) for names in alike.values() for name in names}

    def carries(self, kind: str) -> Ints:
        """Numbers of the devices of a kind (as ``Fault.rank`` counts them, links and NICs alike) that carry traffic."""
        device, _ = self._crossings
        of_kind = [self._decoded(int(code))[1] for code in np.unique(device) if self._decoded(int(code))[0] == kind]
        return np.array(of_kind, dtype=np.int64)

    def _index(self, kind: str, rank: int) -> int:
        if kind == "nvlink":
            return rank // self.cluster.scenario.gpus_per_host
        return int(self.tor[rank]) if kind == "tor" else rank

    def name(self, kind: str, index: int) -> str:
        """Name of a NIC, cable, ToR, NVLinks or spine by its number."""
        rails = self.cluster.scenario.gpus_per_host
        if kind in {"nic", "link"}:
            host, nic = divmod(index, rails)
            return f"{kind}:h{host}/mlx5_{nic}"
        if kind == "tor":
            pod, rail = divmod(index, rails)
            return f"tor:pod{pod}/rail{rail}"
        return f"nvlink:h{index}" if kind == "nvlink" else f"spine:{index}"

    def _code(self, kind: str, index: int | Ints) -> Any:
        return _CARRIERS.index(kind) * self.cluster.scenario.world + index

    def _decoded(self, code: int) -> tuple[str, int]:
        kind, index = divmod(code, self.cluster.scenario.world)
        return _CARRIERS[kind], index

    @cached_property
    def _crossings(self) -> tuple[Ints, Ints]:
        """Each (device, channel) such that the channel's traffic crosses the device, once; codes of both.

        A channel is a group that communicates, or a pair of neighbours in a pipeline. The few bytes of the gradient
        norm are left out: no slowness shows in them.
        """
        cluster = self.cluster
        channels: list[tuple[Ints, Ints]] = []
        before = 0
        for scope in cluster.scopes:
            if scope in {Scope.PIPELINE, Scope.MODEL}:
                continue
            group, onward = cluster.group_of_rank[scope], self.next_host(scope)
            for row in cluster.groups(scope):
                hosts, counts = np.unique(cluster.host.ravel()[row], return_counts=True)
                local = hosts[counts > 1]
                channels.append((self._code("nvlink", local), np.full(len(local), before + group[row[0]])))
            ranks = np.flatnonzero(onward >= 0)
            channels += self._wires(ranks, onward[ranks], before + group[ranks])
            before += int(group.max()) + 1
        for stage in range(cluster.scenario.pp - 1):
            a, b = cluster.grid[stage], cluster.grid[stage + 1]
            far = ~cluster.same_host(stage, stage + 1)
            channels += self._wires(a[far], b[far], before + a[far])
            channels += self._wires(b[far], a[far], before + a[far])
            channels.append((self._code("nvlink", cluster.host[stage][~far]), before + a[~far]))
        device = np.concatenate([d for d, _ in channels]) if channels else np.zeros(0, dtype=np.int64)
        channel = np.concatenate([c for _, c in channels]) if channels else np.zeros(0, dtype=np.int64)
        once = np.unique(np.stack([device, channel]), axis=1)
        return once[0], once[1]

    def _wires(self, a: Ints, b: Ints, channel: Ints) -> list[tuple[Ints, Ints]]:
        """What a channel from one NIC to another crosses on the first one's side, and the spine."""
        spine = self.spine(a, b)
        across = spine >= 0
        crossed = [(self._code(kind, a), channel) for kind in ("nic", "link")]
        return [
            *crossed,
            (self._code("tor", self.tor[a]), channel),
            (self._code("spine", spine[across]), channel[across]),
        ]
