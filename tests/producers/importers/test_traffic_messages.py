"""Recorded traffic told again: all of it, once, on its host, in the order of its time; and whose it is."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.job import Layout
from producers.importers.traffic import Traffic, load
from producers.importers.traffic_job import complete
from producers.importers.traffic_messages import messages
from producers.simulation.nic import NicRun, simulate_nics
from producers.simulation.recording import write
from schemas.catalogue import NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS, TOPICS
from schemas.errors import InputError
from schemas.message import decode
from tests.streams.traffic_cases import runs

NAMES = {NIC_EPOCHS: "nic_epochs", OP_CALLS: "op_calls", QUEUE_PAIRS: "queue_pairs"}


@cache
def run() -> NicRun:
    return simulate_nics(replace(runs()[1].scenario, iterations=4, poll_s=0.3))


@pytest.fixture
def recorded(tmp_path: Path) -> Traffic:
    write(run(), tmp_path / "run")
    return load([tmp_path / "run"])


def test_every_row_is_told_once_on_its_host_and_time_goes_on(recorded: Traffic) -> None:
    job, traffic = complete(recorded, "run", run().job, None)
    told = list(messages(job, traffic))
    assert [m.watermark_ns for m in told] == sorted(m.watermark_ns for m in told)
    for topic, name in NAMES.items():
        rows = [
            {**row, "host": m.key.partition("/")[2]}
            for m in told
            if m.topic == topic.name
            for row in decode(m, TOPICS[m.topic]).to_pylist()
        ]
        given = getattr(recorded, name).to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, given))
    calls = [m for m in told if m.topic == OP_CALLS.name]
    for message in calls:
        assert all(at < message.watermark_ns for at in decode(message, OP_CALLS).column("call_ns").to_pylist())


def test_a_job_is_told_by_its_traffic(recorded: Traffic) -> None:
    job, _ = complete(recorded, "run", None, None)
    real = run().job
    assert job.job == "run"
    assert [(p.rank, p.host, p.nics) for p in job.places] == [(p.rank, p.host, p.nics) for p in real.places]
    assert set(job.communicators) <= set(real.communicators)
    assert job.communicators


def test_hosts_are_those_of_ranks_where_rows_tell_none(recorded: Traffic) -> None:
    def bare(table: pa.Table) -> pa.Table:
        at = table.column_names.index("host")
        return table.set_column(at, "host", pa.nulls(table.num_rows, table.schema.field("host").type))

    calls_alone = replace(recorded, op_calls=bare(recorded.op_calls), queue_pairs=bare(recorded.queue_pairs))
    _, traffic = complete(calls_alone, "run", run().job, None)
    assert traffic.op_calls.column("host").to_pylist() == recorded.op_calls.column("host").to_pylist()
    with pytest.raises(InputError, match=r"nothing tells on which host .* is; give rows a field host"):
        complete(calls_alone, "run", None, None)
    with pytest.raises(InputError, match=r"on which host nic mlx5_0 is"):  # all hosts have one of that name
        complete(replace(recorded, nic_epochs=bare(recorded.nic_epochs)), "run", run().job, None)


def test_a_rank_on_two_hosts_is_refused_with_the_line(recorded: Traffic) -> None:
    elsewhere = replace(run().job, places=tuple(replace(place, host="h9") for place in run().job.places))
    with pytest.raises(InputError, match=r"h0\.op_calls\.jsonl\.gz:1: rank 0 is on two hosts, h9 and h0"):
        complete(recorded, "run", elsewhere, None)
    with pytest.raises(InputError, match=r"^rank 0 is on two hosts"):
        complete(replace(recorded, files=()), "run", elsewhere, None)


def test_a_rank_that_the_layout_does_not_have_is_refused_with_the_line(recorded: Traffic) -> None:
    layout = Layout(tp=1, pp=1, dp=2, source="given")
    with pytest.raises(
        InputError, match=r"op_calls\.jsonl\.gz:\d+: rank \d+ is none of the layout's 2; correct the rank"
    ):
        complete(recorded, "run", None, layout)


def test_whose_last_members_never_called_is_not_known_whole(recorded: Traffic) -> None:
    """Those who call the others' peers are in queue pairs alone."""
    last = max(run().job.ranks)
    calls = recorded.op_calls.filter(pc.not_equal(recorded.op_calls.column("rank"), last))
    job, _ = complete(replace(recorded, op_calls=calls), "run", None, None)
    real = {one.communicator: one.ranks for one in run().job.communicators}
    assert {one.communicator for one in job.communicators if last in real[one.communicator]}
    assert all(one.ranks in {(), real[one.communicator]} for one in job.communicators)
    assert all(one.ranks == () for one in job.communicators if last in real[one.communicator])
