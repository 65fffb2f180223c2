"""The preloaded library in real processes, over stubs of NCCL and libibverbs: it logs, and changes nothing."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producers.collectors import preload
from producers.collectors.addresses import Addresses
from producers.collectors.call_log import CallLog, Member, QueuePair
from producers.live.registration import folders
from schemas.errors import SettingsError
from tests.producers.collectors.preloaded import Built

GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"


def log_of(calls: Path) -> CallLog:
    [folder] = folders(calls)
    found = CallLog(folder)
    found.look()
    return found


def rows(log: CallLog, addresses: Addresses | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.calls(addresses or Addresses(), time.time_ns()).to_pylist()
    return found


def ran(built: Built, calls: Path, *command: str, **how: Any) -> CallLog:
    done = built.run(built.environment(calls, **how), *command)
    assert (done.returncode, done.stderr) == (0, "")
    return log_of(calls)


def test_every_call_is_told_with_its_arguments(built: Built, tmp_path: Path) -> None:
    before = time.time_ns()
    log = ran(built, tmp_path, "everything", rank=1)
    after = time.time_ns()
    [member] = [fact for fact in log.facts() if isinstance(fact, Member)]
    assert member.place == 1
    addresses = Addresses()
    addresses.tell("h1", {("communicator", member.communicator, place): 10 + place for place in range(4)})
    told = rows(log, addresses)
    names = ("op", "dtype", "count", "peer", "root", "reduce_op", "stream")
    assert [tuple(row[name] for name in names) for row in told] == [
        ("all_reduce", "float32", 1024, None, None, "sum", "0x77"),
        ("all_gather", "int8", 1, None, None, None, "0x77"),
        ("reduce_scatter", "bfloat16", 2, None, None, "avg", "0x77"),
        ("broadcast", "float16", 3, None, 13, None, "0x77"),
        ("broadcast", "float16", 4, None, 10, None, "0x77"),
        ("reduce", "float64", 5, None, 11, "other", "0x77"),
        ("all_to_all", "uint8", 6, None, None, None, "0x0"),
        *(("send", "float32", 10 + peer, 10 + peer, None, None, "0x77") for peer in range(4)),
        *(("recv", "float32", 20 + peer, 10 + peer, None, None, "0x77") for peer in range(4)),
        ("send", "float32", 30, 11, None, None, "0x77"),
    ]
    assert {(row["rank"], row["communicator"], row["communicator_rank"]) for row in told} == {
        (1, member.communicator, 1)
    }
    assert [row["seq"] for row in told] == list(range(16))
    assert np.all(np.diff([row["call_id"] for row in told]) > 0)
    times = [row["call_ns"] for row in told]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= after
    grouped = [row for row in told if row["group_start_ns"] is not None]
    assert [row["count"] for row in grouped] == [*range(10, 14), *range(20, 24)]
    [(start_ns, end_ns)] = {(row["group_start_ns"], row["group_end_ns"]) for row in grouped}
    assert times[6] <= start_ns <= grouped[0]["call_ns"] <= grouped[-1]["call_ns"] <= end_ns <= times[-1]


@pytest.mark.parametrize("result", ["0", "3"])
@pytest.mark.parametrize("verbs", [True, False])
def test_what_is_preloaded_changes_nothing(built: Built, tmp_path: Path, result: str, verbs: bool) -> None:
    environment = built.environment(tmp_path, verbs=verbs, STUB_NOTES="1", STUB_RESULT=result)
    alone = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    with_it, without = built.run(environment, "everything"), built.run(alone, "everything")
    assert (with_it.returncode, with_it.stdout) == (without.returncode, without.stdout)
    assert without.stdout.count("\n") > 20
    assert (without.returncode != 0) == (result != "0")


def test_members_agree_on_the_names_of_communicators_of_every_make(built: Built, tmp_path: Path) -> None:
    places: dict[int, list[Member]] = {}
    for rank in range(4):
        log = ran(built, tmp_path / str(rank), "communicators", rank=rank)
        places[rank] = [fact for fact in log.facts() if isinstance(fact, Member)]
        told = rows(log)
        assert [row["communicator"] for row in told] == [member.communicator for member in places[rank]]
        assert [row["communicator_rank"] for row in told] == [rank, rank, rank, rank // 2, rank // 2]
        assert log._ring.dropped == 1  # on a communicator that was aborted
    names = {rank: [member.communicator for member in members] for rank, members in places.items()}
    world, config, scalable = names[0][:3]
    assert config == scalable != world  # of one id
    assert all(each[:3] == names[0][:3] for each in names.values())
    assert names[0] == names[2] != names[1] == names[3]
    assert len({name for each in names.values() for name in each[3:]}) == 4


def test_a_full_ring_drops_and_counts_and_holds_nobody_up(built: Built, tmp_path: Path) -> None:
    log = ran(built, tmp_path, "flood", "20000")
    told = rows(log)
    capacity = log._ring.capacity
    assert (len(told), log._ring.dropped) == (capacity, 4 * 20_000 - capacity)
    seqs = Counter(row["seq"] for row in told)
    assert max(seqs.values()) == 1
    assert max(seqs) < 4 * 20_000
    log.release()
    log.look()
    assert rows(log) == []


def test_a_child_of_fork_logs_for_itself(built: Built, tmp_path: Path) -> None:
    done = built.run(built.environment(tmp_path), "forked")
    assert (done.returncode, done.stderr) == (0, "")
    logs = {log.rank: log for log in map(CallLog, folders(tmp_path))}
    for log in logs.values():
        log.look()
    assert {rank: [row["count"] for row in rows(log)] for rank, log in logs.items()} == {0: [1], 9: [99]}
    assert {rank: len([f for f in log.facts() if isinstance(f, Member)]) for rank, log in logs.items()} == {0: 1, 9: 1}


def test_queue_pairs_are_told_with_both_ends(built: Built, tmp_path: Path) -> None:
    port = built.folder / "infiniband" / "mlx5_3" / "ports" / "1"
    (port / "gids").mkdir(parents=True, exist_ok=True)
    (port / "gids" / "3").write_text(f"{GID}\n")
    (port / "lid").write_text("0x1c\n")
    before = time.time_ns()
    log = ran(built, tmp_path / "gid", "everything", rank=1)
    connected, closed = (fact for fact in log.facts() if isinstance(fact, QueuePair))
    assert (connected.nic, connected.qpn, connected.closed) == ("mlx5_3", 0x200, False)
    assert (connected.gid, connected.destination_gid) == ("::ffff:a00:1", "::ffff:a00:2")
    assert connected.destination_qpn == 0x300
    assert (closed.nic, closed.qpn, closed.closed) == ("mlx5_3", 0x200, True)
    assert before <= connected.at_ns <= closed.at_ns <= time.time_ns()
    log = ran(built, tmp_path / "lid", "everything", rank=1, STUB_LID="1")
    connected = next(fact for fact in log.facts() if isinstance(fact, QueuePair))
    assert (connected.gid, connected.destination_gid) == ("lid:28", "lid:47")


def test_a_program_that_is_linked_to_libibverbs_is_seen_too(built: Built, tmp_path: Path) -> None:
    done = built.run(built.environment(tmp_path), program=built.folder / "connect")
    assert (done.returncode, done.stderr) == (0, "")
    facts = [fact for fact in log_of(tmp_path).facts() if isinstance(fact, QueuePair)]
    assert [(fact.nic, fact.qpn, fact.destination_qpn, fact.closed) for fact in facts] == [
        ("mlx5_9", 77, 78, False),
        ("mlx5_9", 77, 0, True),
    ]


def test_without_libibverbs_calls_are_told_all_the_same(built: Built, tmp_path: Path) -> None:
    log = ran(built, tmp_path / "made" / "on the way", "everything", verbs=False)
    assert [type(fact) for fact in log.facts()] == [Member]
    told = rows(log)
    assert len(told) == 16
    assert {row["peer"] for row in told} == {None}  # nobody has told who they are


def test_nccl_that_was_loaded_apart_is_found(built: Built, tmp_path: Path) -> None:
    # As Python loads an extension and its libraries: nobody else sees their symbols.
    code = """
