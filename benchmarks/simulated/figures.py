"""Scores as figures: counts, shares and their 95 % intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks.simulated.scoring import HIDDEN, MISSED, NAMED, NARROWED, PART, REQUIRED, TOP_K, FaultScore
from benchmarks.simulated.trial import Score
from producers.simulation.scenarios import Story

Figures = dict[str, Any]

_WRONG = ("false", "wrong_cause", PART)


def share(count: int, of: int) -> Figures | None:
    """A proportion with its Wilson interval; None of nothing."""
    from scipy.stats import binomtest

    if not of:
        return None
    interval = binomtest(count, of).proportion_ci(method="wilson")
    bounds = [round(float(bound), 4) for bound in (interval.low, interval.high)]
    return {"count": count, "of": of, "share": round(count / of, 4), "interval_95": bounds}


def summarise(scores: Sequence[Score]) -> Figures:
    """All figures of runs under one profile of noise."""
    faulty = [score for score in scores if score.story != Story.HEALTHY]
    healthy = [score for score in scores if score.story == Story.HEALTHY]
    faults = [fault for score in faulty for fault in score.faults]
    return {
        "runs": {"faulty": len(faulty), "healthy": len(healthy), "ranks": sizes_of(scores)},
        "faults": _faults(faults),
        "incidents": verdicts_on(faulty),
        "healthy_without_incident": share(sum(not score.said for score in healthy), len(healthy)),
        "iterations": told_apart(scores),
        "top_k": _top_k(faulty),
        "traffic_share": _traffic(scores),
        "by": {name: _by(faulty, key) for name, key in STRATA.items()},
        "strata": _strata(faulty),
        "failures": [failure for score in scores for failure in failures_of(score)],
    }


STRATA: dict[str, Callable[[Score, FaultScore], str]] = {
    "kind": lambda _, fault: fault.kind,
    "pattern": lambda _, fault: fault.pattern,
    "ranks": lambda score, _: str(score.layout.ranks),
    "faults": lambda score, _: "one" if len(score.faults) == 1 else "several",
    "iterations": lambda score, _: "inferred" if score.layout.without_labels else "given",
    "ends": lambda score, _: "omitted" if score.layout.without_ends else "given",
}
"""What the figures are split by."""

_CROSSED = ("kind", "pattern", "iterations", "ends")


def sizes_of(scores: Sequence[Score]) -> Figures:
    """How many runs there are of each number of ranks."""
    sizes = Counter(score.layout.ranks for score in scores)
    return {str(ranks): count for ranks, count in sorted(sizes.items())}


def must_be_named(faults: Iterable[FaultScore]) -> list[FaultScore]:
    return [fault for fault in faults if fault.weight == REQUIRED]


def _right(faults: Iterable[FaultScore]) -> int:
    return sum(fault.outcome == NAMED and fault.cause_right for fault in faults)


def _faults(faults: Sequence[FaultScore]) -> Figures:
    """Of the faults that must be named: the set named with its cause, with another, as a part of candidates, not."""
    required = must_be_named(faults)
    alone = [fault for fault in required if not fault.shadowed]
    outcomes = Counter(fault.outcome for fault in required)
    absorbed = [fault for fault in faults if fault.weight == HIDDEN]
    return {
        "named": share(_right(required), len(required)),
        "named_not_shadowed": share(_right(alone), len(alone)),
        "named_with_wrong_cause": outcomes[NAMED] - _right(required),
        "narrowed_to_group": outcomes[NARROWED],
        "group_sizes": sorted(fault.named_ranks for fault in required if fault.outcome == NARROWED),
        "set_sizes": sorted(len(fault.inseparable) for fault in required if len(fault.inseparable) > 1),
        "part_of_set": outcomes[PART],
        "missed": outcomes[MISSED],
        "absorbed_left_alone": share(sum(fault.outcome == MISSED for fault in absorbed), len(absorbed)),
        "not_scored": sum(fault.weight not in {REQUIRED, HIDDEN} for fault in faults),
    }


def verdicts_on(faulty: Sequence[Score]) -> Figures:
    verdicts = Counter(said.verdict for score in faulty for said in score.said)
    false = [sum(said.verdict == "false" for said in score.said) for score in faulty]
    astray = [any(said.verdict in {"false", "wrong_cause", PART} for said in score.said) for score in faulty]
    return {
        "verdicts": dict(verdicts),
        "false_per_faulty_run": round(sum(false) / len(false), 4) if false else None,
        "runs_without_false": share(sum(not count for count in false), len(false)),
        "runs_without_false_or_wrong_device": share(sum(not any_ for any_ in astray), len(astray)),
    }


def told_apart(scores: Sequence[Score]) -> Figures:
    counts = Counter[str]()
    for score in scores:
        counts.update(asdict(score.iterations))
    return {
        "precision": share(counts["hit"], counts["hit"] + counts["false"]),
        "recall": share(counts["hit"], counts["hit"] + counts["missed"]),
        "regular_left_alone": share(counts["regular"], counts["regular"] + counts["false"]),
    }


def _top_k(faulty: Sequence[Score]) -> Figures:
    """Of the faults that must be named, those whose set is among the top ``max(2, faults)``, by each method."""
    in_top: Counter[str] = Counter()
    first: Counter[str] = Counter()
    fetched: dict[str, list[float]] = {}
    required = 0
    for score in faulty:
        k = max(TOP_K, len(score.faults))
        faults = must_be_named(score.faults)
        required += len(faults)
        for name, part in score.traffic.fetched_share.items() if score.searched else ():
            fetched.setdefault(name, []).append(part)
        for fault in faults:
            in_top.update(name for name, place in fault.places.items() if place is not None and place <= k)
            first.update(name for name, place in fault.places.items() if place == 1)
    return {
        name: {
            "in_top_k": share(in_top[name], required),
            "first": share(first[name], required),
            "fetched_rows_share": round(median(shares), 4),
        }
        for name, shares in fetched.items()
    }


def _traffic(scores: Sequence[Score]) -> Figures:
    """Bytes on the bus over what all ranks log: medians over the runs."""
    unasked = [score.traffic.unasked_bytes / score.traffic.everything_bytes for score in scores]
    answers = [score.traffic.answer_bytes / score.traffic.everything_bytes for score in scores]
    if not scores:
        return {}
    return {"summaries_and_pivots": round(median(unasked), 4), "asked_for": round(median(answers), 4)}


def _by(faulty: Sequence[Score], key: Callable[[Score, FaultScore], str]) -> Figures:
    groups: dict[str, list[FaultScore]] = {}
    for score in faulty:
        for fault in must_be_named(score.faults):
            groups.setdefault(key(score, fault), []).append(fault)
    return {name: share(_right(faults), len(faults)) for name, faults in sorted(groups.items())}


def _strata(faulty: Sequence[Score]) -> list[Figures]:
    """The strata crossed: kind, pattern, and what the logs lack."""
    groups: dict[tuple[str, ...], list[FaultScore]] = {}
    for score in faulty:
        for fault in must_be_named(score.faults):
            groups.setdefault(tuple(STRATA[name](score, fault) for name in _CROSSED), []).append(fault)
    return [
        {**dict(zip(_CROSSED, key, strict=True)), "named": share(_right(faults), len(faults))}
        for key, faults in sorted(groups.items())
    ]


def failures_of(score: Score) -> list[Figures]:
    """What went wrong in a run: faults not named as they should, and incidents that should not be."""
    missed = [asdict(f) for f in must_be_named(score.faults) if not (f.outcome == NAMED and f.cause_right)]
    wrong = [asdict(said) for said in score.said if said.verdict in _WRONG]
    if not missed and not wrong:
        return []
    run = {"seed": score.seed, "story": score.story, "noise": score.noise, "layout": asdict(score.layout)}
    return [{**run, "not_named": missed, "wrong": wrong, "said": [asdict(said) for said in score.said]}]
