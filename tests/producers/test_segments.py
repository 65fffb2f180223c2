"""Bounded files of frames: what is read is what was appended, whatever happened to the last file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.segments import Segments

PLENTY = 1 << 20


def content(segments: Segments) -> list[tuple[int, bytes]]:
    return [(frame.number, segments.read(frame)) for frame in segments.frames]


def filled(folder: Path, count: int, size: int = 10, max_bytes: int = PLENTY) -> Segments:
    segments = Segments(folder, max_bytes)
    for number in range(count):
        segments.append(number, bytes([number]) * size)
    return segments


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(100, 2000), st.data())
def test_the_newest_frames_are_kept_within_the_bound(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], max_bytes: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("segments")
    segments, gone = Segments(folder, max_bytes), []
    for number, payload in enumerate(payloads):
        gone += [frame.number for frame in segments.append(number, payload)]
        if data.draw(st.integers(0, 4)) == 0:
            segments = Segments(folder, max_bytes)
        assert segments.total_bytes <= max_bytes
        assert content(segments) == list(enumerate(payloads))[len(gone) : number + 1]
    assert gone == list(range(len(gone)))
    assert segments.total_bytes == sum(path.stat().st_size for path in folder.iterdir())


def test_one_frame_is_kept_whatever_its_size(tmp_path: Path) -> None:
    segments = filled(tmp_path, 3, size=500, max_bytes=100)
    assert [frame.number for frame in segments.frames] == [2]


@pytest.mark.parametrize("cut", range(1, 31))
def test_a_file_that_was_cut_short_loses_its_last_frame(tmp_path: Path, cut: int) -> None:
    before = content(filled(tmp_path, 3))
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    left = path.stat().st_size
    segments = Segments(tmp_path, PLENTY)
    assert content(segments) == before[:2]
    assert segments.cut_bytes == left - segments.total_bytes
    segments.append(5, b"new")
    assert content(Segments(tmp_path, PLENTY)) == [*before[:2], (5, b"new")]


def test_a_folder_that_is_only_read_stays_as_it_is(tmp_path: Path) -> None:
    before = content(filled(tmp_path, 40, size=20, max_bytes=16 * 100))
    newest = max(tmp_path.iterdir())
    newest.write_bytes(newest.read_bytes() + b"OFB1")
    (tmp_path / f"{99:020d}.frames").touch()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert content(Segments(tmp_path, 100, for_reading=True)) == before
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert content(Segments(tmp_path / "none", 100, for_reading=True)) == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("at", [0, 5, 9, 13, 21])
def test_a_damaged_frame_ends_its_file(tmp_path: Path, at: int) -> None:
    before = content(filled(tmp_path, 2))
    [path] = tmp_path.iterdir()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2 + at] ^= 255
    path.write_bytes(damaged)
    segments = Segments(tmp_path, PLENTY)
    assert content(segments) == before[:1]
    assert segments.cut_bytes == len(damaged) // 2


def test_what_is_damaged_meanwhile_is_told(tmp_path: Path) -> None:
    segments = filled(tmp_path, 1)
    segments.frames[0].path.write_bytes(b"")
    with pytest.raises(OSError, match="is damaged"):
        segments.read(segments.frames[0])


def test_a_frame_that_the_disk_does_not_take_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = filled(tmp_path, 2)
    before = content(segments)
    with pytest.raises(TypeError):
        segments.append(2, "text")  # type: ignore[arg-type]
    (tmp_path / f"{2:020d}.frames").mkdir()
    monkeypatch.setattr(segments, "_file", None)
    with pytest.raises(IsADirectoryError):
        segments.append(2, b"payload")
    assert content(segments) == before
    (tmp_path / f"{2:020d}.frames").rmdir()
    segments.append(2, b"payload")
    assert content(segments) == [*before, (2, b"payload")]


def test_files_whose_frames_are_discarded_go(tmp_path: Path) -> None:
    segments = filled(tmp_path, 8, size=20, max_bytes=16 * 100)
    assert len(list(tmp_path.iterdir())) == 3
    segments.discard(3)
    assert [frame.number for frame in segments.frames] == [3, 4, 5, 6, 7]
    assert len(list(tmp_path.iterdir())) == 2
    segments.discard(8)
    assert list(tmp_path.iterdir()) == []
    segments.append(8, b"next")
    assert content(segments) == [(8, b"next")]
