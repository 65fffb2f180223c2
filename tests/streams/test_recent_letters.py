"""What was buried lately is counted by role and topic, and no more is read than that takes."""

from __future__ import annotations

import time
from dataclasses import replace
from uuid import uuid4

import pytest

from producers.publisher import Publisher
from schemas import catalogue
from schemas.errors import BusError, WrongSchema
from schemas.message import Message
from streams import recent_letters as recent
from streams import topics
from streams.bus import Bus
from streams.dead_letters import dead_letter
from streams.recent_letters import DAY_NS, HOUR_NS, RecentLetters, recent_letters

NOW_NS = 1_800_000_000 * 10**9


def letter(role: str, topic: str = "telemetry.a", age_ns: int = 0) -> Message:
    buried = dead_letter(Message(topic, "a", b"?", {"job": "a"}, 1, 7), WrongSchema("no"), role)
    return replace(buried, timestamp_ns=NOW_NS - age_ns)


def test_letters_are_counted_by_when_the_brokers_took_them() -> None:
    found = RecentLetters()
    junk = replace(letter("monitor"), value=b"junk")
    ages = (0, HOUR_NS, HOUR_NS + 1, DAY_NS, DAY_NS + 1)
    found.take([junk, *(letter("monitor", age_ns=age) for age in ages), letter("store", "telemetry.b")], NOW_NS)
    assert found.of_hour == {("monitor", "telemetry.a"): 2, ("store", "telemetry.b"): 1}
    assert found.of_day == {("monitor", "telemetry.a"): 4, ("store", "telemetry.b"): 1}


@pytest.mark.kafka
def test_only_the_newest_are_read(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bus, role = Bus(kafka), f"role-{uuid4().hex[:8]}"
    topics.apply(bus, [catalogue.DEAD_LETTERS])
    publisher = Publisher(bus.librdkafka(), "test")
    for _ in range(5):
        publisher.send(letter(role))
    publisher.flush()
    found = recent_letters(bus, time.time_ns())
    assert found.of_hour[role, "telemetry.a"] == found.of_day[role, "telemetry.a"] == 5
    assert recent_letters(bus, time.time_ns() + 2 * HOUR_NS).of_hour[role, "telemetry.a"] == 0
    monkeypatch.setattr(recent, "MOST_OF_A_PARTITION", 2)  # all of them lie on one
    few = recent_letters(bus, time.time_ns())
    assert (few.of_day[role, "telemetry.a"], few.whole) == (2, False)


@pytest.mark.kafka
def test_a_topic_that_is_missing_is_said(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "DEAD_LETTERS", replace(catalogue.DEAD_LETTERS, name=f"t{uuid4().hex[:8]}"))
    with pytest.raises(BusError, match="is missing: run `offbeat topics apply`"):
        recent_letters(Bus(kafka), time.time_ns())
