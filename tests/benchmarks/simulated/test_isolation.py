"""The pipeline is judged by the truth and never sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated.detection import Detection, Telemetry, detect
from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.job_source import JobSource
from producers.simulation import Fault, Kind, SimulatedRun, simulate, write
from producers.simulation.relabel import relabelled
from producers.simulation.scenario import FabricShape
from schemas.catalogue import TOPICS
from schemas.message import Message, decode
from streams import in_process
from tests.benchmarks.simulated.runs import SCENARIO, slow_gpu, telemetry_of

HOSTS = ["h0", "h1", "h2", "h3"]


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


FAULTS = {Kind.GPU_SLOW: 5, Kind.NIC_SLOW: 11, Kind.CPU_SLOW: 8, Kind.LINK_SLOW: 2}
"""A rank that each slows. What is told of groups alone depends on which ranks are pivots, and these on numbers."""

Answer = set[tuple[str, frozenset[int], frozenset[str]]]


@cache
def _slowed(kind: Kind) -> SimulatedRun:
    """A job on four hosts in two pods."""
    fault = Fault(kind, FAULTS[kind], tuple(range(14, 22)), slowdown=1.5)
    shape = FabricShape(hosts_per_pod=2, spines=2)
    return simulate(replace(SCENARIO, iterations=22, dp=8, gpus_per_host=8, fabric=shape, faults=(fault,)))


@cache
def _answer(kind: Kind) -> Answer:
    return _named(_slowed(kind))


def _named(run: SimulatedRun) -> Answer:
    """Who is named, and for what."""
    return {
        (row["cause"], frozenset(row["ranks"]), frozenset(device["device"] for device in row["devices"]))
        for row in detect(Telemetry.of(run.job, run.table), Settings()).incidents.values()
    }


@pytest.mark.parametrize("kind", FAULTS)
@settings(max_examples=1, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_other_names_give_the_same_answer_under_those_names(kind: Kind, seed: int) -> None:
    run, drawn = _slowed(kind), Random(seed)
    ranks = dict(enumerate(drawn.sample(run.job.ranks, len(run.job.ranks))))
    hosts = dict(zip(HOSTS, drawn.sample(HOSTS, len(HOSTS)), strict=True))
    answer = _named(relabelled(run, ranks, hosts, lambda name: f"c{name[::-1]}", lambda name: f"d{name[::-1]}"))
    expected = _answer(kind)
    assert expected
    assert {(cause, frozenset(of)) for cause, of, _ in answer} == {
        (cause, frozenset(ranks[rank] for rank in of)) for cause, of, _ in expected
    }
    assert {device for _, _, devices in answer for device in devices} == {
        _renamed(device, hosts) for _, _, devices in expected for device in devices
    }


def _renamed(device: str, hosts: Mapping[str, str]) -> str:
    kind, _, place = device.partition(":")
    if kind in {"tor", "spine"}:
        return f"{kind}:d{place[::-1]}"
    host, slash, own = place.partition("/")
    return f"{kind}:{hosts[host]}{slash}{f'd{own[::-1]}' if kind in {'nic', 'link'} else own}"


def _detected(folder: Path) -> Detection:
    recording = load([folder])
    return detect(Telemetry(recording.job, recording.table), Settings())


def _texts(batch: pa.RecordBatch) -> list[object]:
    """The texts that a batch of operators holds."""
    columns = (column for column in batch.columns if pa.types.is_dictionary(column.type))
    return [text for column in columns for text in column.dictionary.to_pylist()]
