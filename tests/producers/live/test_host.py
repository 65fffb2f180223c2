"""The jobs of a host: how they are found, described, told and let go."""

import gc
import logging
import os
import stat
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from diagnosis.job import Communicator, Job, Layout, Place
from offbeat.operator_log import OperatorLog
from producers.importers.recording import load
from producers.live import live_job, rank_log
from producers.live.host import Host
from producers.live.live_store import LiveStore
from producers.live.registration import Registration, folders
from producers.live.ring import TAIL_AT
from producers.live.ring_reader import RingReader
from producers.log_store import Rows
from producers.spool import Spool
from schemas.catalogue import COMM_OPS, ITERATION_SUMMARIES, JOBS, LOG_REQUESTS
from schemas.message import Message, decode, encode
from schemas.topic import Topic

Describe = Callable[[str], Job | None]


def nobody(_: str) -> None:
    return None


def log_of(folder: Path, rank: int, job: str = "job", **given: Any) -> OperatorLog:
    return OperatorLog(rank=rank, job=job, folder=folder / "rings", **given)


def host_at(folder: Path, described: Describe = nobody) -> Host:
    return Host(folder / "rings", folder / "kept", 1 << 24, described, lambda job: job.ranks[:1], name="h0")


def step(host: Host) -> list[Message]:
    """All that a host has to tell by now."""
    return list(host.step())


def train(log: OperatorLog, *iterations: int) -> None:
    for iteration in iterations:
        log.iteration(iteration)
        for phase in ("forward", "backward"):
            log.end(log.begin("tensor", "all_reduce", 1 << 20, phase=phase, microbatch=0))


def rows(messages: list[Message], topic: Topic) -> list[dict[str, Any]]:
    return [row for m in messages if m.topic == topic.name for row in decode(m, topic).to_pylist()]


def request(job: str = "job", **asked: object) -> Message:
    row = {"request_id": "r", "ranks": [0, 1], "iteration_from": 0, "iteration_to": 0, "what": "rows"}
    batch = LOG_REQUESTS.from_rows([{**row, "deadline_ns": 10**18, **asked}])
    return encode(LOG_REQUESTS, batch, job=job)


def test_a_job_of_this_host_alone_is_described_told_and_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=2, gpu=0, host="h0") as zero, log_of(tmp_path, 1, world=2, gpu=1, host="h0") as one:
        zero.communicator("tensor", [0, 1], "tp")
        train(zero, 0, 1)
        assert step(host) == []
        train(one, 0, 1)
        messages = step(host)
        [job] = rows(messages, JOBS)
        assert job["ranks"][1]["gpu"] == 1
        assert [(c["communicator"], c["ranks"]) for c in job["communicators"]] == [("tensor", [0, 1])]
        assert (job["training"]["tp"], job["ended_ns"]) == (2, None)
        assert [(s["rank"], s["iteration"]) for s in rows(messages, ITERATION_SUMMARIES)] == [(0, 0), (1, 0)]
        assert {row["rank"] for row in rows(messages, COMM_OPS)} == {0}
        kept = load([tmp_path / "kept" / "job"])  # what is kept says whose it is, to whoever reads it without the agent
        assert (kept.job.job, kept.job.place[1]) == ("job", Place(1, "h0", 1))
        assert stat.S_IMODE((tmp_path / "kept" / "job" / "job.json").stat().st_mode) == 0o600
        assert [host.ended] == [False]
        [answer] = host.process(request())
        assert answer.headers["ranks"] == "0,1"
        assert len(rows([answer], COMM_OPS)) == 4
        assert list(host.process(request("another"))) == []
        assert host.jobs[0].operators == 8
    messages = step(host)
    assert [s["last"] for s in rows(messages, ITERATION_SUMMARIES)] == [True, True]
    [job] = rows(messages, JOBS)
    assert job["ended_ns"] == max(row["end_ns"] for row in rows(list(host.process(request_all())), COMM_OPS))
    assert host.ended
    assert [record.getMessage() for record in caplog.records] == [
        "job: 2 of 2 ranks log here, from iteration 0 on",
        "job: over after iteration 1; 8 operators logged here, 0 dropped",
    ]
    assert list(folders(tmp_path / "rings")) == []
    assert step(host) == []


