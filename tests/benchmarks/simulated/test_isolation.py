"""The pipeline is judged by the truth and never sees it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from benchmarks.simulated.detection import Detection, Telemetry, detect
from diagnosis.job import pivots
from offbeat import wiring
from offbeat.settings import Settings
from producers.importers.recording import load
from producers.job_source import JobSource
from producers.simulation import Fault, Kind, SimulatedRun, simulate, write
from producers.simulation.relabel import relabelled
from producers.simulation.scenario import FabricShape
from schemas.catalogue import TOPICS
from schemas.message import Message, decode
from streams import in_process, monitor
from tests.benchmarks.simulated.runs import SCENARIO, slow_gpu, telemetry_of


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


FAULTS = {
    Kind.GPU_SLOW: 5,
    Kind.NIC_SLOW: 11,
    Kind.CPU_SLOW: 8,
    Kind.LINK_SLOW: 2,
    Kind.NVLINK_SLOW: 9,
    Kind.TOR_SLOW: 3,
    Kind.SPINE_SLOW: 1,
}
"""A rank that each slows, or the spine."""

Answer = set[tuple[str, frozenset[int], frozenset[str]]]


@cache
def _slowed(kind: Kind) -> SimulatedRun:
    """A job in two pods: of two hosts each, or of four, as by fewer nobody tells a ToR from a NIC."""
    dp, gpus, hosts = (4, 2, 4) if kind is Kind.TOR_SLOW else (8, 8, 2)
    small = replace(SCENARIO, iterations=15, microbatches=2, layers=2, dp=dp, gpus_per_host=gpus)
    fault = Fault(kind, FAULTS[kind], tuple(range(12, 15)), slowdown=1.5)
    return simulate(replace(small, fabric=FabricShape(hosts_per_pod=hosts, spines=2), faults=(fault,)))


@cache
def _answer(kind: Kind) -> Answer:
    return _named(_slowed(kind))


def _named(run: SimulatedRun) -> Answer:
    """Who is named, and for what."""
    return {
        (row["cause"], frozenset(row["ranks"]), frozenset(device["device"] for device in row["devices"]))
        for row in detect(Telemetry.of(run.job, run.table), Settings()).incidents.values()
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", FAULTS)
def test_other_names_give_the_same_answer_under_those_names(
    kind: Kind, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pivots are chosen by numbers, and what is told of groups depends on them: the same ranks remain pivots."""
    run, drawn = _slowed(kind), Random(seed)
    expected = _answer(kind)
    names = sorted(run.job.ranks_of_host)
    ranks = dict(enumerate(drawn.sample(run.job.ranks, len(run.job.ranks))))
    hosts = dict(zip(names, drawn.sample(names, len(names)), strict=True))
    _choose(monkeypatch, (ranks[rank] for rank in pivots(run.job)))
    answer = _named(relabelled(run, ranks, hosts, lambda name: f"c{name[::-1]}", lambda name: f"d{name[::-1]}"))
    assert run.truth.faults[0].device in {device for _, _, devices in expected for device in devices}
    assert {(cause, frozenset(of)) for cause, of, _ in answer} == {
        (cause, frozenset(ranks[rank] for rank in of)) for cause, of, _ in expected
    }
    assert {device for _, _, devices in answer for device in devices} == {
        _renamed(device, hosts) for _, _, devices in expected for device in devices
    }


@pytest.mark.parametrize("kind", [Kind.GPU_SLOW, Kind.NIC_SLOW, Kind.CPU_SLOW, Kind.LINK_SLOW])
def test_other_pivots_name_the_same_device(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    run, expected = _slowed(kind), _answer(kind)
    others = {(rank + 2) % len(run.job.ranks) for rank in pivots(run.job)}
    assert others.isdisjoint(pivots(run.job))
    _choose(monkeypatch, others)
    assert _named(run) == expected


def _choose(monkeypatch: pytest.MonkeyPatch, ranks: Iterable[int]) -> None:
    """Let these ranks be the pivots."""
    chosen = tuple(sorted(ranks))
    for module in (monitor, wiring):
        monkeypatch.setattr(module, "pivots", lambda job, count: chosen)


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
