"""Parquet: whose columns are read, what is refused, and that a converted recording is the same recording."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.importers import parquet
from producers.importers.about import About, described, joined
from producers.importers.files import Limits
from producers.importers.formats import recognise
from producers.importers.parquet import Parquet
from producers.importers.recording import Recording, load, write
from schemas.errors import InputError
from tests.recordings import EXAMPLE

ROW: dict[str, Any] = {"rank": 3, "communicator": "c", "op": "all_reduce", "call_ns": 10}


def written(path: Path, *rows: dict[str, Any], **types: pa.DataType) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pa.array([row.get(name) for row in rows], types.get(name)) for name in names}
    pq.write_table(pa.table(columns), path)
    return path


def read(*paths: Path, **limits: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Parquet().read(paths, Limits(**limits)).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def refusal(path: Path, **limits: int) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **limits)
    return str(caught.value)


def test_all_columns_that_are_missing_are_told_with_those_that_are_there(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"op": "send", "ts": 7, "comm": "c"})
    assert refusal(path) == f"{path}: columns are missing: rank, call_ns; it has op, ts, comm"
    placed = written(tmp_path / "rank=3" / "a.parquet", {"op": "send", "ts": 7})
    assert refusal(placed) == f"{placed}: columns are missing: call_ns; it has op, ts"
    unnamed = written(tmp_path / "b.parquet", {"op": "send", "call_ns": 7, "rank": 3})
    columns = "communicator, or else stream; it has op, call_ns, rank"
    assert refusal(unnamed) == f"{unnamed}: columns are missing: {columns}"


@pytest.mark.parametrize(
    "types",
    [
        {},
        {"rank": pa.int64(), "call_ns": pa.uint64()},
        {"rank": pa.float64()},
        {"communicator": pa.large_string(), "op": pa.dictionary(pa.int8(), pa.string())},
        {"communicator": pa.string_view(), "op": pa.binary_view()},
        {"communicator": pa.binary(), "op": pa.large_binary()},
        {"communicator": pa.dictionary(pa.int8(), pa.binary()), "op": pa.dictionary(pa.int32(), pa.large_string())},
        {"call_ns": pa.timestamp("ns")},
        {"call_ns": pa.timestamp("us", "UTC")},
    ],
)
def test_columns_are_read_in_the_types_of_any_writer(tmp_path: Path, types: dict[str, pa.DataType]) -> None:
    row = {**ROW, "call_ns": 7000}
    given_as = {**row, "call_ns": 7 if types.get("call_ns") == pa.timestamp("us", "UTC") else 7000}
    assert read(written(tmp_path / "a.parquet", given_as, given_as, **types)) == [row, row]


def test_other_spellings_and_unknown_columns_are_fine(tmp_path: Path) -> None:
    row = {"rank": 0, "comm": "c", "op": "send", "call_ns": 1, "phase": "F", "mine": [1.5]}
    assert read(written(tmp_path / "a.parquet", row)) == [
        {"rank": 0, "communicator": "c", "op": "send", "call_ns": 1, "phase": "forward"}
    ]


def test_what_is_not_a_number_in_a_float_column_is_null(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {**ROW, "seq": 4.0}, {**ROW, "seq": float("nan")})
    assert read(path) == [{**ROW, "seq": 4}, ROW]


def test_a_partitioned_folder_is_one_recording(tmp_path: Path) -> None:
    rest = {name: value for name, value in ROW.items() if name != "rank"}
    for rank in range(3):
        written(tmp_path / "run" / f"rank={rank}" / "host=node%201" / "part-0.parquet", rest)
    found = recognise([tmp_path / "run"])
    assert (found.format.name, len(found.files)) == ("parquet", 3)
    assert read(*found.files) == [{**ROW, "rank": rank, "host": "node 1"} for rank in range(3)]
    bad = written(tmp_path / "run" / "rank=x" / "part-0.parquet", rest)
    assert refusal(bad) == f'{bad}: field rank: the folder says "x", not int32'


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rank": None}, "row 1: field rank is missing"),
        ({"rank": -1}, "row 1: field rank is -1; the least possible value is 0"),
        ({"op": "all_mix"}, 'row 1: field op is "all_mix"; known are'),
        ({"phase": "sideways"}, 'row 1: field phase is "sideways"; known are'),
        ({"end_ns": 5}, "row 1: field end_ns lies before call_ns"),
        ({"end_ns": 10**18}, "row 1: field end_ns lies 11574 days after call_ns: give both in nanoseconds"),
        ({"call_ns": None}, "row 1: field call_ns is missing"),
    ],
)
def test_a_bad_row_is_refused_with_file_row_and_field(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = written(tmp_path / "a.parquet", ROW, {**ROW, **changes})
    assert refusal(path).startswith(f"{path}: {reason}")


@pytest.mark.parametrize(
    ("name", "value", "kind", "reason"),
    [
        ("rank", 0.5, pa.float64(), "Float value 0.500000 was truncated converting to int32"),
        ("rank", float("inf"), pa.float64(), "Float value inf was truncated converting to int32"),
        ("rank", 1 << 33, pa.int64(), "Integer value 8589934592 not in range: -2147483648 to 2147483647"),
        ("call_ns", 1 << 63, pa.uint64(), "Integer value 9223372036854775808 not in range: 0 to 9223372036854775807"),
        ("call_ns", 1 << 62, pa.timestamp("us"), "Casting from timestamp[us] to timestamp[ns] would result in "),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_row(
    tmp_path: Path, name: str, value: Any, kind: pa.DataType, reason: str
) -> None:
    good = pa.array([ROW[name]] * 50, kind)
    values = pa.concat_arrays([good, pa.array([value], kind), good, pa.array([value], kind)])
    columns = {other: pa.array([told] * len(values)) for other, told in ROW.items()}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**columns, name: values}), path, row_group_size=40)
    assert refusal(path).startswith(f"{path}: row 50: field {name}: {reason}")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {**ROW, "op": b"send"}, {**ROW, "op": b"\xff"})
    assert refusal(path) == f"{path}: row 1: field op: Invalid UTF8 payload"
    numbers = written(tmp_path / "b.parquet", {**ROW, "rank": b"3"})
    assert refusal(numbers) == f"{numbers}: field rank: its type is binary, not int32"


def test_a_column_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {**ROW, "rank": "three"})
    assert refusal(path) == f"{path}: field rank: its type is string, not int32"


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {**{name: pa.array([value]) for name, value in ROW.items()}, "again": pa.array([4])}
    pq.write_table(pa.table(columns).rename_columns([*ROW, "rank"]), path)
    assert refusal(path) == f"{path}: field rank: 2 columns bear this name, expected one"


def test_what_is_no_log_of_operators_is_not_recognised(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"price": 3})
    with pytest.raises(InputError, match=r"a\.parquet: no telemetry in a known format"):
        recognise([path])


def test_reading_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.parquet", *[{**ROW, "seq": i} for i in range(100)])
    assert "at most 10 are read" in refusal(path, file_bytes=10)
    assert "larger than the limit once decompressed" in refusal(path, decoded_bytes=500)
    monkeypatch.setattr(parquet, "MOST_ROWS", 50)
    assert "row group 0 has 100 rows" in refusal(path)


def test_what_cannot_be_read_is_told_in_our_words(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", *[{**ROW, "seq": i} for i in range(5000)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert refusal(path) == f"{path}: damaged, or not written to its end; copy or write it anew"
    path.write_bytes(whole[:4] + bytes(byte ^ 0x55 for byte in whole[4:600]) + whole[600:])
    assert refusal(path) == f"{path}: row group 0: it is damaged; copy or write the file anew"
    for other in (b"", b'{"rank": 0}\n'):
        path.write_bytes(other)
        assert refusal(path) == f"{path}: no Parquet, whatever its name says; name it by what it is, or leave it out"
    path.unlink()
    assert refusal(path) == f"{path}: No such file or directory"


@given(st.data())
def test_damage_is_refused_or_does_no_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.parquet"
    whole = written(path, *[{**ROW, "seq": i} for i in range(20)]).read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255))
    cut = data.draw(st.booleans())
    path.write_bytes(whole[:at] if cut else whole[:at] + bytes([byte]) + whole[at + 1 :])
    try:
        read(path)
    except InputError as error:
        assert str(error).startswith(str(path))  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"[]",
        b'{"lost_lines": -1}',
        b'{"unknown": 1}',
        b'{"iterations_source": "guessed"}',
        b'{"lost_lines": "x"}',
        b'{"lost_lines": null}',
        b'{"gone": 3}',
        b'{"job": "x"}',
        b"\xff",
    ],
)
def test_metadata_that_offbeat_does_not_write_is_refused(tmp_path: Path, said: bytes) -> None:
    path = tmp_path / "a.parquet"
    table = pa.Table.from_pylist([ROW]).replace_schema_metadata({b"offbeat": said})
    pq.write_table(table, path)
    told = "its metadata 'offbeat' is not what offbeat convert writes; convert the run anew, or leave it out"
    assert refusal(path) == f"{path}: {told}"


def test_a_job_that_cannot_be_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(described(pa.Table.from_pylist([ROW]), About(job={"job": "j"})), path)
    with pytest.raises(InputError, match=r"a\.parquet"):
        load([path])


def test_a_converted_recording_is_the_same(tmp_path: Path, example: Recording) -> None:
    path = tmp_path / "example.parquet"
    write(example, path)
    again = load([path])
    assert again.table.equals(example.table)
    assert (again.job, again.layout) == (example.job, example.layout)
    assert (again.lost_lines, again.duplicates) == (example.lost_lines, example.duplicates)
    assert again.iterations_source == example.iterations_source
    assert pq.ParquetFile(path).metadata.row_group(0).num_rows <= parquet.ROWS_A_GROUP
    assert not list(tmp_path.glob(".*")), "the part that was being written is left"


def test_what_several_files_say_is_joined(tmp_path: Path, example: Recording) -> None:
    half = example.table.num_rows // 2
    job = example.job.to_row()
    parts = {
        "a": (example.table.slice(0, half), About(5, 1, job, "given", ["one file is damaged"])),
        "b": (example.table.slice(half), About(700, 2, job, "given", ["so is another"])),
    }
    for name, (table, about) in parts.items():
        parquet.write(table, tmp_path / f"{name}.parquet", about)
    found = load([tmp_path])
    assert (found.lost_lines, found.duplicates) == (705, 3)
    assert joined([parts["a"][1]] * 3) == parts["a"][1], "said of the whole, which was parted since"
    assert list(found.gone) == ["one file is damaged", "so is another"]
    parquet.write(parts["b"][0], tmp_path / "b.parquet", About(job={**job, "job": "other"}, iterations_source="given"))
    with pytest.raises(InputError, match=r"b\.parquet: not converted together with .*a\.parquet: convert a run whole"):
        load([tmp_path])


def test_lost_lines_are_counted_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    text = [json.loads(line) for line in _example_lines(0)]
    kept = [row for number, row in enumerate(text) if number % 50 != 7]
    (folder / "rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    first = load([folder])
    assert first.lost_lines > 10
    write(first, tmp_path / "again.parquet")
    assert load([tmp_path / "again.parquet"]).lost_lines == first.lost_lines


def _example_lines(rank: int) -> list[str]:
    import gzip

    with gzip.open(EXAMPLE / f"rank{rank}.jsonl.gz", "rt") as file:
        return file.readlines()