def test_the_memory_of_a_job_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers, stores = weakref.WeakSet[RingReader](), weakref.WeakSet[LiveStore]()

    class Seen(RingReader):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            readers.add(self)

    class Store(LiveStore):
        def __init__(self, *told: Any, **more: Any) -> None:
            super().__init__(*told, **more)
            stores.add(self)

    monkeypatch.setattr(rank_log, "RingReader", Seen)
    monkeypatch.setattr(live_job, "LiveStore", Store)
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        step(host)
        assert (len(readers), len(stores)) == (1, 1)
        before = list(host.process(request()))
    step(host)
    assert host.ended
    gc.collect()
    assert (len(readers), len(stores)) == (0, 0)
    assert [(job.operators, job.dropped) for job in host.jobs] == [(4, 0)]
    [answer] = host.process(request())
    assert len(rows([answer], COMM_OPS)) == 2
    assert [answer.value] == [each.value for each in before]
    [store] = stores
    assert list(host.process(request()))
    assert list(stores) == [store], "a search asks several times"
    del store
    monkeypatch.setattr(live_job, "ASKED_AGAIN_S", -1.0)
    step(host)
    gc.collect()
    assert len(stores) == 0


def test_what_is_kept_of_a_job_that_is_over_may_be_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
    step(host)
    step(host)
    [described] = tmp_path.rglob("job.json")
    described.unlink()
    assert list(host.process(request())) == []
    assert "what is kept of the job cannot be read" in caplog.text


def request_all() -> Message:
    row = {"request_id": "all", "ranks": [0, 1], "iteration_from": 0, "iteration_to": 1, "what": "rows"}
    return encode(LOG_REQUESTS, LOG_REQUESTS.from_rows([{**row, "deadline_ns": 10**18}]), job="job")


def test_what_is_kept_of_a_job_that_is_over_is_only_read(tmp_path: Path) -> None:
    """Another one of its name may have begun, and be writing there."""
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
    step(host)
    step(host)
    [path] = tmp_path.rglob("*.frames")
    with path.open("ab") as file:
        file.write(b"being written")
    before = path.read_bytes()
    [answer] = host.process(request())
    assert len(rows([answer], COMM_OPS)) == 2
    assert path.read_bytes() == before


def test_while_a_request_is_answered_iterations_are_closed_between_two_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, ranks = host_at(tmp_path), range(4)
    look_up, asked = LiveStore.rows, threading.Event()
    closed: list[int] = []
    answers: list[Message] = []

    def slowly(store: LiveStore, *told: Any, **more: Any) -> Rows:
        if threading.current_thread() is answering:
            closed.append(store.closed)
            asked.set()
            time.sleep(0.1)
        return look_up(store, *told, **more)

    def answer() -> None:
        answers.extend(host.process(request(ranks=list(ranks))))

    with ExitStack() as running:
        logs = [running.enter_context(log_of(tmp_path, rank, world=len(ranks))) for rank in ranks]
        for log in logs:
            train(log, 0, 1)
        step(host)
        for log in logs:
            train(log, 2)
        monkeypatch.setattr(LiveStore, "rows", slowly)
        answering = threading.Thread(target=answer)
        answering.start()
        asked.wait()
        step(host)
        answering.join()
    assert (closed[0], closed[-1], len(closed)) == (0, 1, len(ranks))
    [told] = answers
    assert (told.headers["ranks"], told.headers["outcome"]) == ("0,1,2,3", "complete")


def test_what_waits_for_an_iteration_is_answered_apart_from_what_is_told(tmp_path: Path) -> None:
    """Whoever reads the rings works out no answer."""
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        step(host)
        assert list(host.process(request(iteration_to=1))) == []
        assert list(host.late()) == []
        train(log, 2)
        assert not any("request_id" in message.headers for message in step(host))
        [answer] = host.late()
        assert [row["iteration"] for row in rows([answer], COMM_OPS)] == [0, 0, 1, 1]
        assert list(host.late()) == []
        assert list(host.process(request(iteration_from=2, iteration_to=9))) == []
    assert not any("request_id" in message.headers for message in step(host))
    assert [host.ended] == [False]
    [answer] = host.late()
    assert [host.ended] == [True]
    assert [row["iteration"] for row in rows([answer], COMM_OPS)] == [2, 2]
    assert answer.headers["outcome"] == "partial"
    assert list(host.late()) == []


