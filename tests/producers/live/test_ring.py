"""The ring in shared memory: what is read is what was appended, in order and whole; what had no room is counted."""

import os
import platform
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.live import fence
from producers.live.ring import CALLED, HEADER, HEADER_BYTES, RECORD_BYTES, TAIL_AT, RingWriter
from producers.live.ring_reader import RECORD, RingReader
from schemas.errors import InputError

WRITER = """
import sys
from pathlib import Path
from producers.live.ring import RingWriter

ring = RingWriter(Path(sys.argv[1]), int(sys.argv[2]))
print("open", flush=True)
for value in range(int(sys.argv[3])):
    number = ring.append(value, *[value % 200] * 9)
    if number >= 0:
        ring.done(number, value, value)
print(ring.appended, ring.dropped, flush=True)
"""


def appended(ring: RingWriter, value: int) -> int:
    """Append a record all of whose fields tell of one value."""
    return ring.append(value, *[value % 200] * 9)


def is_whole(records: np.ndarray[Any, Any]) -> bool:
    fields = [name for name in RECORD.names or () if name not in {"call_ns", "number", "start_ns", "end_ns", "done"}]
    return all((records[name] == records["call_ns"] % 200).all() for name in fields)


Actions = st.lists(st.one_of(st.just("append"), st.just("look"), st.integers(0, 12)), max_size=80)


@given(st.integers(1, 7), Actions, st.randoms())
def test_everything_is_read_once_or_counted_as_dropped(
    tmp_path_factory: pytest.TempPathFactory, capacity: int, actions: list[str | int], random: Any
) -> None:
    path = tmp_path_factory.mktemp("ring") / "ring"
    writer, reader = RingWriter(path, capacity), RingReader(path)
    tries, taken, sent, ended = 0, [], [], set()
    for action in [*actions, "look", capacity, "look", capacity]:
        if action == "append":
            number = appended(writer, tries)
            tries += 1
            if number >= 0:
                sent.append(tries - 1)
                if random.random() < 0.7:
                    done = random.choice(range(max(0, number - capacity - 1), number + 1))
                    writer.done(done, sent[done] + 1, sent[done] + 2)
                    ended.add(done)
        elif action == "look":
            reader.look()
        else:
            records = reader.records()[: int(action)]
            first = reader.tail
            for number, record in enumerate(records.tolist(), first):
                named = dict(zip(RECORD.names or (), record, strict=True))
                expected = (sent[number] + 1, sent[number] + 2) if number in ended else (0, 0)
                assert (named["start_ns"], named["end_ns"]) == expected
            assert is_whole(records)
            taken += records["call_ns"].tolist()
            reader.release(first + len(records))
    assert taken == sent
    assert (writer.appended, writer.dropped) == (len(sent), tries - len(sent))
    assert reader.dropped == writer.dropped


def test_it_holds_as_many_records_as_it_was_made_for(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "ring", 3)
    assert [appended(writer, value) for value in range(5)] == [0, 1, 2, -1, -1]
    reader = RingReader(tmp_path / "ring")
    reader.look()
    reader.release(2)
    assert [appended(writer, value) for value in range(5, 8)] == [3, 4, -1]
    reader.look()
    assert reader.column("call_ns").tolist() == [2, 5, 6]


def test_a_record_without_its_number_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    writer, reader = RingWriter(path, 4), RingReader(path)
    appended(writer, 1)
    with path.open("r+b") as file:  # all of the second record but its last word
        file.seek(HEADER_BYTES + RECORD_BYTES)
        file.write(CALLED.pack(5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 2)[:-8])
    reader.look()
    assert reader.column("call_ns").tolist() == [1]


def test_an_end_without_its_number_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    writer, reader = RingWriter(path, 4), RingReader(path)
    appended(writer, 1)
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + CALLED.size)
        file.write(struct.pack("@qq", 77, 78))
    reader.look()
    assert reader.unfinished().tolist() == [True]
    assert reader.records()["end_ns"].tolist() == [0]


