"""Which host of a slow group is the busy one, by the silences in its sends: a step beyond the paper, which stops at the
group.

A collective goes silent for all its members wherever one of them is late to move its data. A send waits for nobody
but those it goes to: where it goes silent, its own host was late, or less often, as slots hold some of it, one of
theirs. Few of them do, so sends of several iterations count together. Those of a host go silent together, so that a
single iteration proves nothing, however many they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Set
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np

from diagnosis.collective.grid import REMEMBERED
from diagnosis.collective.participation import COMPLETE, Participation
from diagnosis.collective.verdict import Verdict
from diagnosis.job import Job

_SILENT = 0.05
"""Part of a send's duration from which on it is silent: less is noise of epochs."""

_OFTENER = 1.5
"""How much oftener the sends of a busy host are silent than those of any other, at least."""

_CHANCE = 0.05
"""How likely it may be that two hosts whose sends are silent alike differ as much."""

_WINDOW = 10
"""Iterations that count together."""

_LEAST_ITERATIONS = 2
"""In which the sends of a busy host have gone silent."""

_SEEN = 0.5
"""Part of the sends of the host with most of them that is to be seen of each."""

_LEAST_HOSTS = 3
"""Hosts of which one can be told from the others."""


@dataclass(frozen=True, slots=True)
class Sends:
    """How many of a host's sends went silent, and for how long."""

    silent: int = 0
    all: int = 0
    silence_ns: int = 0

    def __add__(self, other: Sends) -> Sends:
        return Sends(self.silent + other.silent, self.all + other.all, self.silence_ns + other.silence_ns)

    @property
    def share(self) -> float:
        """The part of all that went silent; 0 where there are none."""
        return self.silent / max(self.all, 1)

    def oftener(self, other: Sends) -> bool:
        """Whether these go silent oftener than others, by more than chance; where there are no others they do."""
        if not other.all:
            return self.silent > 0
        if not self.all or self.share < _OFTENER * other.share:
            return False
        from scipy.special import bdtrc  # takes a tenth of the time that a role needs to start

        part = self.all / (self.all + other.all)
        return self.silent > 0 and bool(bdtrc(self.silent - 1, self.silent + other.silent, part) <= _CHANCE)


@dataclass
class SilentSends:
    """One job. ``recent``: by iteration the sends of the hosts of a slow group; ``usual``: those of all hosts in
    regular iterations, the last of which is ``learned``. With few slots some go silent in each of them."""

    recent: dict[int, dict[str, Sends]] = field(default_factory=dict)
    usual: deque[dict[str, Sends]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    learned: int | None = None

    def learn(self, iteration: int, span: int, table: Participation, job: Job) -> None:
        """Take in a regular iteration; ``table`` has the rows of as many as ``span`` up to it."""
        if iteration not in self.recent and (self.learned is None or iteration >= self.learned + span):
            self.learned = iteration
            self.usual.append(sends_by_host(table, job))

    def narrowed(self, verdict: Verdict, iteration: int, span: int, table: Participation, job: Job) -> Verdict:
        """A verdict on a group of hosts, or on the only one of it whose sends go silent, in this iteration as well.

        Of a group that is not seen whole nothing more is said: sends to a busy host go silent, too.
        """
        hosts = {job.clock(rank) for rank in verdict.ranks}
        own = {host: sends for host, sends in sends_by_host(table, job).items() if host in hosts}
        self.recent = {at: of for at, of in self.recent.items() if iteration - _WINDOW < at <= iteration - span}
        self.recent[iteration] = own
        if not hosts <= job.ranks_of_host.keys() or not _seen_whole(own, hosts):
            return verdict
        known = {host: _together(host, self.recent.values()) for host in own}
        busy = max(known, key=lambda host: known[host].share)
        others = [host for host in known if host != busy]
        if len(hosts) < _LEAST_HOSTS or not self._is_busy(busy, known[busy]):
            return verdict
        if any(own[host].share > own[busy].share or not known[busy].oftener(known[host]) for host in others):
            return verdict
        ranks = tuple(rank for rank in verdict.ranks if job.clock(rank) == busy)
        usually_ns = _together(busy, self.usual).silence_ns / max(len(self.usual), 1)
        return replace(
            verdict,
            level="machine",
            ranks=ranks,
            candidates=(),
            method="silent_sends",
            evidence={
                **verdict.evidence,
                "silent_share": known[busy].share,
                "others": max(known[host].share for host in others),
                "silence_ns": max(own[busy].silence_ns - usually_ns, 0.0) / len(ranks),
            },
        )

    def _is_busy(self, host: str, known: Sends) -> bool:
        """Whether its sends go silent oftener than is usual of it, in the latest iteration and in others."""
        silent = [at for at, of in self.recent.items() if host in of and of[host].silent]
        latest = max(self.recent)
        return len(silent) >= _LEAST_ITERATIONS and latest in silent and known.oftener(_together(host, self.usual))

    def to_state(self) -> dict[str, Any]:
        """In a form that JSON can carry."""
        return {
            "recent": [[at, _to_state(of)] for at, of in self.recent.items()],
            "usual": [_to_state(of) for of in self.usual],
            "learned": self.learned,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SilentSends:
        """What ``to_state`` described."""
        recent = {at: _from_state(of) for at, of in state["recent"]}
        usual = deque((_from_state(of) for of in state["usual"]), maxlen=REMEMBERED)
        return cls(recent, usual, state["learned"])


def sends_by_host(table: Participation, job: Job) -> dict[str, Sends]:
    """Of each host that has sent anything to single ranks."""
    whole = table.direct & (table.state == COMPLETE) & (table.duration_ns > 0)
    rank, silence = table.rank[whole], (table.duration_ns - table.actual_time_ns)[whole]
    silent = silence > _SILENT * table.duration_ns[whole]
    all_of, silent_of, silence_of = (np.bincount(rank, weights) for weights in (None, silent, silence * silent))
    found: dict[str, Sends] = {}
    for at in np.flatnonzero(all_of).tolist():
        host = job.clock(at)
        found[host] = found.get(host, Sends()) + Sends(int(silent_of[at]), int(all_of[at]), int(silence_of[at]))
    return found


def _seen_whole(own: Mapping[str, Sends], hosts: Set[str]) -> bool:
    """Whether all hosts were seen to send, none of them much less than the others."""
    most = max((sends.all for sends in own.values()), default=0)
    return own.keys() == hosts and all(sends.all >= _SEEN * most for sends in own.values())


def _together(host: str, each: Iterable[Mapping[str, Sends]]) -> Sends:
    return sum((of.get(host, Sends()) for of in each), Sends())


def _to_state(sends: Mapping[str, Sends]) -> dict[str, tuple[int, int, int]]:
    return {host: astuple(of) for host, of in sends.items()}


def _from_state(state: Mapping[str, tuple[int, int, int]]) -> dict[str, Sends]:
    return {host: Sends(*counts) for host, counts in state.items()}
