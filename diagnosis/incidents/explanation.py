"""An incident in one or two sentences that a person can act on."""

from __future__ import annotations

from diagnosis.causes import GOES_ON_LATE
from diagnosis.incidents.evidence import Incident, hangs
from diagnosis.irregularity.run import DEGRADATION, FLUCTUATION
from diagnosis.job import Job
from diagnosis.topology import are_switches

_WHAT = {
    "compute_slow": "computes slowly",
    "communication_slow": "transfers slowly",
    "mixed_slow": "computes and transfers slowly",
    "host_slow": "is slow",
    "hang_not_entered": "has not begun an operator that others wait for",
    "hang_hardware": "has stopped amid an operator that others wait for",
}
_OF_ONE_GPU = {"compute_slow", "hang_not_entered"}
"""What one of a machine's GPUs does to all of its ranks."""

_NEXT = {
    "compute_slow": "Check the GPU's clocks, temperature and throttle reasons, and the host's CPU load; else swap it.",
    "communication_slow": "Check the NIC's rate, errors, cable and PCIe link, and its switch port; else swap it.",
    "mixed_slow": "Check the host first: power, PCIe and CPU load touch both; else swap it.",
    "host_slow": "Check the host's CPU load and what else runs there.",
    "hang_not_entered": "Look at its processes and at the GPUs' error counters; then restart the job without it.",
    "hang_hardware": "Check the NIC's state, errors and cable, and its switch port; then restart the job without it.",
}


_NVLINKS_NEXT = "Check their errors and states (nvidia-smi nvlink) and the NVSwitches'; else swap the host."
_NVLINKS_TOO = "Slow NVLinks ({}) look alike: check their errors and states as well (nvidia-smi nvlink)."
_SWITCH_NEXT = "Check its ports' rates, errors and discards; else move its ranks."
_CPUS_TOO = "A busy CPU that launches late looks alike: check its load."
_PACKETS_TOO = "When operators ended its log does not tell: late packets look alike; check its NIC and its peers'."


def explain(job: Job, incident: Incident) -> str:
    """Who, what, since when, how much, and what to do next."""
    if (within := _within_host(job, incident)) is not None:
        subject, advice = within
        return f"{subject} transfer slowly{_during(incident)} {_when(incident)}{_cost(incident)}. {advice}"
    if are_switches(device.kind for device in incident.devices):
        switch = " or ".join(device.device for device in incident.devices)
        below = f"{len(incident.ranks)} ranks {'below' if len(incident.devices) == 1 else 'see it'}"
        lost = f"{_during(incident)} {_when(incident)}{_cost(incident)}"
        return f"The switch {switch} ({below}) transfers slowly{lost}. {_SWITCH_NEXT}"
    where = _where(job, incident)
    what = _WHAT.get(incident.cause, incident.cause.replace("_", " "))
    when = _when(incident)
    doubt = ""
    if incident.candidates:
        wrong = "hangs" if hangs(incident.cause) else "is slow"
        doubt = f" The evidence cannot tell these apart: as far as it goes they share every operator that {wrong}."
    advice = f" {_NEXT[incident.cause]}" if incident.cause in _NEXT else ""
    links = [device.device for device in incident.devices if device.kind == "nvlink"]
    if links and incident.cause == "communication_slow":
        advice += f" {_NVLINKS_TOO.format(' or '.join(links[:4]))}"
    if _may_wait_for_packets(job, incident):
        advice += f" {_PACKETS_TOO}"
    return f"{where} {what}{_during(incident)} {when}{_cost(incident)}.{doubt}{advice}"


def _may_wait_for_packets(job: Job, incident: Incident) -> bool:
    """Whether late packets look alike, and no other method than the one that goes by operators says otherwise."""
    if incident.cause != "compute_slow" or incident.rule != GOES_ON_LATE or len(incident.methods) > 1:
        return False
    names = {name for rank in incident.ranks for name in job.communicators_of.get(rank, ())}
    return not names or not names <= job.within_hosts


def _within_host(job: Job, incident: Incident) -> tuple[str, str] | None:
    """Of a host whose NVLinks are slow, for all that is known: what it is called, and what to do next."""
    kinds, hosts = {device.kind for device in incident.devices}, _hosts(job, incident)
    if incident.cause != "communication_slow" or len(hosts) != 1 or not {"nvlink"} <= kinds <= {"nvlink", "cpu"}:
        return None
    if "cpu" in kinds:
        return f"The NVLinks, or the CPUs, of {hosts[0]}", f"{_NVLINKS_NEXT} {_CPUS_TOO}"
    return f"The NVLinks of {hosts[0]}", _NVLINKS_NEXT


def _cost(incident: Incident) -> str:
    if hangs(incident.cause):
        return ": the job does not go on"
    return f": the job lost {incident.lost_ns / 1e9:.3g} s" if incident.lost_ns else ""


def _where(job: Job, incident: Incident) -> str:
    hosts = _hosts(job, incident)
    if hosts and incident.level == "machine":
        subject = "a GPU of " if incident.cause in _OF_ONE_GPU else ""
        return _sentence(subject + (" or " if incident.candidates else " and ").join(hosts))
    if len(hosts) > 1 and incident.cause == "host_slow":
        return _sentence("one of " + ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else ""))
    names = []
    for rank in incident.ranks[:4]:
        place = job.place.get(rank)
        host = f" on {place.host}" if place and place.host else ""
        names.append(f"rank {rank}{host}")
    more = f" and {len(incident.ranks) - 4} more" if len(incident.ranks) > 4 else ""
    joined = (" or " if incident.candidates else " and ").join(names)
    devices = ", ".join(d.device for d in incident.devices[:4])
    return _sentence(f"{joined}{more} ({devices})" if devices else f"{joined}{more}")


def _hosts(job: Job, incident: Incident) -> list[str]:
    """The hosts of an incident's ranks, with these; empty if one is not known."""
    of: dict[str, list[int]] = {}
    for rank in incident.ranks:
        place = job.place.get(rank)
        of.setdefault((place.host if place else None) or "", []).append(rank)
    return [] if "" in of else [f"host {host} ({_ranks(ranks)})" for host, ranks in of.items()]


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    in_a_row = ranks == list(range(ranks[0], ranks[-1] + 1))
    return f"ranks {ranks[0]}-{ranks[-1]}" if in_a_row else "ranks " + ", ".join(map(str, ranks))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _during(incident: Incident) -> str:
    phase = incident.stage.phase
    return f" (mostly in the {phase} phase)" if phase in ("forward", "backward", "gradient") else ""


def _when(incident: Incident) -> str:
    first, last, runs = incident.first_iteration, incident.last_iteration, incident.occasions
    if incident.pattern == DEGRADATION:
        return f"since iteration {first}" if incident.state == "open" else f"from iteration {first} to {last}"
    if incident.pattern == FLUCTUATION:
        how_often = f"about every {incident.period:.0f} iterations" if incident.period else "again and again"
        return f"{how_often} between iterations {first} and {last}"
    if runs > 1 and incident.pattern is None:
        return f"between iterations {first} and {last}"
    if runs > 1:
        return f"in {runs} spikes between iterations {first} and {last}"
    return f"in iteration {first}" if first == last else f"in iterations {first} to {last}"
