"""Options that hold several values, as ``tp=2,pp=4,dp=1``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from diagnosis.job import DEGREES, Layout
from schemas.errors import SettingsError

if TYPE_CHECKING:
    from producers.simulation import Fault, Scenario
    from producers.simulation.nic import Fault as NicFault
    from producers.simulation.nic import NicScenario

_MOST_ITERATIONS = 1_000_000
_MOST_DIGITS = 18
_HANG_S = 40.0
_MOST_DOWN_TO_NICS = 4096
"""Ranks times iterations: a few minutes, and a few gigabytes."""
_WHOLE = tuple(
    "seed tp pp dp cp ep microbatches layers hidden sequence_length micro_batch_size vocabulary iterations "
    "gpus_per_host age_days".split()
)
"""What of a scenario is a whole number."""

_CHOSEN = ("fold_experts", "sequence_parallel", "distributed_optimizer")
"""What of a scenario is yes or no."""

_FABRIC = ("hosts_per_pod", "spines")
"""Sizes of the simulated fabric; with any of them the job has one."""


def pairs(text: str, option: str, known: tuple[str, ...]) -> dict[str, str]:
    """The names and values of ``name=value,name=value``; raises ``SettingsError``."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise SettingsError(
                f"{option} {text}: {part!r} is not of the form name=value; known are {', '.join(known)}"
            )
        if name not in known:
            raise SettingsError(f"{option} {text}: there is no {name!r}; known are {', '.join(known)}")
        if name in found:
            raise SettingsError(f"{option} {text}: {name} is given twice")
        found[name] = value
    return found


def layout(text: str) -> Layout:
    """``tp=2,pp=4,dp=1`` and, where there are any, cp and ep; raises ``SettingsError``."""
    option = "--layout"
    degrees = {name: _whole(value, option, name) for name, value in pairs(text, option, DEGREES).items()}
    missing = [name for name in ("tp", "pp", "dp") if name not in degrees]
    if missing:
        raise SettingsError(f"{option} {text}: {missing[0]} is missing; give tp, pp and dp")
    for name, degree in degrees.items():
        if degree < 1:
            raise SettingsError(f"{option} {text}: {name} is {degree}; give 1 or more")
    return Layout(**degrees, source="given")


def scenario(text: str, faults: list[str]) -> Scenario:
    """A scenario of the simulation from ``seed=7,tp=4,...`` and its faults; raises ``SettingsError``."""
    from producers.simulation import PROFILES, FabricShape, Omissions, Scenario

    option = "--scenario"
    given = pairs(text, option, (*_WHOLE, *_CHOSEN, *_FABRIC, "compute_ms", "noise", "omit"))
    fields: dict[str, Any] = {name: _whole(given[name], option, name) for name in _WHOLE if name in given}
    fields |= {name: _one_of(given[name], option, name, ("yes", "no")) == "yes" for name in _CHOSEN if name in given}
    fields.setdefault("seed", 0)
    fabric = {name: _whole(given[name], option, name) for name in _FABRIC if name in given}
    if fabric:
        fields["fabric"] = FabricShape(**fabric)
    if "compute_ms" in given:
        fields["compute_ms"] = _number(given["compute_ms"], option, "compute_ms")
    if "noise" in given:
        fields["noise"] = PROFILES[_one_of(given["noise"], option, "noise", tuple(PROFILES))]
    omitted = [name for name in given.get("omit", "").split("+") if name]
    for name in omitted:
        _one_of(name, option, "omission", ("labels", "ends", "layout", "routes"))
    fields["omissions"] = Omissions(**dict.fromkeys(omitted, True))
    return Scenario(**fields, faults=tuple(_fault(fault) for fault in faults))


def _fault(text: str) -> Fault:
    from producers.simulation import Fault, Kind, Part

    option = "--fault"
    given = pairs(text, option, ("kind", "rank", "spine", "iterations", "slowdown", "factor", "part"))
    kind = Kind(_one_of(given["kind"], option, "kind", tuple(Kind))) if "kind" in given else None
    place, other = ("spine", "rank") if kind is Kind.SPINE_SLOW else ("rank", "spine")
    for name in ("kind", place, "iterations"):
        if name not in given:
            raise SettingsError(f"{option} {text}: {name} is missing")
    if kind is None or other in given:
        raise SettingsError(f"{option} {text}: {given['kind']} is on a {place}; leave {other} out")
    return Fault(
        kind=kind,
        rank=_whole(given[place], option, place),
        iterations=_iterations(given["iterations"], option),
        slowdown=_number(given["slowdown"], option, "slowdown") if "slowdown" in given else None,
        factor=_number(given["factor"], option, "factor") if "factor" in given else None,
        part=Part(_one_of(given.get("part", Part.ALL), option, "part", tuple(Part))),
    )


