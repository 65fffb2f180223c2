"""Recorded jobs of one group that all ranks share: nothing but the ends of its collectives tells whose NIC is slow."""

from pathlib import Path
from typing import Any

from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings

RECORDED = Path(__file__).with_name("testdata") / "data_parallel"


def incidents(run: str) -> list[dict[str, Any]]:
    diagnosis = diagnose([RECORDED / run], Reading(), Settings())
    assert not diagnosis.refused
    return list(diagnosis.answer["incidents"])


def test_the_throttled_interface_is_named_with_its_neighbours() -> None:
    [incident] = incidents("throttled")
    assert (incident["cause"], incident["level"]) == ("communication_slow", "group")
    assert {3} <= set(incident["ranks"]) <= {2, 3, 4}
    assert incident["iterations"][0] == 30


def test_of_a_healthy_job_nobody_is() -> None:
    assert incidents("healthy") == []
