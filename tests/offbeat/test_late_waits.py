"""A recorded job that waits for its sends at the end of each iteration, and a rank of it that computes slowly."""

from pathlib import Path

from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings

RECORDED = Path(__file__).with_name("testdata") / "late_waits"


def test_who_computes_slowly_is_named_though_its_sends_seem_to_last() -> None:
    diagnosis = diagnose([RECORDED], Reading(), Settings())
    assert not diagnosis.refused
    [incident] = diagnosis.answer["incidents"]
    assert (incident["cause"], incident["ranks"]) == ("compute_slow", [1])
    assert incident["iterations"][0] == 30
