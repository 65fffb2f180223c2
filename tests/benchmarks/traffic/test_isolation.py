"""The pipeline that follows NICs is judged by the truth and never sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator

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


def test_without_its_truth_a_run_has_the_same_answer(run: NicRun) -> None:
    """Nothing but its job and its messages is given to the pipeline; those of a run whose truth nobody has are the
    same."""
    messages = list(run.messages())
    answers = detect(run.job, messages, Settings())
    assert [tuple(answer["ranks"]) for answer in answers] == [run.truth.faults[0].ranks]
    again = simulate_nics(CASE.scenario())
    job = again.job
    told = list(again.messages())
    del again
    assert detect(job, told, Settings()) == answers


def _texts(batch: pa.RecordBatch) -> Iterator[str]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        yield name
        if pa.types.is_dictionary(column.type):
            yield from (text for text in column.dictionary.to_pylist() if text is not None)
        elif pa.types.is_string(column.type):
            yield from (text for text in column.to_pylist() if text is not None)