import ctypes, os
ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_LOCAL)
seen = ctypes.CDLL(None)  # what a program that is linked to NCCL finds
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
comm, at = ctypes.c_void_p(), ctypes.c_void_p(16)
assert seen.ncclCommInitRank(ctypes.byref(comm), 4, Id(b"world"), 2) == 0
assert seen.ncclAllReduce(at, at, ctypes.c_size_t(5), 7, 0, comm, None) == 0
"""
    environment = built.environment(tmp_path, rank=2, STUB_NOTES="1")
    done = built.run(environment, "-c", code, program=Path(sys.executable))
    assert done.returncode == 0, done.stderr
    assert "init 2 of 4 world" in done.stdout
    [row] = rows(log_of(tmp_path))
    assert (row["op"], row["count"], row["communicator_rank"]) == ("all_reduce", 5, 2)


@pytest.mark.parametrize(
    ("unset", "why"), [("RANK", "RANK is not set"), ("OFFBEAT_COLLECT__JOB", "set OFFBEAT_COLLECT__JOB")]
)
def test_a_process_that_is_nobody_says_so_once_and_goes_on(built: Built, tmp_path: Path, unset: str, why: str) -> None:
    environment = built.environment(tmp_path)
    for name in (unset, "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        environment.pop(name, None)
    done = built.run(environment, "everything")
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert why in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("folder", "why"), [("/dev/null/calls", "Not a directory"), (f"/dev/shm/{'x' * 600}", "too long")]
)
def test_where_there_is_no_room_for_a_log_training_goes_on(built: Built, folder: str, why: str) -> None:
    done = built.run(built.environment(Path(folder)), "everything")
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith("offbeat: the calls of this process are not logged: ")
    assert why in line


def test_a_log_that_cannot_be_filled_leaves_nothing_behind(built: Built, tmp_path: Path) -> None:
    limited = f"ulimit -n 4; exec {built.program} everything"  # descriptors for what it has, and one more
    done = subprocess.run(
        ["bash", "-c", limited], env=built.environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Too many open files" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_who_a_process_is_comes_from_its_launcher(built: Built, tmp_path: Path) -> None:
    environment = built.environment(tmp_path, rank=6, LOCAL_RANK="6", TORCHELASTIC_RUN_ID='run"7', WORLD_SIZE="16")
    environment |= {"TORCHELASTIC_RESTART_COUNT": "2", "OFFBEAT_COLLECT__JOB": ""}
    assert built.run(environment, "everything").returncode == 0
    said = log_of(tmp_path).registration
    assert (said.job, said.rank, said.world, said.gpu, said.host) == ("run?7.2", 6, 16, 6, os.uname().nodename)


@pytest.mark.parametrize(
    ("given", "job"),
    [
        ({"OFFBEAT_COLLECT__JOB": "own", "TORCHELASTIC_RUN_ID": "torch", "TORCHELASTIC_RESTART_COUNT": "0"}, "own"),
        ({"OFFBEAT_COLLECT__JOB": "own", "TORCHELASTIC_RESTART_COUNT": "3"}, "own.3"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"}, "77.1"),
    ],
)
def test_a_restart_is_another_job(built: Built, tmp_path: Path, given: dict[str, str], job: str) -> None:
    environment = built.environment(tmp_path) | {"OFFBEAT_COLLECT__JOB": ""} | given
    assert built.run(environment, "everything").returncode == 0
    assert log_of(tmp_path).registration.job == job


def test_a_process_without_communicators_leaves_no_trace(built: Built, tmp_path: Path) -> None:
    assert built.run(built.environment(tmp_path / "calls"), "nothing").returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_who_looks_up_the_next_function_finds_the_one_behind_itself(built: Built, tmp_path: Path) -> None:
    assert built.run(built.environment(tmp_path), "next").returncode == 0


def test_the_folder_is_the_users_alone(built: Built, tmp_path: Path) -> None:
    ran(built, tmp_path / "calls", "everything")
    [folder] = (tmp_path / "calls").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {
        path.name: path.stat().st_mode & 0o077 for path in folder.iterdir() if path.name != "registration.json"
    } == {
        "alive": 0,
        "facts": 0,
        "ring-0": 0,
    }
    assert json.loads((folder / "registration.json").read_text())["rank"] == 0


def test_a_folder_that_is_not_there_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "true")
    for target, built in (("lib", "lib/liboffbeat_calls.so"), ("a/b", "a/b/liboffbeat_calls.so"), ("c/d.so", "c/d.so")):
        assert preload.build(tmp_path / target) == tmp_path / built
        assert (tmp_path / built).parent.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"file/below: Not a directory; name a folder to write to"):
        preload.build(tmp_path / "file" / "below")


def test_without_a_compiler_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(SettingsError, match="no-such-compiler is not found; install one"):
        preload.build(tmp_path)
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SettingsError, match=r"^false .* failed: 1"):
        preload.build(tmp_path)
