"""The log that a training loop writes: what its agent can read of it, and that the job never suffers for it."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnosis import job
from offbeat.operator_log import MAX_COMMUNICATORS, OperatorLog
from producers.live.registration import DEGREES, MOST_RANKS, OPS, PHASES, Group, Registration, folders, is_alive, sweep
from producers.live.ring_reader import RingReader
from producers.live.slots import Records
from schemas import comm_ops, topic


@pytest.fixture
def log(tmp_path: Path) -> Iterator[OperatorLog]:
    with OperatorLog(rank=3, job="j", folder=tmp_path, capacity=64) as log:
        yield log


def rings(folder: Path) -> list[Records]:
    [process] = folders(folder)
    readers = [RingReader(path) for path in sorted(process.glob("ring-*"))]
    for reader in readers:
        reader.look()
    return [reader.records() for reader in readers]


def registration(folder: Path) -> Registration:
    [process] = folders(folder)
    return Registration.read(process)


def test_it_is_cheap_to_import() -> None:
    """A training process gets nothing with it but the standard library."""
    before = "import sys, offbeat.operator_log; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(subprocess.check_output([sys.executable, "-c", before], text=True).split())
    assert not loaded & {"pyarrow", "confluent_kafka", "sklearn", "numpy", "pydantic", "faust", "schemas", "diagnosis"}
    assert {"offbeat", "producers"} <= loaded


def test_names_are_those_of_topic_and_job() -> None:
    assert set(OPS) == set(comm_ops.OPS)
    assert comm_ops.PHASES == PHASES
    assert job.DEGREES == DEGREES
    assert job.MOST_RANKS == MOST_RANKS == topic.MOST_RANKS


def test_operators_are_logged_with_their_times(log: OperatorLog, tmp_path: Path) -> None:
    before = time.time_ns()
    log.iteration(7)
    with log.operator("tp", "all_reduce", 512, phase="forward", microbatch=2):
        pass
    first = log.begin("tp", "all_gather")
    second = log.begin("dp", "send", peer=9)
    log.end(second, start_ns=11, end_ns=12)
    log.end(first)
    [records] = rings(tmp_path)
    assert records["seq"].tolist() == [0, 1, 0]
    assert records["communicator"].tolist() == [0, 0, 1]
    assert [OPS[op] for op in records["op"]] == ["all_reduce", "all_gather", "send"]
    assert records["bytes"].tolist() == [512, -1, -1]
    assert records["phase"].tolist() == [1 + PHASES.index("forward"), 0, 0]
    assert records["microbatch"].tolist() == [2, -1, -1]
    assert records["iteration"].tolist() == [7, 7, 7]
    assert (records["peer"].tolist(), records["p2p_seq"].tolist()) == ([-1, -1, 9], [-1, -1, 0])
    assert (records["start_ns"][2], records["end_ns"][2]) == (11, 12)
    times = [before, *records["call_ns"].tolist(), time.time_ns()]
    assert times == sorted(times)
    assert (records["end_ns"][:2] >= records["call_ns"][:2]).all()


def test_sends_and_receives_are_numbered_by_peer_and_direction(log: OperatorLog, tmp_path: Path) -> None:
    for op, peer in (("send", 1), ("recv", 1), ("send", 1), ("send", 2)):
        log.end(log.begin("pp", op, peer=peer))
    assert rings(tmp_path)[0]["p2p_seq"].tolist() == [0, 0, 1, 0]


def test_an_operator_that_fails_has_no_end(log: OperatorLog, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), log.operator("tp", "all_reduce"):
        raise RuntimeError
    assert rings(tmp_path)[0]["end_ns"].tolist() == [0]


def test_a_full_ring_drops_counts_and_leaves_a_gap_in_the_numbers(log: OperatorLog, tmp_path: Path) -> None:
    tickets = [log.begin("tp", "all_reduce") for _ in range(70)]
    assert [ticket is None for ticket in tickets] == [False] * 64 + [True] * 6
    log.end(tickets[-1])
    assert log.dropped == 6
    [process] = folders(tmp_path)
    reader = RingReader(process / "ring-0")
    reader.look()
    reader.release(64)
    log.begin("tp", "all_reduce")
    reader.look()
    assert reader.column("seq").tolist() == [70]


def test_threads_have_rings_of_their_own_and_share_the_numbers(log: OperatorLog, tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def work() -> None:
        log.end(log.begin("tp", "all_reduce"))
        together.wait()
        for _ in range(29):
            log.end(log.begin("tp", "all_reduce"))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own = rings(tmp_path)
    assert [len(records) for records in own] == [30, 30]
    assert sorted(np.concatenate([records["seq"] for records in own]).tolist()) == list(range(60))


Work = Callable[[], object]


def holds_up(works: tuple[Work, Work], patch: Callable[[Work], None]) -> bool:
    """Whether a thread waits for another. ``patch`` is given what stops that one, where it calls it."""
    reached, go_on = threading.Event(), threading.Event()

    def stop() -> None:
        if threading.current_thread() is slow:
            reached.set()
            go_on.wait(60)

    patch(stop)
    slow, other = (threading.Thread(target=work) for work in works)
    slow.start()
    reached.wait()
    other.start()
    other.join(20)
    waits = other.is_alive()
    go_on.set()
    for thread in (slow, other):
        thread.join()
    return waits


def test_a_communicator_that_is_being_made_known_holds_up_no_other_thread(
    log: OperatorLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Registration.write

    def patch(stop: Work) -> None:
        monkeypatch.setattr(Registration, "write", lambda said, folder: (stop(), write(said, folder)))

    assert not holds_up((lambda: log.begin("a", "all_reduce"), lambda: log.begin("b", "all_reduce")), patch)
    assert [group.communicator for group in registration(tmp_path).groups[-2:]] == ["a", "b"]


def test_a_ring_that_is_being_opened_holds_up_no_other_thread(
    log: OperatorLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate = os.posix_fallocate

    def patch(stop: Work) -> None:
        monkeypatch.setattr(os, "posix_fallocate", lambda *told: (stop(), allocate(*told)))

    def work() -> None:
        log.end(log.begin("tp", "all_reduce"))

    assert not holds_up((work, work), patch)
    assert [len(records) for records in rings(tmp_path)] == [1, 1]


def test_a_thread_takes_over_the_ring_of_one_that_ended(log: OperatorLog, tmp_path: Path) -> None:
    for _ in range(5):
        thread = threading.Thread(target=lambda: log.end(log.begin("tp", "all_reduce")))
        thread.start()
        thread.join()
    assert [len(records) for records in rings(tmp_path)] == [5]


def test_another_thread_may_say_the_end(log: OperatorLog, tmp_path: Path) -> None:
    ticket = log.begin("tp", "all_reduce")
    thread = threading.Thread(target=log.end, args=(ticket,))
    thread.start()
    thread.join()
    [records] = rings(tmp_path)
    assert records["end_ns"][0] >= records["call_ns"][0]


def test_communicators_are_registered_before_their_first_operator(log: OperatorLog, tmp_path: Path) -> None:
    log.communicator("tp", ranks=[2, 3], kind="tensor")
    log.begin("dp", "all_reduce")
    assert registration(tmp_path).groups == (Group("tp", (2, 3), "tensor"), Group("dp"))
    log.communicator("dp", ranks=range(4))
    assert registration(tmp_path).groups[1] == Group("dp", (0, 1, 2, 3))
    log.begin("dp", "all_reduce")
    assert rings(tmp_path)[0]["seq"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "op", "phase"),
    [("tp", "gather", None), ("tp", "send", "F"), ("tp", ["send"], None), ("tp", "send", [1]), (["tp"], "send", None)],
)
def test_what_is_not_known_is_told_once_and_not_logged(
    log: OperatorLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: Any, op: Any, phase: Any
) -> None:
    for _ in range(3):
        assert log.begin(name, op, phase=phase) is None
    assert len(caplog.records) == 1
    log.begin("tp", "all_reduce")
    assert len(rings(tmp_path)[0]) == 1


@pytest.mark.parametrize(
    "wrong", [{"nbytes": 3.5}, {"nbytes": 2**70}, {"peer": "3"}, {"peer": np.array([1, 2])}, {"microbatch": None}]
)
def test_what_is_no_number_is_told_once_and_leaves_no_hole_in_the_ring(
    log: OperatorLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any]
) -> None:
    for _ in range(2):
        assert log.begin("tp", "send", **wrong) is None
    log.end(log.begin("tp", "send", 3))
    assert len(caplog.records) == 1
    assert rings(tmp_path)[0]["bytes"].tolist() == [3]


def test_names_that_cannot_be_are_refused_and_forgotten(log: OperatorLog, tmp_path: Path) -> None:
    for name, ranks in (("", [0]), ("tp", [-1]), ("tp", [0, 1, 0])):
        with pytest.raises(ValueError, match=r"is not text|is not a whole number|lists a rank twice"):
            log.communicator(name, ranks)
    with pytest.raises(ValueError, match=r"the ranks of communicator 'tp' are '0,1'; give a list of numbers"):
        log.communicator("tp", "0,1")  # type: ignore[arg-type]
    assert log.begin("", "all_reduce") is None
    log.begin("tp", "all_reduce")
    assert registration(tmp_path).groups == (Group("tp"),)
    with pytest.raises(ValueError, match="empty"):
        OperatorLog(rank=0, job="", folder=tmp_path)
    for layout in ({"vp": 2}, {"tp": 0}):
        with pytest.raises(ValueError, match="degrees of tp, cp"):
            OperatorLog(rank=0, job="j", folder=tmp_path, layout=layout)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ("03", "the ranks of communicator 'tp' are '03'; give a list of numbers"),
        ([2.5, 3], r"the ranks of communicator 'tp' are \[2.5, 3\]; give a list of numbers"),
        (3, "the ranks of communicator 'tp' are 3; give a list of numbers"),
        ([], "communicator 'tp' has no ranks; leave them out where they are not known"),
        ([0, 1], r"the ranks of communicator 'tp' are \(0, 1\), without this rank, 3; tell of the communicators that"),
    ],
)
def test_ranks_that_cannot_be_those_of_a_communicator_are_refused(
    log: OperatorLog, tmp_path: Path, ranks: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        log.communicator("tp", ranks)
    assert registration(tmp_path).groups == ()


def test_a_name_that_gets_other_members_is_told_of_once(
    log: OperatorLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No error: groups that are made anew while a job runs may bear the names of those before."""
    members: Any = np.array([2, 3])
    log.communicator("tp", members)
    log.communicator("tp", members, "tensor")
    assert not caplog.records
    for ranks in ([3, 4], [3, 5]):
        log.communicator("tp", ranks)
    [told] = caplog.records
    assert told.getMessage().startswith("the ranks of communicator tp are now (3, 4), and were (2, 3): give each group")
    assert registration(tmp_path).groups == (Group("tp", (3, 5)),)


