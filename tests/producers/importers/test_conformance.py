"""What every format's reader keeps to; a new format joins by its entry in ``SAMPLES``."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from producers import kept_iterations
from producers.importers.columns import COLUMNS, SCHEMA, check
from producers.importers.files import Limits
from producers.importers.formats import FORMATS, Format, recognise
from producers.importers.recording import Recording, load, write
from producers.log_store import Spans
from producers.segments import Segments
from schemas.catalogue import COMM_OPS
from schemas.errors import InputError
from tests.producers.importers import kept_log, megatrace_log
from tests.recordings import EXAMPLE

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
    recording: Callable[[Path, Recording], object]


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


@pytest.fixture(params=sorted(FORMATS))
def format_(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture
def sample(format_: Format) -> Sample:
    return SAMPLES[format_.name]


@pytest.fixture
def good(tmp_path: Path, sample: Sample) -> Path:
    path = tmp_path / sample.name
    sample.good(path)
    return path


def test_good_records_are_read_as_rows_that_can_be(format_: Format, good: Path) -> None:
    table = format_.read([good], Limits())
    assert table.schema.equals(SCHEMA, check_metadata=False)
    assert table.num_rows
    for batch in table.to_batches():
        check(batch, unnamed=True)
    assert {column.name for column in COLUMNS} == set(table.column_names)


def test_a_log_that_was_collected_twice_counts_once(tmp_path: Path, sample: Sample, example: Recording) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
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


def test_a_bad_record_is_named_with_its_file_and_field(tmp_path: Path, format_: Format, sample: Sample) -> None:
    path = tmp_path / sample.name
    sample.bad(path)
    with pytest.raises(InputError) as caught:
        format_.read([path], Limits())
    assert str(caught.value).startswith(f"{path}:")
    assert sample.field in str(caught.value)


def test_what_is_damaged_or_gone_is_refused_by_name(tmp_path: Path, format_: Format, good: Path) -> None:
    packed = tmp_path / f"{good.name}.gz"
    packed.write_bytes(gzip.compress(good.read_bytes())[:-20] + b"x" * 12)
    broken = packed if format_.name not in {"parquet", "kept"} else good
    if broken is good:
        good.write_bytes(good.read_bytes()[:-20])
    for path in (broken, tmp_path / "gone"):
        with pytest.raises(InputError, match=str(path)):
            format_.read([path], Limits())


def test_a_file_without_records_has_no_rows(tmp_path: Path, format_: Format, good: Path) -> None:
    if format_.name == "parquet":
        pq.write_table(SCHEMA.empty_table(), good)
    elif format_.name == "kept":
        good.write_bytes(b"")
    else:
        good.write_bytes(b"\n\n")
    assert format_.read([good], Limits()).num_rows == 0


def test_size_is_bounded(format_: Format, good: Path) -> None:
    for limits in (Limits(file_bytes=8), Limits(decoded_bytes=8)):
        with pytest.raises(InputError, match=good.name):
            format_.read([good], limits)


def test_a_recording_is_the_same_once_it_is_converted(tmp_path: Path, sample: Sample, example: Recording) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    sample.recording(folder, example)
    first = load([folder])
    write(first, tmp_path / "again.parquet")
    again = load([tmp_path / "again.parquet"])
    assert again.table.equals(first.table)
    assert again.table.schema.equals(COMM_OPS.schema)
    assert (again.job, again.lost_lines, again.duplicates) == (first.job, first.lost_lines, first.duplicates)
    assert again.iterations_source == first.iterations_source
