"""What a person reads of an incident: what is wrong, where, since when, how sure, what it costs, what to do next.

An incident is a row of analysis.incidents, a mapping by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from diagnosis.job import Job
from sinks.webhook.page import Page, minute, rfc3339

Row = Mapping[str, Any]
"""One row of analysis.incidents."""

WHAT = {
    "compute_slow": "Slow compute",
    "communication_slow": "Slow communication",
    "mixed_slow": "Slow compute and communication",
    "host_slow": "Slow host",
    "hang_not_entered": "Hang (an operator was not entered)",
    "hang_inconsistent": "Hang (ranks call different operators)",
    "hang_hardware": "Hang (hardware)",
    "network_path": "Faulty network path",
    "imbalance": "Imbalance (no device is at fault)",
}
"""Each cause in a person's words."""

NEXT = {
    "compute_slow": "look at the GPU's throttle reasons (nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE) and at Xid "
    "errors in dmesg; if it is throttled or failing, drain the host and swap the GPU",
    "communication_slow": "look at the NIC's rate, errors and cable (ethtool, ibstat, mlxlink) and at its switch port; "
    "if the port is clean, swap cable or NIC",
    "mixed_slow": "look at what compute and transfers share: the host's power, PCIe link (lspci -vv) and CPU load; "
    "drain the host if none of them can be mended",
    "host_slow": "look at the host's CPU load, memory and what else runs there (top, numastat); drain it if it stays",
    "hang_not_entered": "take the stacks of the named ranks (py-spy dump) before the job is stopped: they never "
    "entered the operator that the others wait in",
    "hang_inconsistent": "compare the stacks of the named ranks (py-spy dump): they call different operators, which is "
    "the training code's doing rather than a device's",
    "hang_hardware": "look for Xid errors and link failures in dmesg of the named host, drain it, and restart the job "
    "from its last checkpoint",
    "network_path": "hand the component to whoever runs the network: errors, drops and queues on its ports",
    "imbalance": "drain nothing: look at how data or layers are spread over the ranks",
}
"""What to do first about each cause."""

_MOST_RANGES = 16
_MOST_NAMES = 16
_UNITS = (("h", 3600), ("min", 60))


def incident_page(job: str, row: Row, placement: Job | None, link: str = "") -> Page:
    """The page of an incident's revision.

    ``placement`` says where the ranks run; None where control.jobs does not know. ``link`` leads to more: ``{job}``
    and ``{incident}`` in it stand for their ids.
    """
    filled = link.replace("{job}", quote(job, safe="")).replace("{incident}", quote(row["id"], safe=""))
    return Page(
        job=job,
        id=row["id"],
        revision=row["revision"],
        title=headline(job, row, placement),
        text=row["explanation"],
        cause=row["cause"],
        place=next(iter([*_hosts(row, placement), *_devices(row), *_component(row)]), job),
        opened_ns=row["opened_ns"],
        ended_ns=ended_ns(row),
        details=_details(row, placement, filled),
        facts=facts(row, placement),
        link=filled,
    )


def ended_ns(row: Row) -> int | None:
    """When an incident ended; where nobody saw the end, when it was found to be over. None: it goes on."""
    if row["state"] != "resolved":
        return None
    return int(row["updated_ns"] if row["resolved_ns"] is None else row["resolved_ns"])


def headline(job: str, row: Row, placement: Job | None = None) -> str:
    """One line for a pager or a subject."""
    since = "" if row["first_iteration"] is None else f" since iteration {row['first_iteration']}"
    resolved = "Resolved: " if row["state"] == "resolved" else ""
    return f"{resolved}{WHAT[row['cause']]}{_where(row, placement)}{since}, job {job}"


def facts(row: Row, placement: Job | None) -> dict[str, str]:
    """What is known of the incident, by name; what is not known is absent."""
    known = {
        "cause": row["cause"],
        "level": row["level"],
        "ranks": ranges(row["ranks"]),
        "hosts": names(_hosts(row, placement)),
        "devices": names(_devices(row)),
        "candidates": " or ".join(ranges(ranks) for ranks in row["candidates"][:_MOST_NAMES]),
        "network": _network(row),
        "iterations": _iterations(row["first_iteration"], row["last_iteration"]),
        "pattern": row["pattern"],
        "stage": _stage(row),
        "confidence": f"{row['confidence']:.2f}",
        "lost_seconds": None if row["lost_ns"] is None else f"{row['lost_ns'] / 1e9:.1f}",
        "lost_gpu_seconds": None if row["lost_gpu_seconds"] is None else f"{row['lost_gpu_seconds']:.1f}",
        "methods": names(row["methods"]),
        "opened": rfc3339(row["opened_ns"]),
        "revision": str(row["revision"]),
    }
    return {name: text for name, text in known.items() if text}


