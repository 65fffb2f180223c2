"""`offbeat convert`: a recording of any format in, Parquet out that is diagnosed alike."""

import json
from pathlib import Path
from typing import Any

import pytest

from producers.importers.recording import load
from tests.offbeat.command_line import EXAMPLE, offbeat, refusal
from tests.producers.importers import megatrace_log
from tests.recordings import sample

RECORDINGS = [EXAMPLE.name, "megatrace", "megatrace-8ranks-rank2-slow"]


def answer(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(offbeat("diagnose", path, "--json").stdout)
    return told


@pytest.fixture
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name: str = request.param
    if name == EXAMPLE.name:
        return EXAMPLE
    if name == "megatrace":
        return megatrace_log.write(tmp_path / "run", load([EXAMPLE]).table, megatrace_log.HASHED)
    return sample(name)


@pytest.mark.parametrize("recording", RECORDINGS, indirect=True)
def test_a_converted_recording_is_diagnosed_alike(tmp_path: Path, recording: Path) -> None:
    out = tmp_path / "again.parquet"
    written = json.loads(offbeat("convert", recording, "--out", out, "--json").stdout)
    assert written["job"] == recording.name
    assert written["file"] == str(out)
    assert written["ranks"] == 8
    assert answer(out) == answer(recording)


def test_people_read_what_was_written(tmp_path: Path) -> None:
    out = tmp_path / "again.parquet"
    shown = offbeat("convert", EXAMPLE, "--out", out).stdout
    assert " ".join(shown.split()) == f"{EXAMPLE.name}: 20880 operators of 8 ranks in {out}"


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    assert "ends in .parquet" in refusal(offbeat("convert", EXAMPLE, "--out", tmp_path / "out.csv"))
    gone = tmp_path / "gone" / "out.parquet"
    said = f"{gone}: No such file or directory; give a file to write"
    assert refusal(offbeat("convert", EXAMPLE, "--out", gone)) == said
    taken = tmp_path / "folder.parquet"
    taken.mkdir()
    said = f"{taken}: Is a directory; give a file to write"
    assert refusal(offbeat("convert", EXAMPLE, "--out", taken)) == said
    assert list(tmp_path.iterdir()) == [taken]


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    own = tmp_path / "run" / "a.parquet"
    own.parent.mkdir()
    offbeat("convert", EXAMPLE, "--out", own)
    before = own.read_bytes()
    for path in (own, own.parent):
        said = f"{own} is a part of what shall be converted; give another file"
        assert refusal(offbeat("convert", path, "--out", own, "--force")) == said
    assert own.read_bytes() == before


def test_a_file_that_is_there_is_replaced_by_force_alone(tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    out.write_text("precious")
    said = f"{out} is there already; give another file, or replace it with --force"
    assert refusal(offbeat("convert", EXAMPLE, "--out", out)) == said
    assert out.read_text() == "precious"
    assert offbeat("convert", EXAMPLE, "--out", out, "--force").exit_code == 0
    assert answer(out) == answer(EXAMPLE)
