"""What ranks, hosts, communicators, NICs and queue pairs are called: ids that say nothing about what they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import numpy as np

from diagnosis.job import Communicator, Job, Layout, Place
from producers.simulation.cluster import EPOCH_NS
from producers.simulation.nic.background import FLOWS
from producers.simulation.nic.draws import Purpose, stream
from producers.simulation.nic.scenario import NicScenario
from producers.simulation.nic.slices import Ints
from producers.simulation.nic.wiring import Plan

_FIRST_NUMBER, _NUMBERS = 64, 1 << 24
_YEAR_S = 365 * 86400


class Names:
    """Names of one run. With ``relabel`` ranks and hosts get each other's, and on each host GPUs and NICs do."""

    def __init__(self, scenario: NicScenario) -> None:
        self._scenario = scenario
        ranks, hosts, places = np.arange(scenario.world), np.arange(scenario.hosts), np.arange(scenario.tp)
        if scenario.relabel is not None:
            chance = stream(scenario.relabel, Purpose.NAMES)
            ranks, hosts, places = chance.permutation(ranks), chance.permutation(hosts), chance.permutation(places)
        self.rank: Ints = ranks
        self._place: list[int] = places.tolist()
        self.hosts = [f"h{host}" for host in hosts]
        second = int(stream(scenario.seed, Purpose.START).integers(_YEAR_S))
        self.started_ns = EPOCH_NS + second * 1_000_000_000
        digest = blake2b(f"{scenario.seed}/job".encode(), digest_size=4).hexdigest()
        self.job_id = f"{scenario.workload}-{scenario.world}-{digest}"

    def place(self, rank: int) -> int:
        """Number of a rank's GPU on its host."""
        return self._place[rank % self._scenario.tp]

    def nic(self, rank: int) -> str:
        """Name of a rank's NIC on its host."""
        return f"mlx5_{self.place(rank)}"

    def gid(self, rank: int) -> str:
        """Address of a rank's NIC."""
        host = int(self.hosts[self._scenario.host_of(rank)][1:])
        return f"fe80::{host + 1:x}:{self.place(rank) + 1:x}"

    def communicator(self, name: str) -> str:
        """Opaque id of a communicator."""
        return blake2b(f"{self._scenario.seed}/{name}".encode(), digest_size=8).hexdigest()

    def job(self, communicators: Mapping[str, Sequence[int]], ended_ns: int | None) -> Job:
        """The job as its scheduler describes it."""
        s = self._scenario
        places = sorted(
            (Place(int(self.rank[r]), self.hosts[s.host_of(r)], self.place(r), (self.nic(r),)) for r in range(s.world)),
            key=lambda place: place.rank,
        )
        groups = [
            Communicator(self.communicator(name), tuple(int(self.rank[r]) for r in members))
            for name, members in communicators.items()
        ]
        experts = s.dp if s.workload.exchanges else 1
        known = s.describe_layout and s.relabel is None
        layout = Layout(tp=s.tp, pp=s.pp, dp=s.dp, cp=1, ep=experts, source="given") if known else None
        groups.sort(key=lambda group: group.communicator)
        return Job(self.job_id, tuple(places), tuple(groups), layout, self.started_ns, ended_ns)


class QueuePairs:
    """Numbers of all queue pairs: each connection has one at either end, and others have some on every NIC.

    ``data`` (connections,) are the senders', ``control`` the receivers', ``others`` (NICs, flows) in no map.
    """

    def __init__(self, scenario: NicScenario, plan: Plan) -> None:
        self.source, self.destination = plan.source[:-1], plan.destination[:-1]
        connections = len(self.source)
        ends = np.concatenate([self.source, self.destination, np.repeat(np.arange(scenario.world), FLOWS)])
        numbers = np.zeros(len(ends), dtype=np.int64)
        for nic in range(scenario.world):
            own = np.flatnonzero(ends == nic)
            chance = stream(scenario.seed, Purpose.NUMBERS, nic)
            drawn = chance.permutation(np.unique(chance.integers(_FIRST_NUMBER, _NUMBERS, size=2 * len(own) + 16)))
            numbers[own] = drawn[: len(own)]
        self.data, self.control = numbers[:connections], numbers[connections : 2 * connections]
        self.others = numbers[2 * connections :].reshape(scenario.world, FLOWS)
