"""The store over rings: when iterations close, what survives the end of either side, and what is forgotten and told."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from diagnosis.job import Communicator, Job, Place
from offbeat.operator_log import OperatorLog
from producers.labels import label
from producers.live.live_store import LiveStore
from producers.live.rank_log import RankLog
from producers.live.registration import folders
from producers.live.ring_reader import RingReader
from producers.log_index import LogIndex
from producers.log_store import RecordingStore
from producers.row_query import RowQuery
from producers.segments import Segments
from schemas.catalogue import COMM_OPS
from schemas.errors import StoreError
from tests.producers.live.made import PLENTY, live_store
from tests.training_log import Training

JOB = Job("job", (Place(0), Place(1)), (Communicator("tp", (0, 1)),))


def rank_log(folder: Path, rank: int = 0, **options: Any) -> OperatorLog:
    return OperatorLog(rank=rank, job="job", folder=folder / "rings", **options)


def opened(folder: Path, ranks: Sequence[int] = (0,), max_bytes: int = PLENTY) -> LiveStore:
    """The store of an agent that starts now."""
    store = LiveStore(JOB, ranks, Segments(folder / "kept", max_bytes))
    for process in folders(folder / "rings"):
        store.add(RankLog(process))
    return store


def train(log: OperatorLog, *iterations: int, operators: int = 3) -> None:
    for iteration in iterations:
        log.iteration(iteration)
        for _ in range(operators):
            log.end(log.begin("tp", "all_reduce", 8))


def closing(store: LiveStore) -> list[int]:
    """Close what can be closed; which iterations."""
    closed = []
    while store.advance():
        closed.append(store.closed)
    return closed


def seqs(store: LiveStore, first: int, last: int) -> tuple[list[int], str]:
    rows, outcomes = store.rows([0], RowQuery(first, last))
    return rows.column("seq").to_pylist(), outcomes[0]


def test_an_iteration_closes_when_its_ranks_are_beyond_it(tmp_path: Path) -> None:
    with rank_log(tmp_path, 0) as zero, rank_log(tmp_path, 1) as one:
        store = opened(tmp_path, (0, 1))
        train(zero, 0, 1)
        train(one, 0)
        assert closing(store) == []
        train(one, 1)
        assert closing(store) == [0]
        assert [store.ended] == [False]
    assert closing(store) == [1]
    assert store.ended
    assert [row["call_order"] for row in store.rows([1], RowQuery(0, 1))[0].to_pylist()] == [0, 1, 2, 3, 4, 5]


def test_an_operator_that_has_not_ended_is_awaited_for_one_more_iteration(tmp_path: Path) -> None:
    with rank_log(tmp_path) as log:
        store = opened(tmp_path)
        log.iteration(0)
        ticket = log.begin("tp", "all_reduce")
        train(log, 1)
        assert closing(store) == []
        log.end(ticket)
        assert closing(store) == [0]
        log.begin("tp", "all_reduce")
        train(log, 2)
        assert closing(store) == []
        train(log, 3)
        assert closing(store) == [1, 2]
        assert store.rows([0], RowQuery(1, 1))[0].column("end_ns").null_count == 1


def test_a_rank_that_is_silent_is_not_awaited_for_ever(tmp_path: Path) -> None:
    with rank_log(tmp_path, 0) as zero:
        store = opened(tmp_path, (0, 1))
        train(zero, 0, 1, 2)
        assert closing(store) == []
        train(zero, 3)
        assert closing(store) == [0]
        rows, outcomes = store.rows([0, 1], RowQuery(0, 0))
        assert rows.column("seq").to_pylist() == [0, 1, 2]
        assert outcomes == {0: "complete", 1: "partial"}


def test_a_rank_that_never_came_is_not_awaited_once_no_other_runs(tmp_path: Path) -> None:
    with rank_log(tmp_path, 0) as zero:
        store = opened(tmp_path, (0, 1))
        train(zero, *range(8))
        assert closing(store) == [0, 1, 2, 3, 4]
        assert not store.ended
    assert closing(store) == [5, 6, 7]
    assert store.ended


def call_elsewhere(log: OperatorLog) -> None:
    """Log an operator from another thread, into a ring of its own."""
    other = threading.Thread(target=lambda: log.end(log.begin("tp", "barrier")))
    other.start()
    other.join()


def test_what_another_thread_logged_before_is_of_its_iteration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings are looked at one after the other: what follows in a second one may be seen before what precedes it."""
    with rank_log(tmp_path, 0) as log:
        store = opened(tmp_path)
        log.iteration(0)
        log.end(log.begin("tp", "all_reduce", 8))
        call_elsewhere(log)
        assert closing(store) == []
        looked = RingReader.look

        def look_and_go_on(ring: RingReader) -> None:
            looked(ring)
            monkeypatch.setattr(RingReader, "look", looked)
            log.end(log.begin("tp", "all_reduce", 8))
            log.iteration(1)
            call_elsewhere(log)

        monkeypatch.setattr(RingReader, "look", look_and_go_on)
        assert closing(store) == [0]
        assert seqs(store, 0, 0) == ([0, 1, 2], "complete")