@pytest.mark.parametrize("layout", ["tp=2", 5, [3], {"tp": "2"}, {"tp": 2.0}, {"tp": -1}, {2: 2}])
def test_a_layout_that_cannot_be_is_refused(tmp_path: Path, layout: Any) -> None:
    with pytest.raises(ValueError, match=r"^the layout is .*; give degrees"):
        OperatorLog(rank=0, job="j", folder=tmp_path, layout=layout)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"microbatch": "x"}, "microbatch is a str; give a whole number"),
        ({"nbytes": 3.5}, "nbytes is a float; give a whole number"),
        ({"peer": None}, "peer is a NoneType; give a whole number"),
    ],
)
def test_what_is_no_number_is_told_by_its_name(
    log: OperatorLog, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any], said: str
) -> None:
    log.begin("tp", "send", **wrong)
    assert [record.getMessage() for record in caplog.records] == [f"an operator of tp is not logged: {said}"]


@pytest.mark.parametrize("ticket", ["x", 5, (), {}, (1, 2), [None]])
def test_an_end_of_what_is_no_ticket_is_told_once(
    log: OperatorLog, caplog: pytest.LogCaptureFixture, ticket: Any
) -> None:
    for _ in range(2):
        log.end(ticket)
    [told] = caplog.records
    assert told.getMessage().startswith("the end of an operator is not logged: ")
    assert told.getMessage().endswith("; give what begin gave, and whole numbers")


