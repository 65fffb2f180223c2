"""The pipeline that follows NICs is judged by the truth and never sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from benchmarks.traffic.detection import detect
from benchmarks.traffic.plan import Case
from offbeat.settings import Settings
from producers.simulation.nic import NicRun, simulate_nics
from schemas.catalogue import TOPICS
from schemas.message import decode

CASE = Case(30_042, "neighbours/pcie_downgrade/0.5", "default")


@pytest.fixture(scope="module")
def run() -> NicRun:
    return simulate_nics(CASE.scenario())


def test_nothing_that_hosts_tell_is_of_the_fault(run: NicRun) -> None:
    (fault,) = run.truth.faults
    words = (*fault.injection.split("_"), *fault.kind.split("_"), "fault", "truth", "severity", "slow", "hung")
    messages = list(run.messages())
    assert {message.topic for message in messages} == {
        "telemetry.op_calls",
        "telemetry.queue_pairs",
        "telemetry.nic_epochs",
    }
    for message in messages:
        texts = json.dumps([*_texts(decode(message, TOPICS[message.topic])), dict(message.headers), message.key])
        assert not [word for word in words if word in texts]
    assert not [word for word in words if word in repr(run.job)]
    assert str(run.scenario.seed) not in run.job.job, "of the seed the plan of the runs tells the fault"


def test_with_the_truth_of_a_healthy_run_the_answer_is_the_same(run: NicRun) -> None:
    """What hosts tell, and so what is found in it, hangs on what happened alone."""
    answers = detect(run.job, list(run.messages()), Settings())
    assert [tuple(answer["ranks"]) for answer in answers] == [run.truth.faults[0].ranks]
    healthy = simulate_nics(replace(run.scenario, faults=()))
    assert healthy.truth.faults == ()
    blind = replace(run, truth=healthy.truth)
    assert detect(blind.job, list(blind.messages()), Settings()) == answers


def _texts(batch: pa.RecordBatch) -> Iterator[str]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        yield name
        if pa.types.is_dictionary(column.type):
            yield from (text for text in column.dictionary.to_pylist() if text is not None)
        elif pa.types.is_string(column.type):
            yield from (text for text in column.to_pylist() if text is not None)
