"""What a person reads on a page: what is wrong, where, since when, how sure, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sinks.webhook.page import Page, rfc3339

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

_MOST_RANGES = 16
_MOST_NAMES = 16


def summary(page: Page) -> str:
    """One line for a pager or a subject."""
    row = page.row
    what = WHAT[row["cause"]]
    where = _where(page)
    since = "" if row["first_iteration"] is None else f" since iteration {row['first_iteration']}"
    return f"{'Resolved: ' if page.resolved else ''}{what}{where}{since}, job {page.job}"


def description(page: Page) -> str:
    """The explanation, then the facts, a line each."""
    lines = [page.row["explanation"]]
    lines += [f"{name.replace('_', ' ')}: {text}" for name, text in facts(page).items()]
    return "\n".join(lines)


def facts(page: Page) -> dict[str, str]:
    """What is known of the incident, by name; what is not known is absent."""
    row = page.row
    known = {
        "cause": row["cause"],
        "level": row["level"],
        "ranks": ranges(row["ranks"]),
        "hosts": names(_hosts(page)),
        "devices": names(device["device"] for device in row["devices"]),
        "candidates": " or ".join(ranges(ranks) for ranks in row["candidates"][:_MOST_NAMES]),
        "network": _network(page),
        "iterations": _iterations(row["first_iteration"], row["last_iteration"]),
        "pattern": row["pattern"],
        "stage": _stage(page),
        "confidence": f"{row['confidence']:.2f}",
        "lost_seconds": None if row["lost_ns"] is None else f"{row['lost_ns'] / 1e9:.1f}",
        "lost_gpu_seconds": None if row["lost_gpu_seconds"] is None else f"{row['lost_gpu_seconds']:.1f}",
        "methods": names(row["methods"]),
        "opened": rfc3339(row["opened_ns"]),
        "revision": str(page.revision),
    }
    return {name: text for name, text in known.items() if text}


def ranges(ranks: Sequence[int]) -> str:
    """Ranks as ``0-7, 12``; of very many scattered ones the first, and how many there are."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:_MOST_RANGES])
    return shown if len(runs) <= _MOST_RANGES else f"{shown}, ... ({len(set(ranks))} ranks)"


def names(values: Iterable[str]) -> str:
    """Names with commas; of very many the first, and how many there are."""
    listed = list(values)
    shown = ", ".join(listed[:_MOST_NAMES])
    return shown if len(listed) <= _MOST_NAMES else f"{shown}, ... ({len(listed)})"


def _where(page: Page) -> str:
    row = page.row
    hosts, devices = names(_hosts(page)), names(device["device"] for device in row["devices"])
    if row["level"] == "machine" and hosts:
        return f" on {hosts}"
    if row["network"] is not None and row["network"]["component"]:
        return f" at {row['network']['component']}"
    ranks = ranges(row["ranks"])
    if not ranks:
        return f" at {devices}" if devices else ""
    several = len(row["ranks"]) > 1
    of = "among ranks" if several and row["level"] == "group" else "on ranks" if several else "on rank"
    place = devices or hosts
    return f" {of} {ranks}" + (f" ({place})" if place else "")


def _hosts(page: Page) -> list[str]:
    if page.placement is None:
        return []
    place = page.placement.place
    return sorted({host for rank in page.row["ranks"] if rank in place and (host := place[rank].host) is not None})


def _network(page: Page) -> str | None:
    network = page.row["network"]
    if network is None:
        return None
    component = " ".join(filter(None, (network["layer"], network["component_kind"], network["component"])))
    classes = names(network["issue_classes"] or ())
    return ": ".join(filter(None, (component, classes)))


def _stage(page: Page) -> str | None:
    stage = page.row["stage"]
    return None if stage is None else ", ".join(_stage_parts(stage))


def _stage_parts(stage: dict[str, object]) -> Iterator[str]:
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