def test_an_end_does_not_touch_the_slot_s_next_record(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "ring", 1)
    first = appended(writer, 1)
    reader = RingReader(tmp_path / "ring")
    reader.look()
    reader.release(1)
    appended(writer, 2)
    writer.done(first, 3, 4)
    reader.look()
    assert reader.unfinished().tolist() == [True]


def test_another_reader_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    writer = RingWriter(tmp_path / "ring", 8)
    for value in range(5):
        appended(writer, value)
    first = RingReader(tmp_path / "ring")
    first.look()
    first.release(3)
    second = RingReader(tmp_path / "ring")
    second.look()
    assert second.column("call_ns").tolist() == [3, 4]


def test_a_snapshot_is_what_is_not_released_by_now_and_changes_nothing(tmp_path: Path) -> None:
    ring = RingWriter(tmp_path / "ring", 4)
    for value in range(4):
        appended(ring, value)
    beside, agent = RingReader(tmp_path / "ring", for_reading=True), RingReader(tmp_path / "ring")
    assert beside.snapshot()["call_ns"].tolist() == [0, 1, 2, 3]
    agent.look()
    agent.release(3)
    appended(ring, 4)  # where a record was that is released
    ring.done(4, 5, 6)
    before = (tmp_path / "ring").read_bytes()
    found = beside.snapshot()
    assert sorted(zip(found["call_ns"].tolist(), found["end_ns"].tolist(), strict=True)) == [(3, 0), (4, 6)]
    assert (tmp_path / "ring").read_bytes() == before
    with pytest.raises(ValueError, match="read-only"):
        beside.release(4)


def test_a_writer_in_another_process_is_read_while_it_writes(tmp_path: Path) -> None:
    path, tries = tmp_path / "ring", 200_000
    with _writing(path, 500, tries) as writer:
        reader, taken = RingReader(path), 0
        while True:
            over = writer.poll() is not None
            reader.look()
            records = reader.records()
            assert is_whole(records)
            assert set(np.diff(records["number"]).tolist()) <= {1}
            ended = records["end_ns"] != 0
            assert (records["end_ns"][ended] == records["call_ns"][ended]).all()
            taken += len(records)
            reader.release(reader.head)
            if over:
                break
        assert writer.stdout is not None
        wrote, dropped = map(int, writer.stdout.read().split())
    assert (taken, reader.dropped) == (wrote, dropped)
    assert wrote + dropped == tries


def test_what_a_killed_writer_left_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with _writing(path, 1 << 16, 10**9) as writer:
        reader = RingReader(path)
        while reader.head < 1000:
            reader.look()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    reader.look()
    records = reader.records()
    assert records["call_ns"].tolist() == list(range(len(records)))
    assert is_whole(records)
    assert reader.unfinished()[:-1].sum() == 0


@pytest.mark.parametrize(
    "content", [b"", b"short", bytes(HEADER_BYTES + RECORD_BYTES), HEADER.pack(b"OFFBEAT1", 80, 9).ljust(HEADER_BYTES)]
)
def test_what_is_no_ring_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ring").write_bytes(content)
    with pytest.raises(InputError, match="is no ring"):
        RingReader(tmp_path / "ring")


def test_a_ring_that_finds_no_memory_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    with pytest.raises(OSError, match="No space left"):
        RingWriter(tmp_path / "ring", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_kernel_s_fence_can_be_had_where_it_is_needed() -> None:
    fence.through_the_kernel(platform.machine())()
    with pytest.raises(ValueError, match="cannot be read on vax"):
        fence.fence_for("vax")


def _writing(path: Path, capacity: int, tries: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), str(capacity), str(tries)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "open\n"
    return writer


@pytest.mark.parametrize("tail", [-1, -(2**63), 2**63 - 1])
def test_a_ring_whose_tail_is_no_number_is_refused(tmp_path: Path, tail: int) -> None:
    RingWriter(tmp_path / "ring", 4)
    content = bytearray((tmp_path / "ring").read_bytes())
    struct.pack_into("<q", content, TAIL_AT, tail)
    (tmp_path / "ring").write_bytes(content)
    with pytest.raises(InputError, match=f"damaged: {tail} is no record's number"):
        RingReader(tmp_path / "ring")