def nic_scenario(text: str, faults: list[str]) -> NicScenario:
    """A scenario down to NICs from ``setup=gpt2_70b,seed=7,...`` and its faults; raises ``SettingsError``.

    Where it hangs it is told of for longer than it takes to call that a hang.
    """
    from producers.simulation.nic import DEFAULT, HARD, QUIET, Hardware, Setup, healthy

    option, profiles = "--scenario", {"default": DEFAULT, "hard": HARD, "quiet": QUIET}
    whole = ("seed", "tp", "dp", "pp", "microbatches", "layers", "iterations")
    given = pairs(text, option, (*whole, "setup", "line_gbps", "channels", "noise", "omit"))
    setup = Setup(_one_of(given.get("setup", Setup.GPT2_70B), option, "setup", tuple(Setup)))
    noise = profiles[_one_of(given.get("noise", "default"), option, "noise", tuple(profiles))]
    fields: dict[str, Any] = {name: _whole(given[name], option, name) for name in whole if name in given}
    hardware: dict[str, Any] = {}
    if "line_gbps" in given:
        hardware["line_gbps"] = _number(given["line_gbps"], option, "line_gbps")
    if "channels" in given:
        hardware["channels"] = _whole(given["channels"], option, "channels")
    if "omit" in given:
        _one_of(given["omit"], option, "omission", ("layout",))
    made = replace(
        healthy(setup, fields.pop("seed", 0), noise),
        **fields,
        hardware=Hardware(**hardware),
        faults=tuple(_nic_fault(fault) for fault in faults),
        describe_layout="omit" not in given,
        hang_s=_HANG_S,
    )
    if made.world * made.iterations > _MOST_DOWN_TO_NICS:
        raise SettingsError(
            f"scenario: {made.world} ranks x {made.iterations} iterations are more than {_MOST_DOWN_TO_NICS}, what is "
            "simulated down to NICs at most; give fewer"
        )
    return made


def _nic_fault(text: str) -> NicFault:
    from producers.simulation.nic import Fault as NicFault
    from producers.simulation.nic import Injection
    from producers.simulation.nic.faults import SEVERITIES

    option = "--fault"
    given = pairs(text, option, ("kind", "rank", "at_ms", "severity", "peer"))
    for name in ("kind", "rank", "at_ms"):
        if name not in given:
            raise SettingsError(f"{option} {text}: {name} is missing")
    injection = Injection(_one_of(given["kind"], option, "kind", tuple(Injection)))
    if "severity" in given and injection not in SEVERITIES:
        raise SettingsError(f"{option} {text}: {injection} has no severity; leave it out")
    graded = SEVERITIES.get(injection, (1.0,))
    mildest = graded[-1] if injection is Injection.CONGESTION else graded[0]
    return NicFault(
        injection=injection,
        rank=_whole(given["rank"], option, "rank"),
        at_s=_number(given["at_ms"], option, "at_ms") / 1e3,
        severity=_number(given["severity"], option, "severity") if "severity" in given else mildest,
        peer=_whole(given["peer"], option, "peer") if "peer" in given else None,
    )


def _iterations(text: str, option: str) -> tuple[int, ...]:
    """``20-40`` or ``12+25+31-33``."""
    found: set[int] = set()
    for stretch in text.split("+"):
        first, dash, last = stretch.partition("-")
        low = _whole(first, option, "iterations")
        high = _whole(last, option, "iterations") if dash else low
        if high >= _MOST_ITERATIONS:
            raise SettingsError(f"{option}: iteration {high} is beyond {_MOST_ITERATIONS - 1}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def _whole(text: str, option: str, name: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise SettingsError(f"{option}: {name} is {text[:_MOST_DIGITS]!r}; give a whole number")
    return int(text)


def _number(text: str, option: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingsError(f"{option}: {name} is {text!r}; give a number") from None


def _one_of(text: str, option: str, name: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise SettingsError(f"{option}: there is no {name} {text!r}; give one of {', '.join(known)}")
    return text