def test_a_job_on_several_hosts_waits_for_its_description(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    described: list[Job] = []
    host = host_at(tmp_path, lambda _: described[0] if described else None)
    with log_of(tmp_path, 2, world=4) as two, log_of(tmp_path, 3, world=4) as three, caplog.at_level(logging.INFO):
        for log in (two, three):
            train(log, 0, 1)
        assert step(host) == step(host) == []
        assert [record.getMessage() for record in caplog.records if "--job" in record.getMessage()] != []
        places = tuple(Place(rank, f"n{rank // 2}") for rank in range(4))
        described.append(Job("job", places, (Communicator("tensor", (0, 1, 2, 3)),), Layout(tp=4, pp=1, dp=1)))
        messages = step(host)
        assert rows(messages, JOBS) == []  # the agent of the first rank's host tells of the job
        summaries = rows(messages, ITERATION_SUMMARIES)
        assert [(s["rank"], s["iteration"]) for s in summaries] == [(2, 0), (3, 0)]
        assert {m.headers["host"] for m in messages} == {"n1"}


def test_members_that_were_not_said_are_those_that_take_part(tmp_path: Path) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=2) as zero, log_of(tmp_path, 1, world=2) as one:
        for log in (zero, one):
            train(log, 0, 1)
        [job] = rows(step(host), JOBS)
        assert [(c["communicator"], c["ranks"]) for c in job["communicators"]] == [("tensor", [0, 1])]


def test_what_is_said_of_a_communicator_later_counts_and_strangers_do_not(tmp_path: Path) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0)
        step(host)
        log.communicator("tensor", [0, 9], "tp")
        train(log, 1)
        [job] = rows(step(host), JOBS)
        assert [(c["kind"], c["ranks"]) for c in job["communicators"]] == [("tp", [0])]


def test_a_communicator_that_appears_later_is_told_before_its_rows(tmp_path: Path) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=2) as zero, log_of(tmp_path, 1, world=2) as one:
        for log in (zero, one):
            train(log, 0, 1)
        assert len(rows(step(host), JOBS)) == 1
        for log in (zero, one):
            train(log, 2)
            log.end(log.begin("checkpoint", "barrier"))
            train(log, 3)
        messages = step(host)
        assert [m.topic for m in messages[:3]] == [COMM_OPS.name, ITERATION_SUMMARIES.name, JOBS.name]
        [job] = rows(messages, JOBS)
        assert [(c["communicator"], c["ranks"]) for c in job["communicators"]] == [
            ("tensor", [0, 1]),
            ("checkpoint", [0, 1]),
        ]
    assert len(rows(step(host), JOBS)[-1]["communicators"]) == 2


@pytest.mark.parametrize(("layout", "told"), [({"tp": 2, "pp": 1, "dp": 1}, 0), ({"tp": 3, "pp": 1, "dp": 1}, 1)])
def test_a_layout_that_does_not_fit_is_told(
    tmp_path: Path, layout: dict[str, int], told: int, caplog: pytest.LogCaptureFixture
) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=2, layout=layout) as zero, log_of(tmp_path, 1, world=2) as one:
        for log in (zero, one):
            train(log, 0, 1)
        [job] = rows(step(host), JOBS)
        assert job["training"]["tp"] == layout["tp"]
        assert len([record for record in caplog.records if "layout" in record.getMessage()]) == told


def test_jobs_are_told_side_by_side(tmp_path: Path) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, "a", world=1) as a, log_of(tmp_path, 0, "b/c", world=1) as b:
        train(a, 0, 1)
        train(b, 0, 1, 2)
        messages = step(host)
        told = [(m.job, row["iteration"]) for m in messages for row in rows([m], ITERATION_SUMMARIES)]
        assert sorted(told) == [("a", 0), ("b/c", 0), ("b/c", 1)]


def test_an_agent_that_starts_again_tells_on_after_the_last_iteration_that_was_closed(tmp_path: Path) -> None:
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1, 2)
        step(host_at(tmp_path))
        train(log, 3)
        again = host_at(tmp_path)
        messages = step(again)
        assert [s["iteration"] for s in rows(messages, ITERATION_SUMMARIES)] == [1, 2]
        assert len(rows(list(again.process(request())), COMM_OPS)) == 2


