"""What communicators serve, while the calls of a host's ranks come in (Pulse 5.2).

Two iterations show it, of which nothing says how long they are. So calls are looked at after twice as long each time,
until gradients are among them, and all that is called at all was called in the first half, and is called again in the
second. They are let go of then, until something much is called on a communicator that served nothing or was not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnosis.arrays import Ints
from diagnosis.columns import joint_codes
from diagnosis.traffic.calls import Calls
from diagnosis.traffic.parallelism import Parallelism, Parallelisms
from diagnosis.traffic.uses import is_much

MOST_CALLS = 1_000_000
PATIENCE_NS = 60_000_000_000
"""Calls that go on for so long without gradients synchronise none."""

LONGEST_NS = 600_000_000_000
"""After so many calls, or so long, what was seen has to do: what is looked at is kept, and read again after a
restart."""


@dataclass
class Identification:
    """``known``: what each communicator serves. ``from_ns``: since when calls are looked at, None where all are known
    that there are; ``next_ns``: when the next time. ``calls``: rows of telemetry.op_calls that are looked at."""

    known: dict[str, Parallelism] = field(default_factory=dict)
    from_ns: int | None = 0
    next_ns: int = 0
    calls: list[pa.Table] = field(default_factory=list)

    def to_state(self) -> dict[str, Any]:
        """All but the calls since ``from_ns``, in a form that JSON can carry."""
        return {"known": self.known, "from_ns": self.from_ns, "next_ns": self.next_ns}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Identification:
        """What ``to_state`` described; its calls come again."""
        return cls(dict(state["known"]), state["from_ns"], state["next_ns"])

    def take(self, table: pa.Table) -> None:
        """Take calls, of any time."""
        if self.from_ns is not None and table.num_rows:
            self.calls.append(table)

    def look(self, until_ns: int, tree: Parallelisms) -> None:
        """Identify what can be by the calls before a time."""
        if self.from_ns is None or until_ns < self.next_ns or not self.calls:
            return
        calls = self._looked_at(until_ns)
        if not len(calls):
            return
        first_ns = int(calls.call_ns.min())
        span_ns, served = until_ns - first_ns, tree.identify(calls)
        whole = "dp" in served.values() or span_ns >= PATIENCE_NS
        enough = len(calls) >= MOST_CALLS or span_ns >= LONGEST_NS
        if enough or (whole and _come_again(calls, first_ns + span_ns // 2)):
            self.known |= served
            self.from_ns, self.calls = None, []
        else:
            self.next_ns = first_ns + 2 * span_ns

    def look_again(
        self, between_ns: tuple[int, int], calls: Calls, told: Sequence[pa.Table], tree: Parallelisms
    ) -> None:
        """Look at calls again where those between two times show a communicator that was not known to serve anything.
        ``told``: rows of all that have come of that time and later, and maybe of others."""
        strange = np.array([self.known.get(name, "none") == "none" for name in calls.communicators], dtype=np.bool_)
        if self.from_ns is not None or not strange.any():
            return
        from_ns, to_ns = between_ns
        within = (calls.launch_ns >= from_ns) & (calls.launch_ns < to_ns)
        rows = np.flatnonzero(strange[calls.communicator] & within)
        if len(rows) and is_much(calls.take(rows), tree.members, tree.rules.small_bytes).any():
            self.from_ns, self.next_ns = from_ns, from_ns
            self.calls = [table for table in told if table.num_rows]

    def _looked_at(self, until_ns: int) -> Calls:
        table = pa.concat_tables(self.calls).unify_dictionaries()
        at = table.column("call_ns")
        return Calls.from_arrow(table.filter(pc.and_(pc.greater_equal(at, self.from_ns), pc.less(at, until_ns))))


def _come_again(calls: Calls, half_ns: int) -> bool:
    """Whether all that is called was called before a time, and is called after it, but for what never comes again."""
    code = joint_codes(calls.rank, calls.communicator, calls.op)
    first, last = (_latest(code, sign * calls.call_ns) * sign for sign in (-1, 1))
    return bool((first < half_ns).all() and (last >= half_ns).any())


def _latest(code: Ints, at_ns: Ints) -> Ints:
    latest = np.full(int(code.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, code, at_ns)
    return latest