def ranges(ranks: Sequence[int], what: str = "ranks") -> str:
    """Ranks, or what else there is, as ``0-7, 12``; of very many scattered ones the first, and how many there are."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:_MOST_RANGES])
    return shown if len(runs) <= _MOST_RANGES else f"{shown}, ... ({len(set(ranks))} {what})"


def names(values: Iterable[str]) -> str:
    """Names with commas; of very many the first, and how many there are."""
    listed = list(values)
    shown = ", ".join(listed[:_MOST_NAMES])
    return shown if len(listed) <= _MOST_NAMES else f"{shown}, ... ({len(listed)})"


def _details(row: Row, placement: Job | None, link: str) -> dict[str, str]:
    known = {
        "Where": _place(row, placement),
        "Since": _since(row),
        "How sure": f"{row['confidence']:.0%}",
        "Time lost": _lost(row),
        "Next": None if row["state"] == "resolved" else NEXT[row["cause"]],
        "More": link,
    }
    return {name: text for name, text in known.items() if text}


def _place(row: Row, placement: Job | None) -> str:
    ranks, hosts, devices = ranges(row["ranks"]), names(_hosts(row, placement)), names(_devices(row))
    said = ((ranks, "rank" if len(row["ranks"]) == 1 else "ranks"), (hosts, "on"), (devices, "at"))
    place = " ".join(f"{word} {text}" for text, word in said if text)
    doubt = "the evidence cannot tell them apart" if row["candidates"] else ""
    return "; ".join(filter(None, (place, doubt, _network(row))))


def _since(row: Row) -> str:
    first, last = row["first_iteration"], row["last_iteration"]
    opened = f"opened {minute(row['opened_ns'])}"
    began = opened if first is None else f"iteration {first}, {opened}"
    ended = ended_ns(row)
    if ended is None:
        return began
    return f"{began}; until " + (minute(ended) if last is None else f"iteration {last}, {minute(ended)}")


def _lost(row: Row) -> str | None:
    if row["lost_ns"] is None:
        return None
    gpus = "" if row["lost_gpu_seconds"] is None else f", {_rounded(row['lost_gpu_seconds'] / 3600)} GPU hours"
    seconds = row["lost_ns"] / 1e9
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= 2 * length), ("s", 1))
    return f"{_rounded(seconds / length)} {unit} of the job{gpus}"


def _rounded(amount: float) -> str:
    """An amount as people say it: three digits, and no exponent however large."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _where(row: Row, placement: Job | None) -> str:
    hosts, devices = names(_hosts(row, placement)), names(_devices(row))
    if row["level"] == "machine" and hosts:
        return f" on {hosts}"
    if component := _component(row):
        return f" at {component[0]}"
    ranks = ranges(row["ranks"])
    if not ranks:
        return f" at {devices}" if devices else ""
    several = len(row["ranks"]) > 1
    of = "among ranks" if several and row["level"] == "group" else "on ranks" if several else "on rank"
    place = devices or hosts
    return f" {of} {ranks}" + (f" ({place})" if place else "")


def _hosts(row: Row, placement: Job | None) -> list[str]:
    if placement is None:
        return []
    place = placement.place
    return sorted({host for rank in row["ranks"] if rank in place and (host := place[rank].host) is not None})


def _devices(row: Row) -> list[str]:
    return [device["device"] for device in row["devices"]]


def _component(row: Row) -> list[str]:
    return [row["network"]["component"]] if row["network"] is not None and row["network"]["component"] else []


def _network(row: Row) -> str | None:
    network = row["network"]
    if network is None:
        return None
    component = " ".join(filter(None, (network["layer"], network["component_kind"], network["component"])))
    classes = names(network["issue_classes"] or ())
    return ": ".join(filter(None, (component, classes)))


def _stage(row: Row) -> str | None:
    return None if row["stage"] is None else ", ".join(_stage_parts(row["stage"]))


def _stage_parts(stage: Mapping[str, object]) -> Iterator[str]:
    for name, prefix in (
        ("phase", ""),
        ("pipeline_stage", "pipeline stage "),
        ("microbatch", "microbatch "),
        ("op", ""),
    ):
        if stage[name] is not None:
            yield f"{prefix}{stage[name]}"


def _iterations(first: int | None, last: int | None) -> str | None:
    if first is None:
        return None
    return str(first) if last is None or last == first else f"{first}-{last}"