@pytest.mark.parametrize("safe", range(9))
def test_whenever_an_agent_ends_the_next_one_tells_what_is_not_safe(tmp_path: Path, safe: int) -> None:
    """Each message is safe once the next is asked for; the agent ends, however it ends, with one that is not."""
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1, 2)
    told = host_at(tmp_path).step()
    messages = list(islice(told, safe))
    next(told, None)
    del told
    messages += step(host_at(tmp_path))
    assert list(dict.fromkeys(s["iteration"] for s in rows(messages, ITERATION_SUMMARIES))) == [0, 1, 2]
    assert list(dict.fromkeys(row["iteration"] for row in rows(messages, COMM_OPS))) == [0, 1, 2]
    assert rows(messages, JOBS)[-1]["ended_ns"] is not None


def run(folder: Path, *iterations: int) -> None:
    """A run of two ranks from its beginning to its end."""
    with log_of(folder, 0, world=2) as zero, log_of(folder, 1, world=2) as one:
        for iteration in iterations:
            train(zero, iteration)
            train(one, iteration)


def kept_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (folder / "kept").rglob("*") if path.is_file()}


def test_runs_under_the_name_of_one_that_is_kept_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They ran while the agent was away."""
    run(tmp_path, 0, 1, 2)
    assert rows(step(host_at(tmp_path)), JOBS)
    kept = kept_files(tmp_path)
    run(tmp_path, 0, 1)
    run(tmp_path, *range(6))
    host = host_at(tmp_path)
    assert [*step(host), *step(host)] == []
    assert host.ended
    [told] = warnings(caplog)
    assert "begins with iteration 0, but this job has ended its iteration 2, and all of this run is passed over" in told
    assert kept_files(tmp_path) == kept
    assert list(folders(tmp_path / "rings")) == []


def test_of_two_runs_under_one_name_the_first_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No agent ran until both were over."""
    run(tmp_path, 0, 1, 2)
    run(tmp_path, *range(6))
    host = host_at(tmp_path)
    told = rows(step(host), ITERATION_SUMMARIES)
    assert [(s["rank"], s["iteration"], s["operators"]) for s in told] == [
        (rank, iteration, 2) for iteration in range(3) for rank in (0, 1)
    ]
    assert [s["last"] for s in told[-2:]] == [True, True]
    assert host.ended
    assert len(warnings(caplog)) == 1
    assert list(folders(tmp_path / "rings")) == []


def test_a_run_that_follows_one_of_its_name_changes_nothing_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = host_at(tmp_path)
    run(tmp_path, 0, 1, 2)
    step(host)
    figures, kept, answers = host.jobs, kept_files(tmp_path), list(host.process(request()))
    assert len(answers) == 1
    with log_of(tmp_path, 0, world=1) as another:
        assert step(host) == []
        train(another, 0, 1)
        assert [*step(host), *step(host)] == []
        train(another, 2, 3, 4)
        assert step(host) == []
        assert not host.ended
        assert [answer.value for answer in host.process(request())] == [answer.value for answer in answers]
    assert step(host) == []
    assert (host.ended, host.jobs, kept_files(tmp_path)) == (True, figures, kept)
    assert len(warnings(caplog)) == 1
    assert list(folders(tmp_path / "rings")) == []


def test_a_job_is_over_though_another_run_bears_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1, 2)
        step(host)
    with log_of(tmp_path, 0, world=1) as another:
        train(another, 0, 1, 2, 3, 4)
        messages = step(host)
        assert [(s["iteration"], s["last"]) for s in rows(messages, ITERATION_SUMMARIES)] == [(2, True)]
        assert rows(messages, JOBS)[-1]["ended_ns"] is not None
        assert len(list(folders(tmp_path / "rings"))) == 1
        train(another, 5)
        assert step(host) == []
    step(host)
    assert host.ended
    assert len(warnings(caplog)) == 1
    assert list(folders(tmp_path / "rings")) == []


