"""Which files of which format make up a recording."""

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from producers.importers.formats import recognise
from schemas.errors import InputError

TESTDATA = Path(__file__).parent / "testdata"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("rank0.jsonl", "rank1.jsonl.gz", "job.json", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "rank2.jsonl").touch()
    return tmp_path


def test_a_folder_gives_its_files_of_the_format(folder: Path) -> None:
    found = recognise([folder])
    assert found.format.name == "jsonl"
    assert [file.name for file in found.files] == ["rank0.jsonl", "rank1.jsonl.gz"]


def test_rotated_logs_are_read_and_what_else_begins_like_them_is_told(folder: Path) -> None:
    for name in ("rank1.jsonl.2.gz", "rank2.jsonl-20261127", "rank2.jsonl.gz.1", "h0.op_calls.jsonl.1", "notes.txt.1"):
        (folder / name).touch()
    for name in ("rank3.jsonl.old", "rank4.json"):
        shutil.copy(TESTDATA / "jsonl.good.jsonl", folder / name)
    shutil.copy(TESTDATA / "megatrace.good.log", folder / "rank_0.txt")
    found = recognise([folder])
    rotated = {"rank1.jsonl.2.gz", "rank2.jsonl-20261127", "rank2.jsonl.gz.1"}
    assert {file.name for file in found.files} == {"rank0.jsonl", "rank1.jsonl.gz", *rotated}
    assert [file.name for file in found.left] == ["rank3.jsonl.old", "rank4.json"]


def test_folders_and_files_go_together_and_count_once(folder: Path) -> None:
    found = recognise([folder, folder / "rank0.jsonl", folder / "deeper"])
    assert [file.name for file in found.files] == ["rank0.jsonl", "rank1.jsonl.gz", "rank2.jsonl"]


def test_a_named_format_takes_the_named_files(folder: Path) -> None:
    assert [file.name for file in recognise([folder / "notes.txt"], "jsonl").files] == ["notes.txt"]


@pytest.mark.parametrize("name", ["notes.txt", "empty"])
def test_what_no_format_takes_is_refused_with_what_is_known(folder: Path, name: str) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match=rf"{name}: no telemetry in a known format; known are jsonl \(\*\.jsonl"):
        recognise([folder / name])
    with pytest.raises(InputError, match=r"of NIC traffic, by their names: \*\.op_calls\.jsonl"):
        recognise([folder / name])


def test_one_strange_file_among_good_ones_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match=r"notes\.txt: no telemetry"):
        recognise([folder / "rank0.jsonl", folder / "notes.txt"])


def test_recordings_in_different_formats_are_not_one(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "other.parquet"
    pq.write_table(pa.table({"rank": [0], "communicator": ["tp0"], "op": ["all_reduce"], "call_ns": [1]}), other)
    for given in ([other, folder], [folder, other]):
        with pytest.raises(
            InputError, match=r"holds no parquet, as which .*other\.parquet is read; name the files of one"
        ):
            recognise(given)
    with pytest.raises(InputError, match=r"rank0\.jsonl: of another format than others that are named; name the files"):
        recognise([folder / "rank0.jsonl", other])


def test_an_unknown_format_is_refused_with_what_is_known(folder: Path) -> None:
    with pytest.raises(InputError, match="unknown format 'csv'; known are jsonl"):
        recognise([folder], "csv")


@pytest.mark.parametrize(
    ("name", "asked", "fits"),
    [
        ("jsonl.good.jsonl", "megatrace", "jsonl"),
        ("jsonl.good.jsonl", "parquet", "jsonl"),
        ("megatrace.good.log", "jsonl", "megatrace"),
    ],
)
def test_a_file_of_another_format_than_the_named_is_told_with_the_one_that_fits(
    tmp_path: Path, name: str, asked: str, fits: str
) -> None:
    file = Path(shutil.copy(TESTDATA / name, tmp_path))
    (tmp_path / "job.json").write_text('{"job": "j"}')
    said = re.escape(f"{file}:1: begins like {fits}, not like {asked}: give --format {fits}")
    for path in (file, tmp_path):
        with pytest.raises(InputError, match=f"^{said}$"):
            recognise([path], asked)


def test_a_parquet_file_is_not_read_as_lines(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"op": ["send"]}), file)
    with pytest.raises(InputError, match="begins like parquet, not like jsonl: give --format parquet"):
        recognise([file], "jsonl")


def test_a_file_under_another_name_is_told_with_the_format_that_fits(tmp_path: Path) -> None:
    file = tmp_path / "rank0.log"
    shutil.copy(TESTDATA / "jsonl.good.jsonl", file)
    with pytest.raises(InputError, match=r"rank0\.log:1: begins like jsonl, .*: give --format jsonl"):
        recognise([file])
    assert recognise([file], "jsonl").files == (file,)


def test_a_folder_without_the_named_format_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no telemetry as megatrace, which is \*\.log"):
        recognise([folder], "megatrace")


def test_what_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        recognise([folder / "nowhere"])
    with pytest.raises(InputError, match="no file or folder to read"):
        recognise([])
