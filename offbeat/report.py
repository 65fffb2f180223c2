"""The answer as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from diagnosis.incidents.evidence import hangs
from offbeat.terminal import counted
from sinks.webhook.content import names, ranges

if TYPE_CHECKING:
    from rich.console import Console

_CAUSE_STYLE = "bold red"
_INDENT = "   "
_MOST_REFUSALS = 3
_MOST_PARTIAL = 10


def print_answer(answer: Mapping[str, Any], out: Console) -> None:
    """Print what ``--json`` would hold: the job, what was seen of it, and what is wrong or that nothing is."""
    iterations, coverage = answer["iterations"], answer["coverage"]
    median_ms = iterations["median_ms"]
    took = "" if median_ms is None else f", median {_duration(median_ms)}"
    passed = "" if iterations["count"] is None else f", {counted(iterations['count'], 'iteration')}"
    out.print(f"{answer['job']}: {_ranks(answer)}{passed}{took}")
    out.print(f"irregular iterations: {_irregular(answer)}")
    if iterations["pauses"]:
        out.print(f"pauses of all ranks: {_pauses(iterations['pauses'])}")
    out.print(
        f"telemetry: {coverage['ranks_seen']} of {counted(coverage['ranks_expected'], 'rank')}, {_lost(coverage)}"
    )
    for line in _partial(coverage["partial"]):
        out.print(line)
    incidents = answer["incidents"]
    for note in answer["notes"]:
        out.print(f"\n{note}", style="yellow")
    if not incidents and not answer["notes"]:
        out.print("\nnothing wrong", style="green")
    for number, incident in enumerate(incidents, start=1):
        out.print(f"\n{number}. {headline(incident)}", style=_CAUSE_STYLE)
        for line in (incident["explanation"], *_facts(incident)):
            out.print(fill(line, out.width, initial_indent=_INDENT, subsequent_indent=_INDENT))


def refusals(reasons: Sequence[str]) -> list[str]:
    """Lines that say why telemetry could not be used: the first few reasons, and how many more there were."""
    lines = [f"part of the telemetry could not be used: {reason}" for reason in reasons[:_MOST_REFUSALS]]
    more = len(reasons) - len(lines)
    return [*lines, f"and {counted(more, 'more record')} of it"] if more else lines


def headline(incident: Mapping[str, Any]) -> str:
    """Cause, culprits and devices of an incident; sets that the evidence cannot tell apart with an "or"."""
    ranks, candidates = incident["ranks"], incident["candidates"]
    named = " or ".join(ranges(some) for some in candidates) if len(candidates) > 1 else ranges(ranks)
    devices = names(incident["devices"])
    return f"{incident['cause']}: rank{'s' if len(ranks) > 1 else ''} {named}" + (f" ({devices})" if devices else "")


def _lost(coverage: Mapping[str, Any]) -> str:
    lost = coverage["lost_lines"]
    if not lost:
        return "no lost lines"
    share = lost / (lost + coverage["lines_read"])
    return f"{counted(lost, 'lost line')} ({'less than 0.1%' if share < 0.001 else f'{share:.1%}'})"


def _partial(logs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is there of ranks that others logged more iterations than; of very many different logs the first ones."""
    for log in logs[:_MOST_PARTIAL]:
        whose, covered = f"rank{'s' if len(log['ranks']) > 1 else ''} {ranges(log['ranks'])}", log["iterations"]
        if covered is None:
            yield f"{whose} logged no iteration: what went on there is not known"
        else:
            first, last = covered
            yield f"{whose} logged iterations {first}-{last} alone: what went on there in others is not known"
    more = [rank for log in logs[_MOST_PARTIAL:] for rank in log["ranks"]]
    if more:
        yield f"and {counted(len(more), 'more rank')} logged a part of the iterations alone"


def _facts(incident: Mapping[str, Any]) -> list[str]:
    first, last = incident["iterations"]
    stage = incident["stage"] or {}
    place = [
        f"{prefix}{stage[name]}"
        for name, prefix in (
            ("phase", ""),
            ("pipeline_stage", "pipeline stage "),
            ("microbatch", "microbatch "),
            ("op", ""),
        )
        if stage.get(name) is not None
    ]
    lost = incident["lost_gpu_seconds"]
    told = [
        f"iterations {first}-{last}" + (f", {incident['pattern']}" if incident["pattern"] else ""),
        f"seen at: {', '.join(place)}" if place else "",
        "" if lost is None else f"lost: {lost:.3g} GPU-seconds",
        f"level {incident['level']}, confidence {incident['confidence']:.2f} by {', '.join(incident['methods'])}",
        _measures(incident),
    ]
    return [line for line in told if line]


def _measures(incident: Mapping[str, Any]) -> str:
    """What decided in the newest finding; empty where its method does not tell."""
    if incident["rule"] is None:
        return ""
    measures = ", ".join(f"{name} {x:.4g}" for name, x in incident["measures"].items())
    return f"told by {incident['rule']}" + (f": {measures}" if measures else "")


def _irregular(answer: Mapping[str, Any]) -> str:
    """Which iterations are irregular, beside what is known of them where it is none."""
    irregular, incidents = answer["iterations"]["irregular"], answer["incidents"]
    hung = [one["iterations"][0] for one in incidents if hangs(one["cause"])]
    if incidents and not irregular and not hung:
        known = answer["iterations"]["judged"] and all("like_ranks" in one["methods"] for one in incidents)
        return "none beside the first" if known else "not known, as there were too few regular ones before"
    told = ranges(irregular, "iterations") if irregular else "none"
    return f"{told}; hangs in {hung[0]}" if hung else told


def _pauses(pauses: Sequence[Mapping[str, Any]]) -> str:
    """After which iterations all ranks paused, and for how long in all."""
    after = ranges([pause["after"] for pause in pauses], "iterations")
    return f"after {after}, {_duration(sum(pause['ms'] for pause in pauses))} beyond the usual: nobody's fault"


def _ranks(answer: Mapping[str, Any]) -> str:
    layout = answer["layout"]
    count = counted(answer["coverage"]["ranks_expected"], "rank")
    if layout is None:
        return count
    degrees = " ".join(f"{name}={value}" for name, value in layout.items() if name != "source" and value is not None)
    return f"{count} ({degrees}, {layout['source']})"


def _duration(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.1f} ms"
