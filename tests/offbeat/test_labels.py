"""Files of labels: what is no such file is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offbeat import labels
from schemas.errors import InputError

HEAD = b"rank,communicator,iteration,position\n"
JUDGED = HEAD.replace(b"\n", b",abnormal\n")
ROW: dict[str, Any] = {"rank": 0, "communicator": "tp", "iteration": 3, "position": 1}


def line(**changes: Any) -> bytes:
    return json.dumps({**ROW, **changes}).encode() + b"\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", b"{", ": neither JSON lines nor CSV: line 1: "),
        ("a.jsonl", line() + b"\n[]\n", ": neither JSON lines nor CSV: line 3: not a JSON object but []"),
        ("a.jsonl", b'{"rank": 0, "rank": 1}', ": neither JSON lines nor CSV: line 1: field rank stands twice"),
        ("a.csv", b"", ": neither JSON lines nor CSV: line 1: it names no columns"),
        ("a.csv", b"r\xffnk,communicator,iteration,position\n0,tp,3,1\n", ": neither JSON lines nor CSV: line 1: "),
        ("a.csv", HEAD + b'0,"tp"s,3,1\n', ": neither JSON lines nor CSV: line 2: "),
        ("a.csv", HEAD + b"0,tp,3\n", ":2: 3 fields; the first line names 4"),
        ("a.csv", b"rank,communicator,position\n0,tp,3\n", ": the column iteration is missing"),
        ("a.csv", b"rank," + HEAD + b"0,0,tp,3,1\n", ": the column rank stands twice"),
        ("a.csv", HEAD + b"0,tp,3,1\n\n0,tp,,1\n", ":4: field iteration is missing; labels have rank, "),
        ("a.csv", HEAD + b"zero,tp,3,1\n", ':2: field rank is "zero"; give a whole number'),
        ("a.csv", JUDGED + b"0,tp,3,1,maybe\n", ':2: field abnormal is "maybe"; give true or false, 1 or 0, yes or no'),
        ("a.csv", JUDGED + b"0,tp,3,1,\n", ':2: field abnormal is ""; give true or false'),
        ("a.jsonl", line() + line(rank={"a": 1}), ':2: field rank is {"a": 1}; give a whole number'),
        ("a.jsonl", line(rank=True), ":1: field rank is true; give a whole number"),
        ("a.jsonl", line(iteration=10**15), ":1: field iteration is 1000000000000000; give a whole number"),
        ("a.jsonl", line(position=-1), ":1: field position is -1; give a whole number from 0 on"),
        ("a.jsonl", line(position=0.5), ":1: field position is 0.5; give a whole number"),
        ("a.jsonl", line(communicator=["tp"]), ':1: field communicator is ["tp"]; give its name'),
        ("a.jsonl", line(abnormal=None), ":1: field abnormal is null; give true or false"),
        ("a.jsonl", line(abnormal=2), ":1: field abnormal is 2; give true or false"),
    ],
)
def test_what_are_no_labels_is_refused(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        labels.read(path)
    assert str(caught.value).startswith(f"{path}{why}")


def test_labels_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD + b"0,tp,3,1\n\n2.0,-77, 4,0\n")
    assert labels.read(path).to_pylist() == [
        {**ROW, "line": 2},
        {"rank": 2, "communicator": "-77", "iteration": 4, "position": 0, "line": 4},
    ]
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(b"\xef\xbb\xbf" + line() + line(communicator=-77, rank="2", note=[1]))
    assert labels.read(lines).to_pylist() == [
        {**ROW, "line": 1},
        {**ROW, "rank": 2, "communicator": "-77", "line": 2},
    ]


@pytest.mark.parametrize(("yes", "no"), [("true", "false"), ("True", "FALSE"), ("1", "0"), ("yes", "No")])
def test_operators_that_are_said_to_be_normal_are_left_out(tmp_path: Path, yes: str, no: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(JUDGED + f"0,tp,3,1,{no}\n0,tp,3,1,{yes}\n".encode())
    assert labels.read(path).to_pylist() == [{**ROW, "line": 3}]


@pytest.mark.parametrize(("yes", "no"), [(True, False), (1, 0), ("yes", "no")])
def test_so_they_are_in_json_lines(tmp_path: Path, yes: bool | int | str, no: bool | int | str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line(abnormal=no) + line(abnormal=yes) + line())
    assert labels.read(path).to_pylist() == [{**ROW, "line": 2}, {**ROW, "line": 3}]