def test_numbers_that_leave_some_out_are_told_of_once(log: OperatorLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in (7, 8, 18, 28):
        log.iteration(number)
    assert [record.getMessage() for record in caplog.records] == [
        "iteration 18 follows 8: number them one by one, or slow ones are missed"
    ]


def test_what_is_trained_again_is_numbered_and_not_logged(
    log: OperatorLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another rank may have come further: that one logs again from another iteration on, by the same numbers."""
    for number in (4, 5, 5, 6, 3, 4, 5, 6, 7, 1):
        log.iteration(number)
        log.begin("tp", "all_reduce")
    [told] = rings(tmp_path)
    assert told["iteration"].tolist() == [4, 5, 5, 6, 7]
    assert told["seq"].tolist() == [0, 1, 2, 3, 8]
    assert [record.message for record in caplog.records] == [
        "iteration 3 follows 6: nothing is logged until numbers are beyond"
    ]


@pytest.mark.parametrize("number", [None, "5", 3.5])
def test_an_iteration_that_is_no_number_changes_nothing(
    log: OperatorLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, number: Any
) -> None:
    log.iteration(2)
    log.iteration(number)
    log.begin("tp", "all_reduce")
    assert rings(tmp_path)[0]["iteration"].tolist() == [2]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("told", [{"start_ns": None}, {"start_ns": 1.5}, {"end_ns": 1e18}, {"end_ns": 1 << 70}])
def test_an_end_that_is_no_time_is_told_once(
    log: OperatorLog, tmp_path: Path, caplog: pytest.LogCaptureFixture, told: dict[str, Any]
) -> None:
    for _ in range(2):
        log.end(log.begin("tp", "all_reduce"), **told)
    assert rings(tmp_path)[0]["end_ns"].tolist() == [0, 0]
    assert len(caplog.records) == 1


def test_too_many_communicators_are_not_logged(
    log: OperatorLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("offbeat.operator_log.MAX_COMMUNICATORS", 2)
    assert MAX_COMMUNICATORS <= 2**16
    tickets = [log.begin(name, "all_reduce") for name in ("a", "b", "c", "d", "a")]
    assert [ticket is None for ticket in tickets] == [False, False, True, True, False]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_torchrun_says_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "llama"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OFFBEAT_LIVE__RINGS", str(tmp_path))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    OperatorLog(layout={"tp": 2}).close()
    said = registration(tmp_path)
    assert (said.job, said.rank, said.world, said.gpu, said.layout) == ("llama", 5, 16, 1, {"tp": 2})
    assert said.host == os.uname().nodename
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    OperatorLog(folder=tmp_path / "restarted").close()
    assert registration(tmp_path / "restarted").job == "llama.2"


@pytest.mark.parametrize(
    ("environment", "message"),
    [({}, "RANK is not set"), ({"RANK": "x"}, "RANK is 'x'"), ({"RANK": "1", "TORCHELASTIC_RUN_ID": "none"}, "job=")],
)
def test_who_it_is_must_be_known(environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        OperatorLog(job=None if "TORCHELASTIC_RUN_ID" in environment else "j")


def test_where_it_cannot_be_opened_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        log = OperatorLog(rank=0, job="j", folder=tmp_path / "file")
        log.communicator("tp", [0, 1])
        with log.operator("tp", "all_reduce"):
            pass
        log.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_where_memory_is_missing_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refused)
    with OperatorLog(rank=0, job="j", folder=tmp_path) as log:
        assert [log.begin("tp", "all_reduce") for _ in range(3)] == [None] * 3
    assert "No space left" in caplog.text


def test_after_its_end_nothing_is_logged(tmp_path: Path) -> None:
    log = OperatorLog(rank=0, job="j", folder=tmp_path)
    log.begin("tp", "all_reduce")
    log.close()
    assert log.begin("tp", "all_reduce") is None
    assert [len(records) for records in rings(tmp_path)] == [1]


def test_a_forked_child_leaves_its_parents_rings_alone(log: OperatorLog, tmp_path: Path) -> None:
    log.begin("tp", "all_reduce")
    child = os.fork()
    if child == 0:
        silent = all(log.begin(name, "all_reduce") is None for name in ("tp", "new"))
        os._exit(0 if silent else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.begin("tp", "all_reduce")
    assert [len(records) for records in rings(tmp_path)] == [2]
    assert [group.communicator for group in registration(tmp_path).groups] == ["tp"]


def test_whether_a_process_lives_is_told_by_its_lock(tmp_path: Path) -> None:
    code = "from offbeat.operator_log import OperatorLog; import sys\nlog = OperatorLog(rank=0, job='j'); input()"
    environment = {**os.environ, "OFFBEAT_LIVE__RINGS": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment) as process:
        while not (left := list(folders(tmp_path))):
            assert process.poll() is None
        assert is_alive(left[0])
        sweep(tmp_path, older_than_s=-1)
        assert left[0].exists()
        process.kill()
        process.wait()
        assert not is_alive(left[0])
    sweep(tmp_path)
    assert left[0].exists()
    sweep(tmp_path, older_than_s=-1)
    assert not left[0].exists()


def left_by_a_stranger(rings: Path) -> Path:
    folder = rings / "0-strange"
    folder.mkdir()
    (folder / "registration.json").touch()
    os.utime(folder / "registration.json", (0, 0))
    os.mkfifo(folder / "alive")
    return folder


def test_a_pipe_among_the_rings_holds_no_process_up(tmp_path: Path) -> None:
    left = left_by_a_stranger(tmp_path)
    code = "from offbeat.operator_log import OperatorLog; OperatorLog(rank=0, job='j')"
    environment = {**os.environ, "OFFBEAT_LIVE__RINGS": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=30)
    assert not left.exists()


def test_what_others_left_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rings").mkdir()
    left = left_by_a_stranger(tmp_path / "rings")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "rings" / "1-link").symlink_to(elsewhere)
    assert list(folders(tmp_path / "rings")) == [left]
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
        sweep(tmp_path / "rings")
    assert left.exists()


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, put: Callable[[Path], None]) -> None:
    for name in ("alive", "registration.json"):
        put(tmp_path / name)
    assert not is_alive(tmp_path)
    with pytest.raises(ValueError, match=r"registration\.json is no regular file"):
        Registration.read(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"job":"j","rank":-1,"start_id":"s","groups":[]}',
        '{"job":1,"rank":1,"start_id":"s"}',
        '{"job":"j","rank":0,"start_id":"s","world":1048577,"groups":[]}',
        '{"job":"j","rank":1048576,"start_id":"s","groups":[]}',
        '{"job":"j","rank":0,"start_id":"s","groups":[{"communicator":"c","ranks":[1048576],"kind":null}]}',
        '{"job":"j","rank":0,"start_id":"s","groups":[{"communicator":"c","ranks":[0,0],"kind":null}]}',
        pytest.param("[" * 100_000, id="nested deeply"),
    ],
)
def test_what_is_no_registration_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "registration.json").write_text(text)
    with pytest.raises(ValueError, match="is no registration"):
        Registration.read(tmp_path)
