"""Scores of runs of thousands of ranks as figures: the ranking first, then incidents, traffic and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.large.baselines import SIGMA, TRADITIONAL, WALK
from benchmarks.large.rankings import SETS, VARIANTS, WHOLE
from benchmarks.large.trial import LargeScore
from benchmarks.simulated.figures import (
    Figures,
    failures_of,
    must_be_named,
    share,
    sizes_of,
    told_apart,
    verdicts_on,
)
from benchmarks.simulated.scoring import BETWEEN, NAMED, TOP_K, FaultScore
from producers.simulation.scenarios import Story

PLACES = (1, 2, 3, 5)
"""Values of K that are compared."""

_BASELINES = (SIGMA, WALK, TRADITIONAL)

STRATA: dict[str, Callable[[LargeScore, FaultScore], str]] = {
    "kind": lambda _, fault: fault.kind,
    "pattern": lambda _, fault: fault.pattern,
    "dimensions": lambda score, _: f"{score.asked.dimensions}D",
    "phases and microbatches": lambda score, _: "omitted" if score.layout.without_labels else "given",
    "ends": lambda score, _: "omitted" if score.layout.without_ends else "given",
}
"""What the figures are split by. Iterations are always given: the agents of such jobs number them."""


def summarise(scores: Sequence[LargeScore]) -> Figures:
    """All figures of runs of one size under one profile of noise."""
    faulty = [score for score in scores if score.story != Story.HEALTHY]
    healthy = [score for score in scores if score.story == Story.HEALTHY]
    faults = [(score, fault) for score in faulty for fault in must_be_named(score.faults)]
    return {
        "runs": {"faulty": len(faulty), "healthy": len(healthy), "ranks": sizes_of(scores)},
        "top_k": _places(faults, _between(faulty), WHOLE),
        "top_k_by_evidence": _places(faults, _between(faulty), SETS),
        "sizes_by_evidence": dict(sorted(Counter(size for score, _ in faults for size in score.set_sizes).items())),
        "by_search": _by_search(faulty),
        "k": {name: _by_k(faults, name) for name in (*VARIANTS, SETS, *_BASELINES)},
        "incidents": verdicts_on(faulty),
        "named": share(sum(f.outcome == NAMED and f.cause_right for _, f in faults), len(faults)),
        "healthy_without_incident": share(sum(not score.said for score in healthy), len(healthy)),
        "healthy_experts": sum(score.layout.ep > 1 for score in healthy),
        "iterations": told_apart(scores),
        "set_sizes": sorted(len(fault.inseparable) for _, fault in faults),
        "not_scored": sum(len(score.faults) for score in faulty) - len(faults),
        "traffic": _traffic(scores),
        "cost_s": _cost(scores),
        "failures": [failure for score in scores for failure in failures_of(score)],
        "not_in_top_k": [_missed(score, fault) for score, fault in faults if not _in_top(score, fault, WHOLE)],
    }


_Fault = tuple[LargeScore, FaultScore]


def _in_top(score: LargeScore, fault: FaultScore, ranking: str) -> bool:
    return _within(fault, ranking, max(TOP_K, len(score.faults)))


def _within(fault: FaultScore, ranking: str, k: int) -> bool:
    place = fault.places.get(ranking)
    return place is not None and place <= k


def _top(faults: Sequence[_Fault], ranking: str) -> Figures:
    return {
        "in_top_k": share(sum(_in_top(score, fault, ranking) for score, fault in faults), len(faults)),
        "first": _among(faults, ranking, 1),
    }


def _places(faults: Sequence[_Fault], between: Sequence[_Fault], ranking: str) -> Figures:
    """Where a ranking has the faults: all, by what they are split by, and by kind crossed with pattern; and those that
    are between.
    """
    return {
        **_top(faults, ranking),
        "by": {name: _by(faults, key, ranking) for name, key in STRATA.items()},
        "strata": _by(faults, lambda _, fault: f"{fault.kind}, {fault.pattern}", ranking),
        "between": _by(between, STRATA["pattern"], ranking),
    }


def _among(faults: Sequence[_Fault], ranking: str, k: int) -> Figures | None:
    return share(sum(_within(fault, ranking, k) for _, fault in faults), len(faults))


def _by_k(faults: Sequence[_Fault], ranking: str) -> Figures:
    """By how many places count; of runs in which the ranking was made."""
    made = [(score, fault) for score, fault in faults if ranking in fault.places]
    return {str(k): _among(made, ranking, k) for k in PLACES}


def _between(scores: Sequence[LargeScore]) -> list[_Fault]:
    """Faults that are too mild to have to be named, and too strong not to be seen."""
    return [(score, fault) for score in scores for fault in score.faults if fault.weight == BETWEEN]


def _by_search(scores: Sequence[LargeScore]) -> Figures | None:
    """Of the irregular iterations that were searched, how many name the device by what was found in them alone."""
    return share(sum(score.alone.right for score in scores), sum(score.alone.searches for score in scores))


def _by(faults: Iterable[_Fault], key: Callable[[LargeScore, FaultScore], str], ranking: str) -> Figures:
    groups: dict[str, list[_Fault]] = {}
    for score, fault in faults:
        groups.setdefault(key(score, fault), []).append((score, fault))
    return {name: _top(of, ranking)["in_top_k"] for name, of in sorted(groups.items())}


def _traffic(scores: Sequence[LargeScore]) -> Figures:
    """Bytes on the bus over what all ranks log in the run, and what a search asked for over what they log in an
    iteration (Holmes' figure 16b): medians.
    """
    if not scores:
        return {}
    unasked = [score.traffic.unasked_bytes / score.traffic.everything_bytes for score in scores]
    answers = [score.traffic.answer_bytes / score.traffic.everything_bytes for score in scores]
    rows = [(count, score.cost.all_operators) for score in scores for count in score.cost.fetched_rows]
    of_a_search = [
        score.traffic.answer_bytes / score.searched / score.traffic.everything_bytes * score.asked.iterations
        for score in scores
        if score.searched
    ]
    return {
        "everything_gb": round(median(score.traffic.everything_bytes for score in scores) / 1e9, 2),
        "unasked_share": round(median(unasked), 5),
        "answers_share": round(median(answers), 5),
        "total_share": round(median(map(sum, zip(unasked, answers, strict=True))), 5),
        "answers_a_search_to_an_iteration": round(median(of_a_search), 5) if of_a_search else None,
        "rows_a_search": round(median(count for count, _ in rows)) if rows else None,
        "rows_a_search_to_an_iteration": round(median(count / whole for count, whole in rows), 5) if rows else None,
    }


def _cost(scores: Sequence[LargeScore]) -> Figures:
    """Seconds a run: medians, and what a search took beside the simulator."""
    if not scores:
        return {}
    traditional = [score.cost.traditional_s for score in scores if score.cost.traditional_s is not None]
    return {
        "simulation": round(median(score.cost.simulate_s for score in scores), 2),
        "diagnosis": round(median(score.detect_s for score in scores), 2),
        "searches": round(median(score.searched for score in scores), 1),
        "3_sigma_over_all_logs": round(median(traditional), 2) if traditional else None,
    }


def _missed(score: LargeScore, fault: FaultScore) -> Figures:
    where = {"seed": score.seed, "kind": fault.kind, "pattern": fault.pattern, "dimensions": score.asked.dimensions}
    return {**where, "slowdown": fault.slowdown, "place": fault.places.get(WHOLE), "searched": score.searched}
