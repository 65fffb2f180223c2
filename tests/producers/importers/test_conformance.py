"""What every format's reader keeps to; a new format joins by its entry in ``SAMPLES``."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from producers import kept_iterations
from producers.importers.columns import COLUMNS, SCHEMA, check
from producers.importers.files import Limits
from producers.importers.formats import FORMATS, Format, recognise
from producers.importers.recording import Recording, load, write
from producers.importers.traffic import TRAFFIC
from producers.log_store import Spans
from producers.segments import Segments
from schemas.catalogue import COMM_OPS, NIC_EPOCHS, OP_CALLS, QUEUE_PAIRS
from schemas.errors import InputError
from schemas.message import decode, encode
from schemas.topic import Topic
from tests.producers.collectors.dumps import dump
from tests.producers.importers import kept_log, megatrace_log
from tests.recordings import EXAMPLE
from tests.schemas.samples import good_samples

DATA = Path(__file__).parent / "testdata"


@dataclass(frozen=True)
class Sample:
    """A format by example: a file's name, records that are good, one that is bad with the field that it names, and
    the shipped recording in this format.
    """

    name: str
    good: Callable[[Path], object]
    bad: Callable[[Path], object]
    field: str
    recording: Callable[[Path, Recording], object] | None = None


def _json_lines(name: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes((DATA / name).read_bytes())


def _parquet(name: str) -> Callable[[Path], object]:
    rows = [json.loads(line) for line in (DATA / name).read_text().splitlines()]
    names = list(dict.fromkeys(field for row in rows for field in row))
    return lambda path: pq.write_table(pa.table({n: pa.array([row.get(n) for row in rows]) for n in names}), path)


def _bad_megatrace(path: Path) -> None:
    good = (DATA / "megatrace.good.log").read_text()
    path.write_text(good + (DATA / "megatrace.bad.txt").read_text().splitlines()[0].split("\t")[1] + "\n")


def _kept(rank: int) -> Callable[[Path], object]:
    """An iteration of an operator of one rank."""
    row = {"rank": rank, "communicator": "dp", "call_order": 0, "op": "barrier", "call_ns": 1, "iteration": 3}
    one = np.ones(1, dtype=np.int64)
    table = pa.Table.from_batches([COMM_OPS.from_rows([row])])
    payload = kept_iterations.encode(table, one, Spans(one * rank, one, one, one * 0), {"first": 3})

    def written(path: Path) -> None:
        Segments(path.parent, 1 << 20).append(3, payload)
        next(path.parent.glob("*.frames")).rename(path)

    return written


def _rows(topic: Topic, **wrong: object) -> Callable[[Path], object]:
    """The topic's good rows, and after them one with a value that cannot be."""
    rows = [row for sample in good_samples() if sample.topic is topic for row in sample.rows]
    rows += [{**rows[0], **wrong}] if wrong else []
    return lambda path: path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _dump(**given: Any) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(dump([(5, 3, [1, 0, 2])]) + dump(**given))


def _copied(path: Path, _: Recording) -> None:
    for file in EXAMPLE.glob("*.gz"):
        (path / file.name).write_bytes(file.read_bytes())


SAMPLES = {
    "jsonl": Sample("a.jsonl", _json_lines("jsonl.good.jsonl"), _json_lines("jsonl.bad.jsonl"), "field rank", _copied),
    "parquet": Sample(
        "a.parquet",
        _parquet("jsonl.good.jsonl"),
        _parquet("jsonl.bad.jsonl"),
        "field rank",
        lambda path, recording: write(recording, path / "a.parquet"),
    ),
    "megatrace": Sample(
        "a.log",
        _json_lines("megatrace.good.log"),
        _bad_megatrace,
        "time",
        lambda path, recording: megatrace_log.write(path, recording.table),
    ),
    "kept": Sample(
        "a.frames",
        _kept(0),
        _kept(-1),
        "iteration 3: telemetry.comm_ops: column rank",
        lambda path, recording: kept_log.write(path, recording.table),
    ),
}
TRAFFIC_SAMPLES = {
    "op_calls.jsonl": Sample("a.op_calls.jsonl", _rows(OP_CALLS), _rows(OP_CALLS, rank=-1), "rank"),
    "queue_pairs.jsonl": Sample("a.queue_pairs.jsonl", _rows(QUEUE_PAIRS), _rows(QUEUE_PAIRS, qpn=1 << 24), "qpn"),
    "nic_epochs.jsonl": Sample("a.nic_epochs.jsonl", _rows(NIC_EPOCHS), _rows(NIC_EPOCHS, units="1"), "units"),
    "epochs": Sample("a.epochs", _dump(nic=b"mlx5_1"), _dump(epoch_ns=0), "field epoch_ns"),
}
"""Recordings of traffic are no logs of operators, but are read as carefully."""