def test_operators_outside_of_iterations_are_passed_over(tmp_path: Path) -> None:
    with rank_log(tmp_path) as log:
        store = opened(tmp_path)
        log.end(log.begin("tp", "barrier"))
        train(log, 5, 6)
        assert closing(store) == [5]
        assert seqs(store, 0, 9) == ([1, 2, 3], "partial")


def test_of_what_was_before_the_first_iteration_nothing_is_known(tmp_path: Path) -> None:
    with rank_log(tmp_path) as log:
        store = opened(tmp_path)
        train(log, 5, 6, 7)
        assert closing(store) == [5, 6]
        assert seqs(store, 0, 4) == ([], "partial")
        assert seqs(store, 4, 5) == ([0, 1, 2], "partial")
        assert seqs(store, 5, 6) == ([0, 1, 2, 3, 4, 5], "complete")


def test_an_iteration_longer_than_the_ring_is_whole(tmp_path: Path) -> None:
    with rank_log(tmp_path, capacity=16) as log:
        store = opened(tmp_path)
        log.iteration(0)
        for _ in range(20):
            for _ in range(5):
                log.end(log.begin("tp", "all_reduce"))
            assert closing(store) == []
        train(log, 1)
        assert closing(store) == [0]
        assert seqs(store, 0, 0) == (list(range(100)), "complete")
        assert log.dropped == 0


def test_what_a_full_ring_dropped_is_missing_and_told(tmp_path: Path) -> None:
    with rank_log(tmp_path, capacity=16) as log:
        store = opened(tmp_path)
        train(log, 0, operators=20)
        assert closing(store) == []
        train(log, 1)
        assert closing(store) == [0]
        assert seqs(store, 0, 0) == (list(range(16)), "complete")
        train(log, 2)
        assert closing(store) == [1]
        assert seqs(store, 0, 0)[1] == "partial"  # the next row shows the gap
        assert store.logs[0].dropped == log.dropped == 4
        assert store.spans(1).lost.tolist() == [4]


def test_a_killed_process_ends_the_log_with_what_it_did(tmp_path: Path) -> None:
    code = """
from offbeat.operator_log import OperatorLog
log = OperatorLog(rank=0, job="job")
for iteration in range(10**6):
    log.iteration(iteration)
    for _ in range(5):
        log.end(log.begin("tp", "all_reduce"))
    print(iteration, flush=True)
    input()
"""
    environment = {**os.environ, "OFFBEAT_LIVE__RINGS": str(tmp_path / "rings")}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for _ in range(4):
            process.stdout.readline()
            process.stdin.write("\n")
            process.stdin.flush()
        assert process.stdout.readline() == "4\n"
        store = opened(tmp_path)
        assert closing(store) == [0, 1, 2, 3]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert closing(store) == [4]
    assert store.ended
    assert seqs(store, 0, 4) == (list(range(25)), "complete")


def test_an_agent_that_starts_again_knows_what_it_kept_and_misses_nothing(tmp_path: Path) -> None:
    with rank_log(tmp_path) as log:
        first = opened(tmp_path)
        train(log, 0, 1, 2)
        assert closing(first) == [0, 1]
        train(log, 3)
        second = opened(tmp_path)
        assert (second.closed, second.watermark_ns, second.kept) == (1, first.watermark_ns, 2)
        assert closing(second) == [2]
        train(log, 4)
        assert closing(second) == [3]
        assert seqs(second, 0, 3) == (list(range(12)), "complete")
        assert [row["call_order"] for row in second.rows([0], RowQuery(0, 3))[0].to_pylist()] == list(range(12))
        assert [span.tolist() for span in vars_of(second, 1)] == [span.tolist() for span in vars_of(first, 1)]


def test_a_run_under_the_name_of_one_before_it_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rank_log(tmp_path) as before:
        train(before, 0, 1, 2)
    assert closing(opened(tmp_path)) == [0, 1, 2]
    with rank_log(tmp_path) as another:
        store = opened(tmp_path)
        assert closing(store) == []
        train(another, 0, 1)
        assert closing(store) == []
        assert closing(store) == []
    [record] = caplog.records
    assert record.message.startswith("job: rank 0 begins with iteration 0, but this job has ended its iteration 2")


