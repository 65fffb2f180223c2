"""The pipeline is judged by the truth and never sees it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.simulated.detection import Detection, Telemetry, detect
from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.job_source import JobSource
from producers.simulation import write
from producers.simulation.relabel import relabelled
from schemas.catalogue import TOPICS
from schemas.message import Message, decode
from streams import in_process
from tests.benchmarks.simulated.runs import slow_gpu, telemetry_of


@pytest.fixture(scope="module")
def detection() -> Detection:
    return detect(telemetry_of(slow_gpu()), Settings())


def test_the_culprit_is_named(detection: Detection) -> None:
    [incident] = detection.incidents.values()
    assert [device["device"] for device in incident["devices"]] == ["gpu:h0/5"]
    assert detection.searched
    assert set(detection.fetched_rows) == set(detection.searched)
    assert min(detection.fetched_rows.values()) > 0


def test_deleting_the_truth_changes_nothing(tmp_path: Path) -> None:
    truth_file = tmp_path / "truth" / "truth.json"
    truth_file.parent.mkdir()
    write(slow_gpu(), tmp_path / "recording", truth_file)
    beside = _detected(tmp_path / "recording")
    truth_file.unlink()
    assert beside.incidents
    assert _detected(tmp_path / "recording") == beside


def test_nothing_on_the_bus_tells_of_the_fault() -> None:
    run = slow_gpu()
    messages: list[Message] = []
    hosts = wiring.log_agents(run.job, telemetry_of(run).table, Settings(publish_all=True))
    in_process.run([JobSource(run.job, hosts), *hosts], [], on_message=messages.append)
    assert {message.topic for message in messages} == {
        "control.jobs",
        "telemetry.comm_ops",
        "telemetry.iteration_summaries",
    }
    for message in messages:
        batch = decode(message, TOPICS[message.topic])
        told = _texts(batch) if message.topic == "telemetry.comm_ops" else batch.to_pylist()
        text = json.dumps([told, dict(message.headers)])
        assert not [word for word in ("fault", "slow", "truth", "inseparable") if word in text]


def test_other_names_give_the_same_answer_under_those_names(detection: Detection) -> None:
    run = slow_gpu()
    ranks = {rank: (rank * 7 + 3) % 16 for rank in run.job.ranks}
    hosts = {"h0": "k", "h1": "b"}
    other = relabelled(run, ranks, hosts, lambda name: f"c{name[::-1]}")
    answer = detect(Telemetry.of(other.job, other.table), Settings())
    [incident], [renamed] = detection.incidents.values(), answer.incidents.values()
    assert renamed["ranks"] == [ranks[rank] for rank in incident["ranks"]]
    assert [device["device"] for device in renamed["devices"]] == ["gpu:k/5"]
    for name in ("cause", "level", "first_iteration", "last_iteration", "pattern"):
        assert renamed[name] == incident[name]
    assert answer.irregular == detection.irregular


def _detected(folder: Path) -> Detection:
    recording = load([folder])
    return detect(Telemetry(recording.job, recording.table), Settings())


def _texts(batch: pa.RecordBatch) -> list[object]:
    """The texts that a batch of operators holds."""
    columns = (column for column in batch.columns if pa.types.is_dictionary(column.type))
    return [text for column in columns for text in column.dictionary.to_pylist()]
