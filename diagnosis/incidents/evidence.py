"""What the incidents are joined from and what they say, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from diagnosis.topology import Device

Ranks = tuple[int, ...]


def hangs(cause: str | None) -> bool:
    """Whether it is the cause of iterations that never end."""
    return (cause or "").startswith("hang_")


@dataclass(frozen=True, slots=True)
class Stage:
    """Part of the iteration that lost the time; None: not known."""

    phase: str | None = None
    pipeline_stage: int | None = None
    microbatch: int | None = None
    op: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One finding: a row of analysis.findings without what only people read.

    ``step_from``: its iteration was longer still than its run, as others from this one on, which lost
    ``step_excess_ns`` in all. ``since``, which is told where findings are joined: until then others alone explained
    the run; from there on it lost ``since_excess_ns``. ``prominence``: so many times what regular iterations scatter
    (``scatter_ns``) its iteration was longer than expected; None: not known. ``rule`` is that of the method by which it
    was decided, where it names any.
    """

    id: str
    method: str
    active: bool
    iteration: int | None
    pattern: str | None
    first_iteration: int | None
    last_iteration: int | None
    cause: str | None
    level: str | None
    ranks: Ranks
    candidates: tuple[Ranks, ...]
    devices: tuple[Device, ...]
    stage: Stage
    run_excess_ns: int
    share: float
    coverage: float
    found_ns: int
    step_from: int | None = None
    step_excess_ns: int = 0
    since: int | None = None
    since_excess_ns: int = 0
    period: float | None = None
    prominence: float | None = None
    rule: str | None = None

    @property
    def at(self) -> int:
        """The iteration that it is about, as its method numbers them."""
        return self.iteration or 0

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Evidence:
        """Build from a row of analysis.findings."""
        evidence = row.get("evidence") or {}
        plain: dict[str, Any] = {name: row.get(name) for name in _PLAIN}
        return cls(
            **plain,
            ranks=tuple(row.get("ranks") or ()),
            candidates=tuple(tuple(c) for c in row.get("candidates") or ()),
            devices=_own(tuple(Device(**device) for device in row.get("devices") or ())),
            stage=Stage(**(row.get("stage") or {})),
            run_excess_ns=row.get("run_excess_ns") or 0,
            step_excess_ns=row.get("step_excess_ns") or 0,
            share=evidence.get("share") or 0.0,
            coverage=1.0 if row.get("coverage") is None else row["coverage"],
            prominence=_prominence(row),
        )


def _prominence(row: Mapping[str, Any]) -> float | None:
    """An iteration's excess in units of what regular ones scatter, where that is known and not nothing."""
    lasted_ns, expected_ns, scatter_ns = (row.get(name) for name in ("iteration_ns", "expected_ns", "scatter_ns"))
    if lasted_ns is None or expected_ns is None or not scatter_ns:
        return None
    return float((lasted_ns - expected_ns) / scatter_ns)


def _own(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Those that serve one NIC at most, or all where none does: the finding is about a switch then.

    Else one NIC's slowness is no evidence on a switch, which serves many: what several findings say of it together is
    for the ranking over iterations to weigh.
    """
    return tuple(device for device in devices if (device.downside_nics or 0) <= 1) or devices


_PLAIN = (
    "id",
    "method",
    "active",
    "iteration",
    "pattern",
    "period",
    "first_iteration",
    "last_iteration",
    "cause",
    "level",
    "found_ns",
    "step_from",
    "rule",
)


class Run(NamedTuple):
    """An irregular run by its first iteration, as a method numbers them."""

    method: str
    first: int


class Span(NamedTuple):
    """What an incident has of an irregular run: its iterations from ``began`` on, and what they cost.

    It may begin within the run, with a step; ``before_ns`` is what the run had lost to others by then. ``share`` is
    what findings explain together of ``at``, the newest iteration that there are any on.
    """

    began: int
    last: int
    lost_ns: int
    before_ns: int = 0
    at: int = 0
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Incident:
    """What a person is paged for.

    ``runs`` tells what is affected of each run, as each of the ``methods`` sees it; the oldest one of a method may
    stand for more, that of the method that opened the incident for ``folded`` more. ``share`` is the largest that a
    finding on its ranks has of an iteration's delay. ``period``: it comes again after so many iterations. ``rule`` is
    that of the newest finding which names just its ranks, for its cause; None: that names none.
    """

    id: str
    revision: int
    state: str
    cause: str
    level: str
    ranks: Ranks
    candidates: tuple[Ranks, ...]
    devices: tuple[Device, ...]
    stage: Stage
    pattern: str | None
    runs: Mapping[Run, Span]
    doubt: float
    methods: tuple[str, ...]
    findings: tuple[str, ...]
    opened_ns: int
    updated_ns: int
    resolved_ns: int | None = None
    folded: int = 0
    share: float = 0.0
    period: float | None = None
    rule: str | None = None

    @property
    def first_iteration(self) -> int:
        """First affected iteration, as the method that opened the incident numbers them."""
        return min(span.began for span in self._opening)

    @property
    def last_iteration(self) -> int:
        """Last affected iteration so far, numbered alike."""
        return max(span.last for span in self._opening)

    def spans(self, method: str, iteration: int) -> bool:
        """Whether an iteration, as a method numbers it, lies between the first and the last that it sees affected."""
        own = self._of(method)
        return bool(own) and min(span.began for span in own) <= iteration <= max(span.last for span in own)

    @property
    def occasions(self) -> int:
        """Runs that it was seen in, by the method that opened it."""
        return len(self._opening) + self.folded

    @property
    def lost_ns(self) -> int:
        """Time that the job lost so far, by the method that saw most of it; 0 where that is not known."""
        lost: Counter[str] = Counter()
        for run, span in self.runs.items():
            lost[run.method] += span.lost_ns
        return max(lost.values())

    @property
    def _opening(self) -> list[Span]:
        """The runs of the method that opened the incident."""
        return self._of(self.methods[0])

    def _of(self, method: str) -> list[Span]:
        return [span for run, span in self.runs.items() if run.method == method]

    @property
    def confidence(self) -> float:
        """How sure, never beyond 0.99: each finding leaves what it does not explain as doubt."""
        return round(min(0.99, 1.0 - self.doubt), 4)

    def to_state(self) -> dict[str, Any]:
        """A form that JSON can carry."""
        return {**asdict(self), "runs": [[*run, *span] for run, span in self.runs.items()]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Incident:
        """The incident that ``to_state`` described."""
        known = {f.name: state[f.name] for f in fields(cls) if f.name in state}
        return cls(
            **{
                **known,
                "ranks": tuple(state["ranks"]),
                "candidates": tuple(tuple(c) for c in state["candidates"]),
                "devices": tuple(Device(**d) for d in state["devices"]),
                "stage": Stage(**state["stage"]),
                "runs": {Run(method, first): Span(*span) for method, first, *span in state["runs"]},
                "methods": tuple(state["methods"]),
                "findings": tuple(state["findings"]),
            }
        )


def evidence_to_state(evidence: Evidence) -> dict[str, Any]:
    """A form of a finding that JSON can carry."""
    return asdict(evidence)


def evidence_from_state(state: Mapping[str, Any]) -> Evidence:
    """The finding that ``evidence_to_state`` described."""
    known = {f.name: state[f.name] for f in fields(Evidence) if f.name in state}
    return Evidence(
        **{
            **known,
            "ranks": tuple(state["ranks"]),
            "candidates": tuple(tuple(c) for c in state["candidates"]),
            "devices": tuple(Device(**d) for d in state["devices"]),
            "stage": Stage(**state["stage"]),
        }
    )
