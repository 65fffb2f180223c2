"""Scores as figures: counts, shares and their 95 % intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.simulated.figures import share
from benchmarks.traffic.scoring import (
    CANDIDATES,
    FALSE,
    GROUP,
    HOT,
    NO_DEVICE,
    NOT_HOT,
    RIGHT,
    WRONG_CLASS,
    FaultScore,
    Said,
)
from benchmarks.traffic.trial import Score
from producers.simulation.nic import BEYOND, Class, Setup
from producers.simulation.nic.faults import Injection

Figures = dict[str, Any]
Key = Callable[[Score, FaultScore], str]

MISSED = "missed"
_LEVELS = (RIGHT, CANDIDATES, GROUP, WRONG_CLASS, FALSE)
"""Of the answers on a run, the best one tells how far it was localised."""

_HIT = frozenset({RIGHT, CANDIDATES, GROUP})
_TO_MACHINE = frozenset({RIGHT, CANDIDATES})
_WITH_EXPERTS = (Setup.MIXTRAL, Setup.HOT_EXPERTS)
_BEYOND = frozenset(str(combination) for combination in BEYOND)
_NOTICED = (1.01, 1.1)
"""Slowdowns below are hardly any, those from the second on are plain."""


def summarise(scores: Sequence[Score]) -> Figures:
    """All figures of runs under one profile of noise: of table 4, then of what lies beyond it.

    ``logs_of_operators``: the same of the search that sees when operators began and ended, and nothing below.
    """
    faulty = [score for score in scores if score.fault is not None]
    table_4, beyond = _of_table_4(scores), [score for score in faulty if score.what in _BEYOND]
    in_logs = [replace(score, said=score.beside, at_first=()) for score in scores]
    return {
        "runs": {"table_4": len(table_4), "beyond": len(beyond), "healthy": len(scores) - len(faulty)},
        "all": _of_class(table_4),
        "classes": {kind.value: _of_class(of) for kind in Class if (of := _of(table_4, kind))},
        "healthy": _of_healthy([score for score in scores if score.fault is None]),
        "table_3": _table_3(scores),
        "beyond": _localised(beyond, lambda score, _: score.what),
        "recall_by": {
            "setup": _recall_by(table_4, lambda score, _: score.setup.value),
            "severity": _recall_by(table_4, lambda score, _: score.what),
            "slowdown": _recall_by(table_4, lambda _, fault: _felt(fault)),
        },
        "logs_of_operators": {
            "all": _of_class(_of_table_4(in_logs)),
            "healthy": _of_healthy([score for score in in_logs if score.fault is None]),
            "table_3": _table_3(in_logs),
        },
        "shrink": {setup.value: shrink for setup, shrink in sorted(_shrunk(scores).items())},
        "cost_s": _cost(scores),
        "failures": [failure for score in scores if (failure := _failure(score))],
    }


def _of_table_4(scores: Sequence[Score]) -> list[Score]:
    return [score for score in scores if score.fault is not None and score.what not in _BEYOND]


def _of(scores: Iterable[Score], kind: Class) -> list[Score]:
    return [score for score in scores if score.fault is not None and score.fault.kind == kind]


def _of_class(scores: Sequence[Score]) -> Figures:
    """By the definitions of Pulse 8.1, of runs with faults.

    ``recall``: the faulty machine is among those named, with the right kind; ``to_machine``: it alone, or beside the
    one that the evidence cannot tell it from. ``precision`` is of named nodes, ``answers_right`` of answers and
    ``first_told_right`` of them as people were told first: of a group all count its normal nodes against it.
    ``false_positives``: of all normal nodes, those named.
    """
    best = [_best(score) for score in scores]
    verdicts = Counter(said.verdict for score in scores for said in score.said)
    hits = sum(verdict in _HIT for verdict in best)
    innocent = sum(_innocent(score) for score in scores)
    normal = sum(score.hosts - 1 for score in scores)
    return {
        "recall": share(hits, len(best)),
        "to_machine": share(sum(verdict in _TO_MACHINE for verdict in best), len(best)),
        "two_candidates": sum(verdict == CANDIDATES for verdict in best),
        "precision": share(hits, hits + innocent),
        "answers_right": share(*_right(said for score in scores for said in score.said)),
        "first_told_right": share(*_right(said for score in scores for said in score.at_first)),
        "false_positives": share(innocent, normal),
        "device_right": share(_devices_right(scores), sum(verdict == RIGHT for verdict in best)),
        "verdicts": dict(verdicts),
    }


def _right(answers: Iterable[Said]) -> tuple[int, int]:
    """How many answers that blame somebody are right, and how many there are."""
    blaming = [said.verdict for said in answers if said.verdict not in NO_DEVICE]
    return sum(verdict in _TO_MACHINE for verdict in blaming), len(blaming)


def _of_healthy(scores: Sequence[Score]) -> Figures:
    """``uneven``: runs of which it is said that some have more to do, which blames no machine."""
    quiet = [all(said.verdict in NO_DEVICE for said in score.said) for score in scores]
    uneven = sum(any(said.verdict in NO_DEVICE for said in score.said) for score in scores)
    return {
        "without_blame": share(sum(quiet), len(quiet)),
        "uneven": share(uneven, len(quiet)),
        "false_answers": dict(Counter(said.cause for score in scores for said in score.said if said.verdict == FALSE)),
    }


def _best(score: Score) -> str:
    verdicts = {said.verdict for said in score.said}
    return next((level for level in _LEVELS if level in verdicts), MISSED)


def _innocent(score: Score) -> int:
    """Nodes named that are normal, or for what they do not have, each once, however often; as many as are normal."""
    named = {host for said in score.said for host in said.normal_hosts}
    return min(len(named), score.hosts - (score.fault is not None))


def _devices_right(scores: Iterable[Score]) -> int:
    return sum(any(said.device_right for said in score.said) for score in scores)


def _table_3(scores: Sequence[Score]) -> Figures:
    """How far each injection was localised, by setup: those of table 4, and misaligned memory. Uneven experts are
    injected nowhere: of how many runs with experts those that get most are named, and others, by whether they are
    hotter than they come by chance."""
    aligned = Injection.MEMORY_ALIGNMENT
    faulty = [s for s in scores if s.fault and (s.what not in _BEYOND or s.fault.injection == aligned)]
    injections = {score.fault.injection for score in faulty if score.fault is not None}
    routed = [score for score in scores if score.setup in _WITH_EXPERTS]
    return {
        **{
            name: _localised([s for s in faulty if s.fault and s.fault.injection == name], lambda s, _: s.setup.value)
            for name in sorted(injections)
        },
        "expert_imbalance": {
            setup.value: {
                verdict: share(sum(any(said.verdict == verdict for said in score.said) for score in own), len(own))
                for verdict in (HOT, NOT_HOT)
            }
            for setup in _WITH_EXPERTS
            if (own := [score for score in routed if score.setup is setup])
        },
    }


def _localised(scores: Sequence[Score], key: Key) -> Figures:
    """How many runs were localised how far, and which part ``to_machine``."""
    rows: dict[str, Counter[str]] = {}
    for score in scores:
        assert score.fault is not None
        rows.setdefault(key(score, score.fault), Counter())[_best(score)] += 1
    return {
        name: {**row, "to_machine": share(sum(row[verdict] for verdict in _TO_MACHINE), row.total())}
        for name, row in rows.items()
    }


def _recall_by(scores: Sequence[Score], key: Key) -> Figures:
    groups: dict[str, list[bool]] = {}
    for score in scores:
        assert score.fault is not None
        groups.setdefault(key(score, score.fault), []).append(_best(score) in _HIT)
    return {name: share(sum(hits), len(hits)) for name, hits in sorted(groups.items())}


def _felt(fault: FaultScore) -> str:
    low, high = _NOTICED
    if fault.slowdown is None:
        return "not told"
    return f"below {low}" if fault.slowdown < low else f"below {high}" if fault.slowdown < high else f"{high} or more"


def _shrunk(scores: Iterable[Score]) -> dict[Setup, float]:
    """By how much the volumes of each setup, and with them its computing, are smaller than real ones."""
    return {score.setup: score.case.scenario().shrink for score in scores}


def _cost(scores: Sequence[Score]) -> Figures:
    if not scores:
        return {}
    return {
        "simulate": round(median(score.simulate_s for score in scores), 2),
        "detect": round(median(score.detect_s for score in scores), 2),
        "all": round(sum(score.simulate_s + score.detect_s for score in scores)),
    }


def _failure(score: Score) -> Figures | None:
    """What went wrong in a run, for whoever wants to look at it."""
    wrong = [said for said in score.said if said.verdict in {FALSE, WRONG_CLASS}]
    missed = score.fault is not None and _best(score) not in _HIT
    if not missed and not wrong:
        return None
    return {
        "seed": score.seed,
        "what": score.what,
        "noise": score.noise,
        "fault": None if score.fault is None else [list(score.fault.ranks), score.fault.slowdown],
        "missed": missed,
        "said": [[said.verdict, said.cause, said.level, list(said.ranks)] for said in score.said],
    }
