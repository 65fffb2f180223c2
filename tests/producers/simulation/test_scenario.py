"""What cannot be simulated is refused, with what to give instead."""

from typing import Any

import pytest

from producers.simulation import Fault, Kind, Scenario
from schemas.errors import SettingsError


@pytest.mark.parametrize("size", [float("nan"), float("inf"), 1e12, 0.9])
@pytest.mark.parametrize("name", ["slowdown", "factor"])
def test_a_fault_has_a_size_that_can_be_simulated(name: str, size: float) -> None:
    sizes: dict[str, Any] = {name: size}
    with pytest.raises(SettingsError, match="is no slowness; give 1 to 1000"):
        Fault(Kind.GPU_SLOW, 1, (20, 21), **sizes)


@pytest.mark.parametrize("name", ["compute_ms", "age_days"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, -1.0])
def test_a_scenario_takes_times_that_can_be_simulated(name: str, value: float) -> None:
    times: dict[str, Any] = {name: value}
    with pytest.raises(SettingsError, match=rf"{name} is .*; give "):
        Scenario(seed=1, **times)
