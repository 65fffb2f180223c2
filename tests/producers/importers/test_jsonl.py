"""JSON lines: what is read, in which spelling, and what is refused, with file, line and field."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.importers.about import about
from producers.importers.files import Limits
from producers.importers.jsonl import JsonLines
from schemas import comm_ops
from schemas.errors import InputError
from schemas.topic import MOST, MOST_RANKS

ROW: dict[str, Any] = {"rank": 3, "communicator": "c", "op": "all_reduce", "call_ns": 10}


def written(folder: Path, *lines: Any, name: str = "rank3.jsonl") -> Path:
    path = folder / name
    text = b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines)
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def read(*paths: Path, **limits: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = JsonLines().read(paths, Limits(**limits)).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def refusal(path: Path, **limits: int) -> str:
    with pytest.raises(InputError) as caught:
        read(path, **limits)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_rows_come_in_their_order(tmp_path: Path, name: str) -> None:
    rows = [{**ROW, "seq": seq, "host": "h0"} for seq in range(5)]
    assert read(written(tmp_path, *rows, name=name)) == rows


def test_both_spellings_are_read(tmp_path: Path) -> None:
    short = {"rank": 0, "comm": "c", "op": "send", "call_ns": 1}
    phases = [{**short, "phase": phase} for phase in ("F", "B", "DP", "OTHER", "forward", "gradient")]
    rows = read(written(tmp_path, *phases))
    assert [row["phase"] for row in rows] == ["forward", "backward", "gradient", "other", "forward", "gradient"]
    assert {row["communicator"] for row in rows} == {"c"}


def test_a_stream_may_stand_for_a_communicator(tmp_path: Path) -> None:
    rows = [{"rank": 3, "stream": "7", "op": "all_reduce", "call_ns": call_ns} for call_ns in (10, 11)]
    assert read(written(tmp_path, *rows)) == rows
    assert "rank3.jsonl: operators of rank 3 name a stream in place" in refusal(written(tmp_path, ROW, *rows))
    others = [written(tmp_path, ROW, name="rank2.jsonl"), written(tmp_path, *rows)]
    with pytest.raises(InputError, match=rf"^{re.escape(str(tmp_path))}: operators of rank 3 name a stream"):
        read(*others)
    send = {**rows[0], "op": "send", "peer": 1}
    assert "stream 7 of rank 3 has sends or receives as well" in refusal(written(tmp_path, *rows, send))
    refused = refusal(written(tmp_path, *rows, {"rank": 3, "op": "all_reduce", "call_ns": 12}))
    assert "rank3.jsonl:3: field communicator is missing" in refused


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    paths = [written(tmp_path, {**ROW, "rank": r}, name=f"{r}.jsonl") for r in (2, 0, 1)]
    assert [row["rank"] for row in read(*paths)] == [2, 0, 1]


def test_blank_lines_unknown_fields_and_a_missing_last_newline_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\n" + json.dumps({**ROW, "shape": [1, {"x": None}]}).encode() + b"\r\n\n" + json.dumps(ROW).encode()
    )
    assert read(path) == [ROW, ROW]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_last_line_that_was_not_written_to_its_end_is_lost(tmp_path: Path, name: str) -> None:
    whole = json.dumps(ROW).encode() + b"\n"
    for cut in (b"{", whole[:20], whole[:-2]):
        path = tmp_path / name
        path.write_bytes(gzip.compress(whole + cut) if name.endswith(".gz") else whole + cut)
        table = JsonLines().read([path], Limits())
        assert (table.num_rows, about(table.schema).lost_lines) == (1, 1)
    (tmp_path / "b.jsonl").write_bytes(b"{")
    assert "b.jsonl:1: " in refusal(tmp_path / "b.jsonl"), "of a single line nothing tells that it is one of ours"


def test_an_empty_file_holds_no_rows(tmp_path: Path) -> None:
    assert read(written(tmp_path)) == []


def test_blocks_meet_at_lines(tmp_path: Path) -> None:
    rows = [{**ROW, "seq": seq, "dtype": "x" * (seq % 40)} for seq in range(400)]
    assert read(written(tmp_path, *rows), line_bytes=150) == rows


NEGATIVE = "field bytes is -1; the least possible value is 0"
BAD = {
    "not JSON": (b"{rank: 1}", "not a JSON object"),
    "cut short": (b'{"rank": 1', "not a JSON object"),
    "a list": ([1], "not a JSON object but [1]"),
    "null": (None, "not a JSON object but null"),
    "not UTF-8": (b'{"rank": 1, "op": "\xff"}', "not UTF-8: byte 20 of the line is 0xff"),
    "a field twice": (b'{"rank": 1, "rank": 2}', "field rank stands twice"),
    "half a character": ({**ROW, "communicator": "\ud800"}, 'field communicator is "\\ud800", not text: it holds half'),
    "half a character in an unknown field": (
        {**ROW, "x": [{"y": "a\udc00"}]},
        'field x is [{"y": "a\\udc00"}], not text',
    ),
    "half a character in a name": ({**ROW, "\ud800": 1}, r"field \ud800 is 1, not text"),
    "no number in an unknown field": (b'{"x": NaN}', "not a JSON object: NaN is no number of JSON"),
    "no rank": ({**ROW, "rank": None}, "field rank is missing"),
    "no communicator": ({"rank": 1, "op": "send", "call_ns": 1}, "field communicator is missing, and so is stream"),
    "an empty communicator": ({**ROW, "communicator": ""}, "field communicator is empty"),
    "an empty stream": ({**ROW, "communicator": None, "stream": ""}, "field stream is empty"),
    "a word for a rank": ({**ROW, "rank": "3"}, 'field rank is "3", not a whole number'),
    "a truth for a number": ({**ROW, "seq": True}, "field seq is true, not a whole number"),
    "a fraction": ({**ROW, "call_ns": 1.5}, "field call_ns is 1.5, not a whole number"),
    "a number for a word": ({**ROW, "op": 7}, "field op is 7, not a string"),
    "an unknown op": ({**ROW, "op": "gossip"}, 'field op is "gossip"; known are all_reduce'),
    "an unknown phase": ({**ROW, "phase": "X"}, 'field phase is "X"; known are forward'),
    "a negative number": ({**ROW, "seq": -1}, "field seq is -1; the least possible value is 0"),
    "an unknown number": ({**ROW, "bytes": -1}, f"{NEGATIVE}, or leave the field out where it is not known;"),
    "another negative number": ({**ROW, "bytes": -2}, f"{NEGATIVE.replace('-1', '-2')};"),
    "too large a number": ({**ROW, "rank": 1 << 31}, "field rank is 2147483648, more than int32 holds"),
    "an end before its start": ({**ROW, "start_ns": 20, "end_ns": 15}, "field end_ns lies before start_ns"),
    "an end before its call": ({**ROW, "end_ns": 5}, "field end_ns lies before call_ns"),
    "a call in microseconds": (
        {**ROW, "call_ns": 1_795_223_388_871_302, "end_ns": 1_795_223_388_873_608_465},
        "field end_ns lies 20757 days after call_ns: give both in nanoseconds since the epoch",
    ),
    "a start in microseconds": (
        {**ROW, "start_ns": 1_795_223_388_871_302, "end_ns": 1_795_223_388_873_608_465},
        "field end_ns lies 20778 days after call_ns: give both",
    ),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("line", [1, 90])
def test_a_bad_line_is_named(tmp_path: Path, what: str, line: int) -> None:
    bad, why = BAD[what]
    path = written(tmp_path, *[ROW] * (line - 1), bad, ROW, [])
    told = refusal(path, line_bytes=1000)
    assert told.startswith(f"{path}:{line}: {why}")
    assert told.endswith("; correct the line, or leave it out")


def test_a_null_at_the_head_of_a_block_is_refused(tmp_path: Path) -> None:
    assert ":1: not a JSON object but null" in refusal(written(tmp_path, None))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"rank": 0, "communicator": "c", "op": "send", "call_ns": 1, "phase": "\xff"}', "not UTF-8"),
        (b'{"rank": 0, "communicator": "c", "op": "send", "call_ns": ' + b"9" * 5000 + b"}", "not a JSON object"),
    ],
)
def test_what_python_itself_does_not_read_is_refused(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(ROW).encode() + b"\n" + line + b"\n")
    assert refusal(path).startswith(f"{path}:2: {why}")


def test_a_long_value_is_not_shown_whole(tmp_path: Path) -> None:
    assert len(refusal(written(tmp_path, {**ROW, "op": "x" * 1000}))) < 400


def test_a_line_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ROW, {**ROW, "dtype": "x" * 500})
    assert refusal(path, line_bytes=300) == f"{path}:2: a line of more than 300 bytes"


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, *[ROW] * 100)
    assert f"{path.stat().st_size} bytes, at most 100 are read" in refusal(path, file_bytes=100)


def test_what_is_decompressed_is_bounded_over_all_files(tmp_path: Path) -> None:
    paths = [written(tmp_path, *[ROW] * 1000, name=f"{i}.jsonl.gz") for i in range(3)]
    size = len(gzip.decompress(paths[0].read_bytes()))
    assert len(read(*paths, decoded_bytes=3 * size)) == 3000
    with pytest.raises(InputError, match=f"more than {3 * size - 1} bytes once decompressed"):
        read(*paths, decoded_bytes=3 * size - 1)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda b: b[:-8] + b"\0\0\0\0" + b[-4:], id="another checksum"),
        pytest.param(lambda b: b[:30] + b"\0" * 40 + b[70:], id="overwritten"),
    ],
)
def test_damaged_compression_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = written(tmp_path, *[{**ROW, "seq": i} for i in range(500)], name="a.jsonl.gz")
    path.write_bytes(damage(path.read_bytes()))
    assert re.match(rf"{re.escape(str(path))}: the compressed data is damaged at or after byte [0-9]+ ", refusal(path))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.gz.1"])
def test_what_is_not_compressed_but_named_so_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, ROW, name="a.jsonl").rename(tmp_path / name)
    assert refusal(path) == f"{path}: no gzip, whatever its name says; name it without .gz, or leave it out"


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_compressed_data_that_ends_early_is_read_as_far_as_it_goes(tmp_path: Path, share: float) -> None:
    rows = [{**ROW, "seq": seq, "call_ns": seq * 7919 % 100_003} for seq in range(5000)]
    path = written(tmp_path, *rows, name="a.jsonl.gz")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    table = JsonLines().read([path], Limits(line_bytes=1000))
    held = [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]
    assert held == rows[: len(held)]
    assert len(held) > (share - 0.1) * len(rows)
    said = about(table.schema)
    assert said.lost_lines == 1
    assert said.gone == [f"{path}: the compressed data ends early, in line {len(held) + 1}; what follows is lost"]


def test_of_compressed_data_without_a_whole_line_nothing_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, *[ROW] * 9, name="a.jsonl.gz")
    for kept in (5, 15, 30):
        (tmp_path / "cut.jsonl.gz").write_bytes(path.read_bytes()[:kept])
        table = JsonLines().read([tmp_path / "cut.jsonl.gz"], Limits())
        assert table.num_rows == 0
        assert about(table.schema).gone


values = {
    "rank": st.integers(0, MOST_RANKS - 1),
    "communicator": st.text(min_size=1, max_size=5),
    "op": st.sampled_from(comm_ops.OPS),
    "call_ns": st.integers(0, 1 << 60),
}
optional = {
    "seq": st.integers(0, MOST),
    "bytes": st.integers(0, MOST),
    "iteration": st.integers(0, 1000),
    "phase": st.sampled_from(comm_ops.PHASES),
    "dtype": st.text(max_size=5),
    "host": st.text(max_size=3),
    "error": st.text(max_size=20),
    "p2p_seq": st.none() | st.integers(0, 9),
}


@given(rows=st.lists(st.fixed_dictionaries(values, optional=optional), max_size=20))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> None:
    path = written(tmp_path_factory.mktemp("read"), *rows)
    assert read(path, line_bytes=700) == [{n: v for n, v in row.items() if v is not None} for row in rows]


@given(text=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "a.jsonl"
    path.write_bytes(text)
    try:
        read(path)
    except InputError as error:
        assert str(path) in str(error)  # noqa: PT017 (either outcome is right)