def test_a_job_that_goes_on_after_all_of_its_processes_ended_is_told_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    host = host_at(tmp_path)
    run(tmp_path, 0, 1, 2)
    step(host)
    run(tmp_path, 3, 4)
    assert [s["iteration"] for s in rows(step(host), ITERATION_SUMMARIES) if s["rank"] == 0] == [2, 3, 4]
    run(tmp_path, 4, 5)
    assert [s["iteration"] for s in rows(step(host), ITERATION_SUMMARIES) if s["rank"] == 0] == [4, 5]
    [told] = warnings(caplog)
    assert "begins with iteration 4, but this job has ended its iteration 4, and what comes up to that is" in told


def test_what_an_ended_job_left_is_let_go_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0)
    step(host)
    assert len(list(host.process(request()))) == 1
    monkeypatch.setattr(live_job, "ANSWERED_FOR_S", -1.0)
    step(host)
    assert list(host.process(request())) == []
    assert list((tmp_path / "kept").iterdir()) == []


def test_what_an_agent_before_left_is_let_go(tmp_path: Path) -> None:
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        step(host_at(tmp_path))
        for name in ("job", "old"):
            (tmp_path / "kept" / name).mkdir(exist_ok=True)
            file = tmp_path / "kept" / name / "0.frames"
            file.touch()
            for path in file.parent.iterdir():
                os.utime(path, (time.time() - 10**5,) * 2)
        step(host_at(tmp_path))
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["job"]


@pytest.mark.parametrize("name", [".", "..", "../..", "/etc", "a/b", "\n"])
def test_a_job_is_kept_within_the_agents_folder_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, job=name, world=1) as log:
        train(log, 0, 1)
        step(host)
        [kept] = (tmp_path / "kept").iterdir()
        assert unquote(kept.name) == name
        assert set(tmp_path.iterdir()) == {tmp_path / "rings", tmp_path / "kept"}
    monkeypatch.setattr(live_job, "ANSWERED_FOR_S", -1.0)
    step(host)
    step(host)
    assert list((tmp_path / "kept").iterdir()) == []
    assert set(tmp_path.iterdir()) == {tmp_path / "rings", tmp_path / "kept"}


def test_a_job_whose_name_is_endless_is_told_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, job="x" * 5000, world=1) as endless, log_of(tmp_path, 0, world=1) as log:
        for each in (endless, log):
            train(each, 0, 1)
        messages = [*step(host), *step(host)]
    assert {message.job for message in messages if message.topic == ITERATION_SUMMARIES.name} == {"job"}
    [told] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "a job's name takes 5000 bytes, at most 255 can be kept" in told


def test_what_cannot_be_read_is_told_once_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = host_at(tmp_path)
    (tmp_path / "rings" / "0-bad").mkdir(parents=True)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        process = next(folder for folder in folders(tmp_path / "rings") if folder.name != "0-bad")
        (process / "ring-9").write_bytes(b"no ring")
        messages = [*step(host), *step(host)]
        assert [s["iteration"] for s in rows(messages, ITERATION_SUMMARIES)] == [0]
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(told) == 2
    assert told[0].startswith(f"the training process that logs in {tmp_path / 'rings' / '0-bad'} is passed over: ")
    assert "ring-9" in told[1]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_pipes_among_the_rings_hold_no_agent_up(tmp_path: Path) -> None:
    for rank, name in enumerate(("registration.json", "ring-9")):
        with log_of(tmp_path, rank, job=f"job-{name}", world=1):
            pass
        process = next(folder for folder in folders(tmp_path / "rings") if folder.name.startswith(f"{rank}-"))
        (process / name).unlink(missing_ok=True)
        os.mkfifo(process / name)
    code = (
        "import sys; from pathlib import Path; from tests.producers.live.test_host import host_at, step\n"
        "host = host_at(Path(sys.argv[1])); step(host), step(host)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True, timeout=60
    ).stderr
    assert "registration.json is no regular file" in told
    assert "ring-9 is no ring" in told


def test_what_another_user_put_among_the_rings_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log, monkeypatch.context() as other:
        train(log, 0, 1)
        other.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert [*step(host), *step(host)] == []
        [told] = warnings(caplog)
        assert "is another user's" in told
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # as root the agent reads them all
    with log_of(tmp_path, 0, job="second", world=1) as log:
        train(log, 0, 1)
        assert [s["iteration"] for s in rows(step(host), ITERATION_SUMMARIES)] == [0]


