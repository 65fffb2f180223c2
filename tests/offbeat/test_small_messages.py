"""A recorded job with a throttled NIC that lets small messages pass as fast as ever."""

from pathlib import Path
from typing import Any

from diagnosis.operator_graph.locate import LocateSettings
from diagnosis.operator_graph.separation import SeparationSettings
from offbeat.diagnose import diagnose
from offbeat.reading import Reading
from offbeat.settings import Settings
from streams.search import SearchSettings

RECORDED = Path(__file__).with_name("testdata") / "small_messages"


def incident(settings: Settings) -> dict[str, Any]:
    [only] = diagnose([RECORDED], Reading(), settings).answer["incidents"]
    assert only["cause"] == "communication_slow"
    assert only["iterations"] == [30, 59]
    return dict(only)


def test_the_nic_is_told_by_what_its_rank_alone_lost_elsewhere() -> None:
    told = incident(Settings())
    assert (told["ranks"], told["level"], told["devices"]) == ([1], "device", ["nic:rank1"])


def test_without_that_its_only_peer_is_named_with_it() -> None:
    separation = SeparationSettings(alone_share=1000.0)
    told = incident(Settings(search=SearchSettings(locate=LocateSettings(separation=separation))))
    assert (told["ranks"], told["level"], told["candidates"]) == ([1, 3], "group", [[1], [3]])
