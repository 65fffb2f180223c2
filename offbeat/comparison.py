"""What was said of a time by two diagnoses, side by side: the same, gone, new, or said otherwise."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas import catalogue
from schemas.message import Message, decode
from schemas.topic import Topic
from streams.traffic_rows import METHOD as BY_TRAFFIC

Row = Mapping[str, Any]

FINDING, INCIDENT = "finding", "incident"
SAME, CHANGED, GONE, NEW = "same", "changed", "gone", "new"
VERDICTS = (SAME, CHANGED, GONE, NEW)

_CULPRIT = ("cause", "level", "ranks", "candidates", "devices")
_COMPARED = {FINDING: _CULPRIT, INCIDENT: (*_CULPRIT, "first_iteration", "last_iteration", "pattern", "state")}
"""What a person acts upon. Shares, confidence and times move with every setting."""

MOST_SAID = 50_000
"""Findings that a diagnosis is held to have said, and as many incidents: some 5 kB each."""


@dataclass
class Said:
    """The findings and the incidents of a diagnosis, by job and id; of an incident its newest revision.

    A processor that listens: rows that say that something is over are passed over. ``judged`` are the iterations, by
    job, that a verdict was given on; ``passed`` is how many NIC traffic showed, as far as findings tell. ``refused`` is
    why messages were buried. Findings and incidents beyond ``MOST_SAID`` are ``let_go``, and counted.
    """

    findings: dict[tuple[str, str], Row] = field(default_factory=dict)
    incidents: dict[tuple[str, str], Row] = field(default_factory=dict)
    judged: dict[str, set[int]] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    let_go: Counter[str] = field(default_factory=Counter)
    on_iteration: Callable[[int], None] = lambda _: None

    name = "comparison"
    reads: tuple[Topic, ...] = (
        catalogue.ITERATIONS,
        catalogue.FINDINGS,
        catalogue.INCIDENTS,
        catalogue.DEAD_LETTERS,
    )
    writes: tuple[Topic, ...] = ()

    def process(self, message: Message) -> Iterable[Message]:
        batch = decode(message, catalogue.TOPICS[message.topic])
        if message.topic == catalogue.DEAD_LETTERS.name:
            self.refused += batch.column("reason").to_pylist()
            return ()
        for row in batch.to_pylist():
            if message.topic == catalogue.ITERATIONS.name:
                if row["irregular"] is not None:
                    self.judged.setdefault(message.job, set()).add(row["iteration"])
            elif message.topic == catalogue.INCIDENTS.name:
                known = self.incidents.get((message.job, row["id"]))
                if known is None or row["revision"] >= known["revision"]:
                    self._hold(INCIDENT, self.incidents, (message.job, row["id"]), row)
            else:
                if row["method"] == BY_TRAFFIC:
                    self.passed[message.job] = max(self.passed.get(message.job, 0), row["iteration"] + 1)
                if row["active"]:
                    self._hold(FINDING, self.findings, (message.job, row["id"]), row)
        self.on_iteration(sum(map(len, self.judged.values())))
        return ()

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def _hold(self, what: str, held: dict[tuple[str, str], Row], key: tuple[str, str], row: Row) -> None:
        if key in held or len(held) < MOST_SAID:
            held[key] = row
        else:
            self.let_go[what] += 1

    def about(self, iterations: Mapping[str, Collection[int]]) -> Said:
        """What was said of some iterations, by job: findings on them, and incidents that lasted over one of them."""
        findings = {
            (job, of): row for (job, of), row in self.findings.items() if row["iteration"] in iterations.get(job, ())
        }
        ordered = {job: sorted(of_job) for job, of_job in iterations.items()}
        incidents = {
            (job, of): row
            for (job, of), row in self.incidents.items()
            if _any_within(ordered.get(job, ()), row["first_iteration"], row["last_iteration"])
        }
        return Said(findings, incidents, self.judged, self.passed, self.refused, self.let_go)


def _any_within(ordered: Sequence[int], first: int, last: int) -> bool:
    at = bisect_left(ordered, first)
    return at < len(ordered) and ordered[at] <= last


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding or incident: what became of it, what was said ``then`` and is ``now``, and which columns differ."""

    what: str
    verdict: str
    job: str
    then: Row | None
    now: Row | None
    columns: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """What is said of it, or was."""
        row = self.now if self.now is not None else self.then
        return {} if row is None else row


def compare(then: Said, now: Said) -> list[Difference]:
    """Every finding and incident of either, by job and iteration.

    The same id is the same thing. Of what is left, an incident or finding of then and one of now are the same thing
    said otherwise where they name a rank in common in iterations in common.
    """
    both = [*_compared(FINDING, then.findings, now.findings), *_compared(INCIDENT, then.incidents, now.incidents)]
    return sorted(both, key=lambda each: (each.what, each.job, _span(each.what, each.row), each.row["id"]))


def _compared(
    what: str, then: Mapping[tuple[str, str], Row], now: Mapping[tuple[str, str], Row]
) -> Iterator[Difference]:
    left = {key: row for key, row in now.items() if key not in then}
    for (job, of), before in then.items():
        after = now.get((job, of))
        if after is None:
            key = next((key for key, row in left.items() if key[0] == job and _is_one(what, before, row)), None)
            after = None if key is None else left.pop(key)
        if after is None:
            yield Difference(what, GONE, job, before, None)
            continue
        differs = tuple(name for name in _COMPARED[what] if _plain(before[name]) != _plain(after[name]))
        yield Difference(what, CHANGED if differs else SAME, job, before, after, differs)
    yield from (Difference(what, NEW, job, None, row) for (job, _), row in left.items())


def _is_one(what: str, before: Row, after: Row) -> bool:
    (a, b), (c, d) = _span(what, before), _span(what, after)
    return max(a, c) <= min(b, d) and bool(set(before["ranks"]) & set(after["ranks"]))


def _span(what: str, row: Row) -> tuple[int, int]:
    if what == FINDING:
        return row["iteration"], row["iteration"]
    return row["first_iteration"], row["last_iteration"]


def _plain(value: Any) -> Any:
    """Values that mean the same compare as the same: sets of ranks and devices have no order."""
    return sorted(map(repr, value)) if isinstance(value, list) else value