@pytest.mark.parametrize("begun", [False, True])
def test_a_process_whose_lock_may_not_be_read_ends_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, begun: bool
) -> None:
    opened = os.open

    def refused(path: Any, *given: Any, **named: Any) -> int:
        if Path(path).parent == shut and Path(path).name == "alive":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *given, **named)

    host = host_at(tmp_path)
    with log_of(tmp_path, 0, job="shut", world=1), log_of(tmp_path, 0, world=1) as log:
        shut = next(at for at in folders(tmp_path / "rings") if Registration.read(at).job == "shut")
        train(log, 0)
        if begun:
            step(host)
        monkeypatch.setattr(os, "open", refused)
        train(log, 1)
        told = [*step(host), *step(host)]
        assert {s["iteration"] for s in rows(told, ITERATION_SUMMARIES)} == {0}
    assert [str(shut / "alive") in told for told in warnings(caplog)] == [True]


def test_what_an_agent_keeps_is_for_its_user_alone(tmp_path: Path) -> None:
    host = Host(tmp_path / "rings", tmp_path / "agent" / "jobs", 1 << 24, nobody, lambda job: job.ranks[:1], name="h0")
    before = os.umask(0)
    try:
        with log_of(tmp_path, 0, world=1) as log:
            train(log, 0, 1)
            spool = Spool(tmp_path / "agent" / "spool", 1 << 20)
            for message in host.step():
                spool.append(message)
            spool.delivered(0)
    finally:
        os.umask(before)
    made = [tmp_path / "agent", *(tmp_path / "agent").rglob("*")]
    assert {path.name for path in made} >= {"agent", "jobs", "job", "spool", "delivered"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}


def test_operators_of_which_nothing_is_known_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        step(host)
        train(log, 2)
        log.end(log.begin("unheard-of", "barrier"))
        [process] = folders(tmp_path / "rings")
        (process / "registration.json").write_text("{}")
        train(log, 3)
        summaries = rows(step(host), ITERATION_SUMMARIES)
        assert [(s["iteration"], s["operators"]) for s in summaries] == [(1, 2), (2, 2)]
    assert "is no registration" in caplog.text


def test_processes_that_died_before_they_logged_are_not_awaited(tmp_path: Path) -> None:
    host = host_at(tmp_path)
    log_of(tmp_path, 0, world=1).close()
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        assert [s["iteration"] for s in rows(step(host), ITERATION_SUMMARIES)] == [0]


def test_a_job_that_ended_before_it_logged_is_let_go(tmp_path: Path) -> None:
    host = host_at(tmp_path)
    for start in range(3):
        log_of(tmp_path, 0, job=f"job.{start}", world=1).close()
        assert step(host) == []
    assert host.ended
    assert list(folders(tmp_path / "rings")) == []


def test_a_job_that_nobody_described_is_let_go_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=4) as log:
        train(log, 0, 1, 2)
        monkeypatch.setattr(live_job, "ANSWERED_FOR_S", -1.0)
        step(host)
        assert not host.ended
    monkeypatch.setattr(live_job, "ANSWERED_FOR_S", 3600.0)
    step(host)
    assert not host.ended
    monkeypatch.setattr(live_job, "ANSWERED_FOR_S", -1.0)
    step(host)
    assert "nobody has described it" in caplog.text
    assert list(folders(tmp_path / "rings")) == []
    step(host)
    assert list(host.jobs) == []


def test_a_file_among_the_kept_jobs_ends_no_agent(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "note.txt").write_text("mine")
    assert step(host_at(tmp_path)) == []


@pytest.mark.parametrize("tail", [1_000_000_000, -1_000_000, 1 << 62])
def test_a_tail_that_was_written_over_ends_no_agent(tmp_path: Path, tail: int) -> None:
    host = host_at(tmp_path)
    with log_of(tmp_path, 0, world=1) as log:
        train(log, 0, 1)
        assert step(host)
        for ring in (tmp_path / "rings").glob("*/ring-*"):
            with ring.open("r+b") as file:
                file.seek(TAIL_AT)
                file.write(tail.to_bytes(8, "little", signed=True))
        train(log, 2, 3)
        assert [s["iteration"] for s in rows(step(host), ITERATION_SUMMARIES)]
