"""The steps that look at NIC traffic as cases of the contract suite, fed with what two simulated jobs told."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path

from diagnosis.traffic.host import StepRules
from offbeat import wiring
from offbeat.settings import Settings
from producers.job_source import job_message
from producers.simulation.nic import Fault, Injection, NicRun, NicScenario, Workload, simulate_nics
from schemas import catalogue
from schemas.message import Message
from streams import in_process
from streams.control_view import Jobs
from streams.segment import Segment
from tests.streams.examples import Listener
from tests.streams.journey import Case

SETTINGS = Settings()
_FROM_NS = 1_800_000_000_000_000_000
SLOW_NIC = Fault(Injection.PCIE_DOWNGRADE, 2, at_s=0.05, severity=0.4)


@cache
def runs() -> tuple[NicRun, ...]:
    small = {"tp": 1, "dp": 4, "pp": 1, "iterations": 18, "forward_s": 0.005, "shrink": 64, "poll_s": 0.2}
    return tuple(
        simulate_nics(NicScenario(seed, Workload.NEIGHBOURS, faults=faults, **small))  # type: ignore[arg-type]
        for seed, faults in ((3, (SLOW_NIC,)), (4, ()))
    )


@cache
def _told() -> tuple[Message, ...]:
    """What both jobs told, in turn; stamped as they come, as by a broker."""
    both = zip_longest(*(run.messages() for run in runs()))
    told = (message for message in chain.from_iterable(both) if message is not None)
    return tuple(replace(message, timestamp_ns=_FROM_NS + at) for at, message in enumerate(told))


@cache
def _metrics() -> tuple[Message, ...]:
    heard = Listener((catalogue.TRAFFIC_METRICS,))
    jobs = Jobs()
    in_process.run([in_process.Recorded([*_jobs(), *_told()])], [jobs, _segment(jobs), heard])
    return tuple(heard.heard)


def _segment(jobs: Jobs) -> Segment:
    """In small steps, so that there are many, and saving what it can."""
    return Segment(jobs, StepRules(step_ns=40_000_000), save_every_ns=80_000_000)


def _jobs() -> Iterable[Message]:
    return [job_message(run.job) for run in runs()]


def segment(_: Path) -> Case:
    def inputs() -> Sequence[Message]:
        return [*_jobs(), *_told()]

    judged = (catalogue.OPERATORS, catalogue.TRAFFIC_METRICS)
    return Case("segment", _segment, inputs, judged=judged)


def compare(_: Path) -> Case:
    def inputs() -> Sequence[Message]:
        return [*_jobs(), *_metrics()]

    return Case("compare", lambda jobs: wiring.step("compare", jobs, SETTINGS), inputs, judged=(catalogue.FINDINGS,))