@pytest.fixture(params=sorted(FORMATS))
def format_(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture(params=sorted([*FORMATS, *TRAFFIC]))
def reader(request: pytest.FixtureRequest) -> Format:
    """Any format, whatever its rows are of."""
    return {**FORMATS, **TRAFFIC}[request.param]


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    """That of the format that the test is about."""
    about = next(name for name in ("format_", "reader") if name in request.fixturenames)
    return {**SAMPLES, **TRAFFIC_SAMPLES}[request.getfixturevalue(about).name]


@pytest.fixture
def good(tmp_path: Path, sample: Sample) -> Path:
    path = tmp_path / sample.name
    sample.good(path)
    return path


@pytest.mark.parametrize("name", TRAFFIC)
def test_good_traffic_is_read_as_rows_that_readers_take(tmp_path: Path, name: str) -> None:
    format_, sample = TRAFFIC[name], TRAFFIC_SAMPLES[name]
    sample.good(tmp_path / sample.name)
    table = format_.read([tmp_path / sample.name], Limits())
    assert table.schema.equals(format_.schema, check_metadata=False)
    assert table.num_rows >= 2
    [batch] = table.select(format_.topic.schema.names).cast(format_.topic.schema).to_batches()
    assert decode(encode(format_.topic, batch, job="j"), format_.topic).equals(batch)


def test_good_records_are_read_as_rows_that_can_be(format_: Format, good: Path) -> None:
    table = format_.read([good], Limits())
    assert table.schema.equals(SCHEMA, check_metadata=False)
    assert table.num_rows
    for batch in table.to_batches():
        check(batch)
    assert {column.name for column in COLUMNS} == set(table.column_names)


@pytest.mark.usefixtures("format_")
def test_a_log_that_was_collected_twice_counts_once(tmp_path: Path, sample: Sample, example: Recording) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        assert sample.recording is not None
        sample.recording(folder, example)
    once, twice = load([tmp_path / "one"]), load([tmp_path / "one", tmp_path / "two"])
    assert twice.duplicates == once.table.num_rows
    assert (twice.table.num_rows, twice.lost_lines) == (once.table.num_rows, once.lost_lines)


def test_its_files_are_recognised_among_others(tmp_path: Path, format_: Format, good: Path) -> None:
    (tmp_path / "notes.txt").touch()
    found = recognise([tmp_path])
    assert (found.format.name, found.files) == (format_.name, (good,))
    assert recognise([good], format_.name).files == (good,)
    with pytest.raises(InputError) as caught:
        recognise([tmp_path / "notes.txt"])
    assert f"{format_.name} ({format_.what})" in str(caught.value)


def test_a_bad_record_is_named_with_its_file_and_field(tmp_path: Path, reader: Format, sample: Sample) -> None:
    path = tmp_path / sample.name
    sample.bad(path)
    with pytest.raises(InputError) as caught:
        reader.read([path], Limits())
    assert str(caught.value).startswith(f"{path}:")
    assert sample.field in str(caught.value)


def test_what_is_damaged_or_gone_is_refused_by_name(tmp_path: Path, reader: Format, good: Path) -> None:
    packed = tmp_path / f"{good.name}.gz"
    whole = gzip.compress(good.read_bytes())
    packed.write_bytes(whole[:-8] + bytes(8))  # neither the checksum nor the length is that of what it holds
    broken = packed if reader.name not in {"parquet", "kept", "epochs"} else good
    if broken is good:
        good.write_bytes(good.read_bytes()[:-20])
    for path in (broken, tmp_path / "gone"):
        with pytest.raises(InputError, match=str(path)):
            reader.read([path], Limits())


def test_a_file_without_records_has_no_rows(tmp_path: Path, reader: Format, good: Path) -> None:
    if reader.name == "parquet":
        pq.write_table(SCHEMA.empty_table(), good)
    elif reader.name in {"kept", "epochs"}:
        good.write_bytes(b"")
    else:
        good.write_bytes(b"\n\n")
    assert reader.read([good], Limits()).num_rows == 0


def test_size_is_bounded(reader: Format, good: Path) -> None:
    for limits in (Limits(file_bytes=8), Limits(decoded_bytes=8)):
        with pytest.raises(InputError, match=good.name):
            reader.read([good], limits)


@pytest.mark.usefixtures("format_")
def test_a_recording_is_the_same_once_it_is_converted(tmp_path: Path, sample: Sample, example: Recording) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    assert sample.recording is not None
    sample.recording(folder, example)
    first = load([folder])
    write(first, tmp_path / "again.parquet")
    again = load([tmp_path / "again.parquet"])
    assert again.table.equals(first.table)
    assert again.table.schema.equals(COMM_OPS.schema)
    assert (again.job, again.lost_lines, again.duplicates) == (first.job, first.lost_lines, first.duplicates)
    assert again.iterations_source == first.iterations_source
