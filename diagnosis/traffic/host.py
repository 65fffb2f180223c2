"""One host's NIC traffic while its telemetry comes in, in fixed steps of time (Pulse 3.2).

What a step tells hangs on what happened before it alone, not on how polls and calls came in between each other; of
queue pairs it matters which were known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.columns import joint_codes
from diagnosis.job import Job
from diagnosis.traffic.calls import Calls, LetGo
from diagnosis.traffic.epochs import Poll
from diagnosis.traffic.identification import Identification
from diagnosis.traffic.parallelism import Parallelisms
from diagnosis.traffic.queue_pairs import QueuePairs
from diagnosis.traffic.telling import Served, Surroundings, Told, tell
from diagnosis.traffic.windows import NicWindow, WindowRules, host_ns

_PAIRS = pa.schema(
    [
        ("nic", pa.string()),
        ("qpn", pa.int64()),
        ("source_rank", pa.int64()),
        ("destination_rank", pa.int64()),
        ("valid_from_ns", pa.int64()),
        ("valid_to_ns", pa.int64()),
    ]
)
"""What is kept of a row of telemetry.queue_pairs."""


_MOST_LET_GO = 100_000
"""Communicators of ranks whose last call is remembered."""


@dataclass(frozen=True, slots=True)
class StepRules:
    """When a host's telemetry is looked at for operators (Pulse 3.2)."""

    step_ns: int = field(default=500_000_000, metadata={"least": 1_000_000})
    """Telemetry between two looks, in nanoseconds; a lower value tells operators sooner, and takes more of a
    processor."""
    late_ns: int = 50_000_000
    """How late a call may be told, in nanoseconds: a look waits until calls are known for so long beyond what it looks
    at."""
    patience_ns: int = 3_000_000_000
    """How far a NIC may be behind the newest telemetry of its host, in nanoseconds, before a look goes on without it;
    queue pairs of which nothing is told are waited for as long."""
    window: WindowRules = field(default_factory=WindowRules)


