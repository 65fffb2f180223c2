"""The agent collects what the settings say, and tells Kafka of it; ``offbeat preload`` builds the library."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagnosis.job import Job, Place
from offbeat.collecting import Collecting
from offbeat.setting_groups import CollectSettings, LiveSettings
from offbeat.settings import Settings
from producers.collectors.call_log import MEMBER
from producers.importers.traffic import load
from producers.job_source import job_message
from producers.publisher import Publisher
from schemas.catalogue import ADDRESSES, NIC_EPOCHS, OP_CALLS
from schemas.message import Message, decode
from schemas.topic import Topic
from streams.bus import Bus
from streams.follower import Follower
from tests.offbeat.command_line import offbeat, refusal
from tests.offbeat.test_agent import running
from tests.producers.collectors.dumps import dump
from tests.producers.collectors.rings import record, write

WITHIN_S = 60.0


def counted_port(folder: Path) -> Path:
    counters = folder / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters / "port_xmit_data").write_text("7")
    return folder


def unknown(_: str) -> None:
    """No job is described."""


def awaited(found: Iterator[Any]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (messages := next(found)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return messages


def test_ports_are_sampled_while_it_is_entered(tmp_path: Path) -> None:
    collect = CollectSettings(
        calls=tmp_path / "none",
        port_counters=True,
        infiniband=counted_port(tmp_path),
        epoch_ms=1,
        every_s=0.01,
        job="j",
    )
    with Collecting(Settings(collect=collect, live=LiveSettings(host="h0")), unknown) as collecting:

        def covered() -> Iterator[list[Message]]:
            while True:
                told = list(collecting.collector.step(time.time_ns())) if collecting.take_turn() else []
                rows = [row for message in told for row in decode(message, NIC_EPOCHS).to_pylist()]
                yield told if any(row["poll_to_ns"] > row["poll_from_ns"] for row in rows) else []

        [message] = awaited(covered())
        assert message.key == "j/h0"
    assert not collecting._sampling.is_alive()


def test_where_nothing_can_be_collected_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collect = CollectSettings(dumps=tmp_path / "none", port_counters=True, infiniband=tmp_path)
    with caplog.at_level("WARNING"):
        Collecting(Settings(collect=collect), unknown)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"{tmp_path / 'none'} is no folder yet",
        f"there is no RDMA port to count below {tmp_path}",
    ]
    caplog.clear()
    Collecting(Settings(collect=collect.model_copy(update={"dumps": tmp_path, "port_counters": False})), unknown)
    assert not caplog.records


@pytest.mark.kafka
def test_what_is_collected_reaches_kafka(kafka: str, tmp_path: Path) -> None:
    job, now_ns = f"collected-{tmp_path.name}", time.time_ns()
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "1.epochs").write_bytes(dump([(7, 1, [3])]))
    calls = record(at_ns=now_ns, communicator=0xAB, count=1), record(at_ns=now_ns, communicator=0xAB, count=2)
    write(tmp_path / "calls" / "3-a", *calls, facts=(record(MEMBER, communicator=0xAB, place=1),), job=job)
    settings = {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka,
        "OFFBEAT_LIVE__RINGS": str(tmp_path / "rings"),
        "OFFBEAT_LIVE__FOLDER": str(tmp_path / "agent"),
        "OFFBEAT_LIVE__HOST": "h0",
        "OFFBEAT_COLLECT__CALLS": str(tmp_path / "calls"),
        "OFFBEAT_COLLECT__DUMPS": str(tmp_path / "dumps"),
        "OFFBEAT_COLLECT__JOB": job,
    }
    assert offbeat("topics", "apply", settings=settings).exit_code == 0

    def published(topic: Topic) -> Iterator[list[Message]]:
        with Follower(Bus(kafka), topic.name) as follower:
            while True:
                yield [message for message in follower.catch_up() if message.job == job]

    with running(settings, tmp_path):
        [of_calls] = awaited(published(OP_CALLS))
        [of_nics] = awaited(published(NIC_EPOCHS))
        addresses = awaited(published(ADDRESSES))
    assert {message.key for message in (of_calls, of_nics, *addresses)} == {f"{job}/h0"}
    assert [row["count"] for row in decode(of_calls, OP_CALLS).to_pylist()] == [1, 2]
    assert [row["units"] for row in decode(of_nics, NIC_EPOCHS).to_pylist()] == [[3]]
    assert [row["number"] for row in decode(addresses[0], ADDRESSES).to_pylist()] == [1]
    assert not (tmp_path / "calls" / "3-a").exists()
    assert list((tmp_path / "dumps").iterdir()) == []


@pytest.mark.kafka
def test_at_the_edge_epochs_stay_until_somebody_asks(kafka: str, tmp_path: Path) -> None:
    job = Job(f"edge-{tmp_path.name}", (Place(3, "h0", 0, ("mlx5_0",)), Place(4, "h1", 0, ("mlx5_0",))), ())
    dumps, out = tmp_path / "dumps", tmp_path / "slow.nic_epochs.jsonl"
    dumps.mkdir()
    settings = {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka,
        "OFFBEAT_LIVE__RINGS": str(tmp_path / "rings"),
        "OFFBEAT_LIVE__FOLDER": str(tmp_path / "agent"),
        "OFFBEAT_LIVE__HOST": "h0",
        "OFFBEAT_COLLECT__CALLS": str(tmp_path / "calls"),
        "OFFBEAT_COLLECT__DUMPS": str(dumps),
        "OFFBEAT_COLLECT__JOB": job.job,
        "OFFBEAT_COLLECT__SEGMENT_AT": "edge",
    }
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    publisher = Publisher({"bootstrap.servers": kafka}, "test")
    publisher.send(job_message(job))
    publisher.flush()
    (dumps / "1.epochs").write_bytes(dump([(7, 1, [3])], from_ns=10**9, to_ns=2 * 10**9))
    (dumps / "2.epochs").write_bytes(dump([(7, 1, [4])], from_ns=2 * 10**9, to_ns=3 * 10**9))
    fetch = ("epochs", job.job, "--out", out, "--from-ns", 2 * 10**9, "--json")

    def fetched(*more: object) -> Iterator[Any]:
        while True:
            result = offbeat(*fetch, *more, settings=settings)
            told = json.loads(result.stdout) if result.exit_code == 0 else {"polls": 0}  # no agent answered in time
            yield told if told["polls"] else []

    with running(settings, tmp_path):
        told = awaited(fetched("--rank", 3))
        of_all = awaited(fetched("--within", 2))  # rank 4 never answers, so this is how long it waits
    assert (told["outcomes"], told["silent"]) == ({"h0": "complete"}, [])
    assert (of_all["outcomes"], of_all["silent"]) == ({"h0": "complete"}, [4])
    assert [row["units"] for row in load([out]).nic_epochs.to_pylist()] == [[4]]
    with Follower(Bus(kafka), NIC_EPOCHS.name) as follower:
        assert all("request_id" in m.headers for m in follower.catch_up() if m.job == job.job)


def test_epochs_that_cannot_be_written_are_not_asked_for(tmp_path: Path) -> None:
    said = refusal(offbeat("epochs", "j", "--out", tmp_path / "epochs.json"))
    assert said.endswith("give a file whose name ends in .nic_epochs.jsonl")


def test_the_library_is_built_where_it_is_wanted(tmp_path: Path) -> None:
    made = offbeat("preload", str(tmp_path))
    if made.exit_code:  # no compiler here: it is said what to install
        assert "install one" in made.stderr
        return
    assert made.stdout.strip() == str(tmp_path / "liboffbeat_calls.so")
    assert (tmp_path / "liboffbeat_calls.so").read_bytes().startswith(b"\x7fELF")
