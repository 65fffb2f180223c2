"""Files of labels: what is no such file is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from offbeat import labels
from schemas.errors import InputError

HEAD = b"rank,communicator,iteration,position\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", b"{", "neither JSON lines nor CSV"),
        ("a.csv", b"", "neither JSON lines nor CSV"),
        ("a.csv", b"r\xffnk,communicator,iteration,position\n0,tp,3,1\n", "neither JSON lines nor CSV"),
        ("a.csv", b"rank,communicator,position\n0,tp,3\n", "the column iteration is missing"),
        ("a.csv", HEAD + b"0,tp,,1\n", "iteration is missing in a row"),
        ("a.csv", HEAD + b"zero,tp,3,1\n", "rank: "),
    ],
)
def test_what_are_no_labels_is_refused(tmp_path: Path, name: str, content: bytes, why: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        labels.read(path)
    assert str(caught.value).startswith(f"{path}: {why}")


def test_labels_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(HEAD + b"0,tp,3,1\n")
    assert labels.read(path).to_pylist() == [{"rank": 0, "communicator": "tp", "iteration": 3, "position": 1}]