@dataclass
class HostTraffic:
    """What a host of a job told and has not been let go of.

    ``at_ns``: up to when it is told what was found; None: nothing was polled yet. ``polled_ns``: up to when each NIC is
    polled, ``called_ns``: up to when calls are known; all by the host's clock. ``let_go``: the last call that is
    no longer kept, by rank and communicator.
    """

    host: str
    rules: StepRules
    at_ns: int | None = None
    called_ns: int = 0
    windows: dict[str, NicWindow] = field(default_factory=dict)
    polled_ns: dict[str, int] = field(default_factory=dict)
    calls: list[pa.Table] = field(default_factory=list)
    let_go: dict[tuple[int, str], LetGo] = field(default_factory=dict)
    pairs: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    serving: Identification = field(default_factory=Identification)
    _of_nic: dict[str, QueuePairs] | None = field(default=None, init=False, repr=False)
    _known_calls: Calls | None = field(default=None, init=False, repr=False)

    @property
    def needed_from_ns(self) -> int:
        """Since when telemetry is kept."""
        return min((window.from_ns for window in self.windows.values()), default=0)

    @property
    def calls_needed_from_ns(self) -> int:
        """Since when calls are kept."""
        needed, looked_at = self.needed_from_ns, self.serving.from_ns
        return needed if looked_at is None else min(needed, looked_at)

    def to_state(self) -> dict[str, Any]:
        """All but polls since ``needed_from_ns`` and calls since ``calls_needed_from_ns``, in a form that JSON can
        carry."""
        return {
            "host": self.host,
            "at_ns": self.at_ns,
            "windows": {nic: window.to_state() for nic, window in self.windows.items()},
            "let_go": [[*of, *last] for of, last in self.let_go.items()],
            "pairs": list(self.pairs.values()),
            "serving": self.serving.to_state(),
        }

    @classmethod
    def from_state(cls, rules: StepRules, state: Mapping[str, Any]) -> HostTraffic:
        """The traffic that ``to_state`` described; polls and calls come again."""
        return cls(
            state["host"],
            rules,
            at_ns=state["at_ns"],
            windows={nic: NicWindow.from_state(nic, rules.window, own) for nic, own in state["windows"].items()},
            let_go={(rank, communicator): LetGo(*last) for rank, communicator, *last in state["let_go"]},
            pairs={_of_pair(row): row for row in state["pairs"]},
            serving=Identification.from_state(state["serving"]),
        )

    def take_polls(self, table: pa.RecordBatch) -> int:
        """Take rows of telemetry.nic_epochs; up to when they tell. A NIC is polled as far as all parts have come."""
        newest = 0
        for nic, polls in Poll.by_nic(table).items():
            window = self.windows.setdefault(nic, NicWindow(nic, self.rules.window))
            window.polls += [poll for poll in polls if host_ns(poll, poll.to_ns) > window.from_ns]
            parts = Counter(from_ns for from_ns, _ in {(poll.from_ns, poll.part) for poll in window.polls})
            whole = [host_ns(poll, poll.to_ns) for poll in polls if parts[poll.from_ns] >= poll.parts]
            self.polled_ns[nic] = max(self.polled_ns.get(nic, 0), *whole, 0)
            newest = max(newest, *(host_ns(poll, poll.to_ns) for poll in polls))
            if self.at_ns is None:
                began = min(host_ns(poll, poll.from_ns) for poll in polls)
                self.at_ns = began // self.rules.step_ns * self.rules.step_ns
        return newest

    def take_calls(self, table: pa.RecordBatch, told_ns: int) -> int:
        """Take rows of telemetry.op_calls, after which all calls before ``told_ns`` are known; when the last began."""
        self.called_ns = max(self.called_ns, told_ns)
        if table.num_rows or not self.calls:
            self.calls.append(pa.Table.from_batches([table]))
            self.serving.take(self.calls[-1])
            self._known_calls = None
        return _newest(table)

    def take_pairs(self, table: pa.RecordBatch) -> None:
        """Take rows of telemetry.queue_pairs. Where there is a new one, it has to show again that all are known."""
        for row in table.select(_PAIRS.names).to_pylist():
            if row["nic"] in self.windows and _of_pair(row) not in self.pairs:
                self.windows[row["nic"]].remapped(row["source_rank"], row["destination_rank"])
            self.pairs[_of_pair(row)] = row
        self._of_nic = None

    def steps(self, job: Job) -> Iterator[tuple[int, list[Told]]]:
        """Take the steps that can be taken now: up to when each goes, and what it tells."""
        while not self.is_over(job) and (until_ns := self._next_ns(job)) is not None:
            yield until_ns, self._step(until_ns, job)

    def is_over(self, job: Job) -> bool:
        """Whether all is told of a job that has ended."""
        ended = self._ended_ns(job)
        return self.at_ns is not None and ended is not None and self.at_ns >= ended

    def _next_ns(self, job: Job) -> int | None:
        """The time that can be stepped to now; None: telemetry has not passed it."""
        if self.at_ns is None:
            return None
        until = self._skipped(self.at_ns) + self.rules.step_ns
        ended = self._ended_ns(job)
        if ended is not None:
            until = min(until, ended)
        newest = max(self.polled_ns.values(), default=0)
        behind = not self.pairs or any(self.polled_ns.get(nic, 0) < until for nic in self._nics(job))
        waited = newest >= until + self.rules.patience_ns
        called = until + self.rules.late_ns if ended is None else min(until + self.rules.late_ns, ended)
        known = newest >= until and self.called_ns >= called
        return until if known and (waited or not behind) else None

    def _ended_ns(self, job: Job) -> int | None:
        """When all of a job that has ended is told."""
        return None if job.ended_ns is None else job.ended_ns + self.rules.late_ns

    def _step(self, until_ns: int, job: Job) -> list[Told]:
        """Tell what telemetry up to a time shows, NIC by NIC."""
        if self._known_calls is None:
            self._known_calls = Calls.from_arrow(pa.concat_tables(self.calls).unify_dictionaries(), self.let_go)
        calls, queue_pairs = self._known_calls, self._queue_pairs()
        tree = Parallelisms(job.members, lambda one, other: job.on_one_host((one, other)))
        self.serving.look(until_ns, tree)
        around = Surroundings(job.members, tree.same_host, self.serving.known)
        served = []
        for nic, window in sorted(self.windows.items()):
            own = queue_pairs.get(nic, QueuePairs.none())
            served.append(Served(window, np.flatnonzero(np.isin(calls.rank, self._served(nic, job, own))), own))
        found = tell(until_ns, calls, served, around)
        self.serving.look_again((self.at_ns or 0, until_ns), calls, self.calls, tree)
        self.at_ns = until_ns
        self._forget()
        return found

    def _queue_pairs(self) -> dict[str, QueuePairs]:
        """Those of each NIC; built anew once others are told."""
        if self._of_nic is None:
            pairs = pa.Table.from_pylist(list(self.pairs.values()), schema=_PAIRS)
            names = pairs.column("nic")
            self._of_nic = {
                nic: QueuePairs.from_arrow(pairs.filter(pc.equal(names, nic))) for nic in names.unique().to_pylist()
            }
        return self._of_nic

    def _skipped(self, at_ns: int) -> int:
        """Where time goes on after nothing was polled."""
        polls = [poll for window in self.windows.values() for poll in window.polls]
        began = [host_ns(poll, poll.from_ns) for poll in polls if host_ns(poll, poll.to_ns) > at_ns]
        return max(at_ns, min(began, default=at_ns) // self.rules.step_ns * self.rules.step_ns)

    def _nics(self, job: Job) -> Iterable[str]:
        """The NICs that are to be polled: those of the host's ranks that send between hosts, as far as is known."""
        named = {nic for rank in job.ranks_of_host.get(self.host, ()) for nic in job.place[rank].nics}
        return self._queue_pairs().keys() & named if named else self._queue_pairs().keys()

    def _served(self, nic: str, job: Job, queue_pairs: QueuePairs) -> Sequence[int]:
        """The ranks that send by a NIC."""
        named = [rank for rank in job.ranks_of_host.get(self.host, ()) if nic in job.place[rank].nics]
        return named or np.unique(queue_pairs.source).tolist()

    def _forget(self) -> None:
        before = self.needed_from_ns
        while any(table.num_rows for table in self.calls) and _newest(self.calls[0]) < before:
            self._let_go(self.calls[0])
            self.calls, self._known_calls = self.calls[1:] or [self.calls[0].slice(0, 0)], None
        pairs = {key: row for key, row in self.pairs.items() if (row["valid_to_ns"] or before) >= before}
        if len(pairs) < len(self.pairs):
            self.pairs, self._of_nic = pairs, None

    def _let_go(self, table: pa.Table) -> None:
        """Remember the last calls of what is kept no longer."""
        calls = Calls.from_arrow(table, self.let_go)
        code = joint_codes(calls.rank, calls.communicator)
        order = np.lexsort((calls.seq, code))
        for row in order[np.diff(code[order], append=-1) != 0].tolist():
            of = int(calls.rank[row]), calls.communicators[calls.communicator[row]]
            last = LetGo(int(calls.seq[row]), int(calls.lost[row]))
            self.let_go[of] = max(last, self.let_go.pop(of, last))
        while len(self.let_go) > _MOST_LET_GO:
            del self.let_go[next(iter(self.let_go))]


def _of_pair(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["nic"], row["qpn"], row["valid_from_ns"]


def _newest(table: pa.Table | pa.RecordBatch) -> int:
    """When the last of some calls may have begun."""
    times = (pc.max(table.column(name)).as_py() for name in ("call_ns", "group_end_ns"))
    return max((at for at in times if at is not None), default=0)