def test_of_a_run_under_the_name_of_one_before_it_nothing_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It ran while no agent did, and for longer."""
    with rank_log(tmp_path) as before:
        train(before, 0, 1, 2)
    assert closing(opened(tmp_path)) == [0, 1, 2]
    with rank_log(tmp_path) as another:
        train(another, *range(6))
        for _ in range(2):  # nor by the agent after the next one
            caplog.clear()
            store = opened(tmp_path)
            assert closing(store) == []
            assert (store.kept, store.ended) == (3, True)
            [record] = caplog.records
            assert record.message == (
                "job: rank 0 begins with iteration 0, but this job has ended its iteration 2, and all of this run is "
                "passed over: give a run that begins anew a name of its own"
            )


@pytest.mark.parametrize("away", [False, True])
def test_a_process_that_goes_back_to_a_checkpoint_is_taken_from_where_the_one_before_it_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, away: bool
) -> None:
    """``away``: no agent ran until it was over."""
    with rank_log(tmp_path) as before:
        train(before, 0, 1, 2, 3)
        assert away or closing(opened(tmp_path)) == [0, 1, 2]
    assert away or closing(opened(tmp_path)) == [3]
    with rank_log(tmp_path) as following:
        train(following, 2, 3, 4, 5)
    store = LiveStore(JOB, (0,), Segments(tmp_path / "kept", PLENTY))
    for rank in sorted(map(RankLog, folders(tmp_path / "rings")), key=lambda each: each.started_ns):
        store.add(rank)
    assert closing(store) == ([0, 1, 2, 3, 4, 5] if away else [4, 5])
    assert [row["seq"] for row in store.rows([0], RowQuery(0, 5))[0].to_pylist()] == [*range(12), *range(6, 12)]
    assert [record.message.partition(":")[0] for record in caplog.records] == ["job"]
    assert "begins with iteration 2, but this job has ended its iteration 3, and what comes up to that" in caplog.text


def test_a_process_that_goes_on_with_a_job_is_no_other_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rank_log(tmp_path) as before:
        train(before, 0, 1, 2)
        assert closing(opened(tmp_path)) == [0, 1]
    with rank_log(tmp_path) as following:
        store = opened(tmp_path)
        train(following, 3, 4)
        assert closing(store) == [2, 3]
    assert not caplog.records


def vars_of(store: LiveStore, iteration: int) -> list[Any]:
    spans = store.spans(iteration)
    return [spans.rank, spans.start_ns, spans.end_ns, spans.lost]


def test_an_agent_killed_before_it_released_an_iteration_tells_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rank_log(tmp_path) as log:
        store = opened(tmp_path)
        train(log, 0, 1)
        with monkeypatch.context() as patched:
            patched.setattr(RankLog, "release", killed)
            with pytest.raises(KeyboardInterrupt):
                store.advance()
        again = opened(tmp_path)
        assert again.closed == 0
        train(log, 2)
        assert closing(again) == [1]
        assert seqs(again, 0, 1) == (list(range(6)), "complete")


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_cut_segment_is_a_gap_and_not_the_end(tmp_path: Path) -> None:
    with rank_log(tmp_path) as log:
        train(log, *range(5))
        assert closing(opened(tmp_path)) == [0, 1, 2, 3]
        [path] = (tmp_path / "kept").iterdir()
        os.truncate(path, path.stat().st_size - 1)
        store = opened(tmp_path)
        assert store.kept == 3
        train(log, 5)
        assert closing(store) == [4]
        assert seqs(store, 2, 4) == ([*range(6, 9), *range(12, 15)], "partial")
        assert seqs(store, 0, 2)[1] == "partial"  # numbers are missing between it and the next one kept
        assert seqs(store, 0, 1)[1] == "complete"


@pytest.mark.parametrize("damage", [b"no Arrow file", b"ARROW1\0\0", None])
def test_a_kept_iteration_that_cannot_be_read_is_told_and_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes | None
) -> None:
    """None: the file goes bad while the agent runs; else it is found so when the agent begins."""
    with rank_log(tmp_path) as log:
        train(log, *range(6))
        store = opened(tmp_path)
        assert closing(store) == [0, 1, 2, 3, 4]
        if damage is None:
            [path] = (tmp_path / "kept").iterdir()
            content = bytearray(path.read_bytes())
            content[content.index(b"ARROW1") + 40] ^= 255
            path.write_bytes(content)
        else:
            kept = Segments(tmp_path / "kept", PLENTY)
            payloads = [kept.read(frame) for frame in kept.frames]
            kept.discard(99)
            for number, payload in enumerate([damage, *payloads[1:]]):
                kept.append(number, payload)
            store = opened(tmp_path)
        assert seqs(store, 0, 1) == ([3, 4, 5], "partial")
        assert seqs(store, 0, 1) == ([3, 4, 5], "partial")
        assert seqs(store, 1, 4) == (list(range(3, 15)), "complete")
    assert [record.message.split(": ")[1] for record in caplog.records] == [
        "what is kept of iteration 0 cannot be read"
    ]


def test_beyond_the_bound_the_oldest_are_overwritten_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rank_log(tmp_path) as log:
        store = opened(tmp_path, max_bytes=60_000)
        for iteration in range(40):
            train(log, iteration)
            store.advance()
        assert store.forgotten
        oldest = store.closed - store.kept + 1
        assert oldest > 0
        assert seqs(store, 0, oldest - 1) == ([], "overwritten")
        assert seqs(store, oldest - 1, oldest) == (list(range(3 * oldest, 3 * oldest + 3)), "partial")
        assert seqs(store, oldest, store.closed)[1] == "complete"
        assert opened(tmp_path, max_bytes=60_000).forgotten
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "OFFBEAT_LIVE__KEEP_BYTES" in caplog.text


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with rank_log(tmp_path) as log:
        store = opened(tmp_path)
        train(log, 0, 1)
        monkeypatch.setattr(Segments, "append", refused)
        with pytest.raises(StoreError, match=r"iteration 0 of job cannot be kept: .*make room"):
            store.advance()


def test_what_a_full_disk_could_not_keep_stays_in_rings_that_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with rank_log(tmp_path, capacity=16) as log:
        train(log, 0, 1, 2, 3)
        with monkeypatch.context() as full:
            full.setattr(Segments, "append", refused)
            for _ in range(2):
                with pytest.raises(StoreError):
                    opened(tmp_path).advance()
        store = opened(tmp_path)
        assert closing(store) == [0, 1, 2]
        assert seqs(store, 0, 2) == (list(range(9)), "complete")


def test_rows_are_what_was_logged(tmp_path: Path) -> None:
    table = Training(iterations=4).table()
    groups = tuple(Communicator(name, ranks) for name, ranks in Training(iterations=4).groups().items())
    store = live_store(Job("job", tuple(Place(rank) for rank in range(8)), groups), table, tmp_path)
    assert closing(store) == [0, 1, 2, 3]
    rows, outcomes = store.rows(range(8), RowQuery(0, 3))
    assert outcomes == dict.fromkeys(range(8), "complete")
    assert rows.schema == COMM_OPS.schema
    for name in ("rank", "communicator", "seq", "op", "bytes", "peer", "iteration", "microbatch", "phase", "p2p_seq"):
        assert rows.column(name).to_pylist() == table.column(name).to_pylist(), name
    for name in ("call_ns", "start_ns", "end_ns", "call_order"):
        assert pc.all(pc.equal(rows.column(name), table.column(name))).as_py(), name


def test_a_communicators_rows_tell_when_their_ranks_went_on_where_no_ends_were_logged(tmp_path: Path) -> None:
    table = Training(iterations=4).table()
    at = table.schema.get_field_index("end_ns")
    bare = table.set_column(at, table.schema.field(at), pa.nulls(len(table), pa.int64()))
    groups = tuple(Communicator(name, ranks) for name, ranks in Training(iterations=4).groups().items())
    job = Job("job", tuple(Place(rank) for rank in range(8)), groups)
    live, recorded = live_store(job, bare, tmp_path), RecordingStore(job, LogIndex(label(bare).table))
    closing(live)
    while recorded.advance():
        pass
    for communicator in ("tp0", None):
        asked = ([0, 3], RowQuery(1, 2, communicator))
        told = live.rows(*asked, next_calls=True)[0].column("next_call_ns").to_pylist()
        assert told == recorded.rows(*asked, next_calls=True)[0].column("next_call_ns").to_pylist()
        assert len([ns for ns in told if ns is not None]) >= len(told) - 2
        assert live.rows(*asked)[0].column("next_call_ns").null_count == len(told)


def test_times_that_cannot_be_are_not_seen(tmp_path: Path) -> None:
    with rank_log(tmp_path) as log:
        log.iteration(0)
        log.end(log.begin("tp", "all_reduce"), start_ns=1, end_ns=2)
        log.end(log.begin("tp", "all_reduce"), end_ns=0)
        train(log, 1)
        store = opened(tmp_path)
        closing(store)
        rows: pa.Table = store.rows([0], RowQuery(0, 0))[0]
        assert rows.column("end_ns").to_pylist() == rows.column("start_ns").to_pylist() == [None, None]
