"""Which jobs control.jobs and control.addresses need not hold any more, and that they go."""

import time
from dataclasses import replace
from uuid import uuid4

import pytest

from offbeat import wiring
from offbeat.setting_groups import KafkaSettings
from producers.job_source import job_message
from schemas import catalogue
from schemas.message import Message, encode
from streams import retirement, topics
from streams.bus import Bus
from streams.control_view import Jobs
from streams.follower import Follower
from streams.retirement import KEPT_NS, addresses_of, retired, tombstone
from tests.offbeat.command_line import offbeat
from tests.streams.examples import job_record

NOW_NS = 10 * KEPT_NS
LONG_AGO_NS = NOW_NS - KEPT_NS - 1


def told(job: str, at_ns: int, ended_ns: int | None = 1) -> Message:
    jobs = Jobs()
    jobs.process(job_record(job))
    return replace(job_message(replace(jobs[job], ended_ns=ended_ns)), timestamp_ns=at_ns)


def test_those_go_whose_end_was_told_before_anything_that_is_still_kept() -> None:
    records = [
        told("long over", LONG_AGO_NS),
        told("over", NOW_NS - KEPT_NS),
        told("runs", LONG_AGO_NS, ended_ns=None),
        told("came back", LONG_AGO_NS),
        told("came back", NOW_NS, ended_ns=None),
        told("dropped", LONG_AGO_NS),
        replace(tombstone("dropped"), timestamp_ns=LONG_AGO_NS),
        replace(told("unreadable", LONG_AGO_NS), value=b"?"),
    ]
    assert retired(records, NOW_NS) == ["long over"]


def test_a_job_goes_only_by_a_record_that_its_tombstone_drops_and_the_broker_has_stamped() -> None:
    """Producers need not be ours: a key may name something else, and a time be the producer's, which is not taken."""
    lines: list[str] = []
    records = [
        replace(told("a", LONG_AGO_NS), key="zzz"),
        told("b", LONG_AGO_NS),
        replace(told("b", NOW_NS, ended_ns=None), key="other"),
        told("unstamped", 0),
        told("damaged since", LONG_AGO_NS),
        replace(told("damaged since", NOW_NS), value=b"?"),
        told("long over", LONG_AGO_NS),
    ]
    placed = [replace(record, offset=offset) for offset, record in enumerate(records)]
    assert retired(placed, NOW_NS, lines.append) == ["long over"]
    assert [line.partition(": ")[0] for line in lines] == [
        f"control.jobs partition 0 offset {offset}" for offset in (0, 2, 3, 5)
    ]
    assert "key is 'zzz' and its job 'a'" in lines[0]


def test_nothing_of_a_job_is_kept_for_longer() -> None:
    assert KEPT_NS == 30 * 24 * 3600 * 10**9
    assert all(topic.compacted or topic.retention_hours * 3600e9 <= KEPT_NS for topic in catalogue.TOPICS.values())


def met(job: str, host: str) -> Message:
    return encode(catalogue.ADDRESSES, catalogue.ADDRESSES.from_rows([]), job=job, key=f"{job}/{host}")


def test_what_hosts_left_of_a_job_goes_with_it() -> None:
    """An agent that was killed, or whose host died, has not dropped it."""
    dropped = replace(met("over", "h1"), value=None)
    records = [met("over", "h0"), met("over", "h1"), met("runs", "h0"), dropped, met("over", "h2"), met("over", "h0")]
    tombstones = addresses_of(records, ["over"])
    assert [(m.topic, m.key, m.value, m.job) for m in tombstones] == [
        ("control.addresses", f"over/{host}", None, "over") for host in ("h0", "h2")
    ]
    assert addresses_of([*records, *tombstones], ["over"]) == []


@pytest.mark.kafka
def test_the_command_drops_them(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(kafka)
    topics.apply(bus, [catalogue.JOBS, catalogue.ADDRESSES])
    over, runs = (f"{name}-{uuid4().hex[:8]}" for name in ("over", "runs"))
    publisher = wiring.publisher(KafkaSettings(bootstrap_servers=kafka), "test")
    for record in (told(over, 0), told(runs, 0, ended_ns=None), met(over, "h0"), met(runs, "h0")):
        publisher.send(record)
    publisher.flush()
    own = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka}
    assert over not in offbeat("topics", "retire", settings=own).stdout
    monkeypatch.setattr(retirement, "KEPT_NS", -time.time_ns())
    # The broker is other tests' as well.
    monkeypatch.setattr(retirement, "retired", lambda *given: [job for job in retired(*given) if job in {over, runs}])
    assert f"would drop {over}" in offbeat("topics", "retire", "--dry-run", settings=own).stdout
    assert over in known(bus)
    dropped = offbeat("topics", "retire", settings=own).stdout
    assert f"dropped {over}" in dropped
    assert runs not in dropped
    assert over not in known(bus)
    assert runs in known(bus)
    with Follower(bus, catalogue.ADDRESSES.name) as follower:
        newest = {record.key: record.value for record in follower.catch_up()}
    assert newest[f"{over}/h0"] is None
    assert newest[f"{runs}/h0"] is not None


def known(bus: Bus) -> set[str]:
    jobs = Jobs()
    with Follower(bus, catalogue.JOBS.name) as follower:
        for record in follower.catch_up():
            jobs.process(record)
    return set(jobs)
