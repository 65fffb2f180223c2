"""What is chDB's own: one folder a process, one process a folder."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from schemas.errors import StoreError
from sinks.clickhouse.chdb import ChdbStore

OTHER_PROCESS = """
import sys
from pathlib import Path
from sinks.clickhouse.chdb import ChdbStore
store = ChdbStore(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""

AT_ONCE = """
import sys
from pathlib import Path
import chdb
from schemas.errors import StoreError
from sinks.clickhouse.chdb import ChdbStore
print("ready", flush=True)
sys.stdin.readline()
try:
    store = ChdbStore(Path(sys.argv[1]))
    print("open", flush=True)
except StoreError as error:
    print(error, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("other", ["chdb", "another"])
def test_a_process_opens_one_folder(chdb: ChdbStore, tmp_path: Path, other: str) -> None:
    with pytest.raises(StoreError, match="one folder a process; pass that store on"):
        ChdbStore(tmp_path / other)
    assert chdb.query("SELECT 1 AS one").to_pylist() == [{"one": 1}]


def test_a_closed_folder_is_opened_again_with_what_it_holds(tmp_path: Path) -> None:
    for number in range(3):
        store = ChdbStore(tmp_path / "kept")
        store.execute("CREATE TABLE IF NOT EXISTS kept (n Int32) ENGINE = MergeTree ORDER BY n")
        store.execute("INSERT INTO kept SELECT {n:Int32}", {"n": number})
        assert store.query("SELECT n FROM kept ORDER BY n").column("n").to_pylist() == list(range(number + 1))
        store.close()
        with pytest.raises(StoreError, match="the store is closed"):
            store.query("SELECT 1")


def test_a_folder_that_another_process_holds_is_refused_until_it_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "held")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=r"process \d+ holds it"):
            ChdbStore(tmp_path / "held")
        process.kill()
    store = ChdbStore(tmp_path / "held")
    store.close()


def test_one_of_the_processes_that_open_a_folder_at_once_has_it(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", AT_ONCE, str(tmp_path / "new")], subprocess.PIPE
    with ExitStack() as running:
        begun = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
        processes = [running.enter_context(process) for process in begun]
        assert [process.stdout.readline() for process in processes if process.stdout] == ["ready\n"] * 4
        for process in processes:
            print("go", file=process.stdin, flush=True)
        told = [process.stdout.readline() for process in processes if process.stdout]
        ends = [process.communicate() for process in processes]
    assert sorted("holds it" in line for line in told) == [False, True, True, True]
    assert told.count("open\n") == 1
    assert ends == [("", "")] * 4  # the engine has nothing to tell


@pytest.mark.parametrize("denied", ["kept", "kept/status"])
def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    folder, access = tmp_path / "kept", os.access
    folder.mkdir()
    (folder / "status").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / denied and access(path, mode))
    with pytest.raises(StoreError, match=r"/kept: it cannot be written, .*; give a folder that can be made or written"):
        ChdbStore(folder)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGSEGV, -signal.SIGSEGV)])
def test_the_process_keeps_its_own_signal_handlers(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "signalled")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.send_signal(sent)
        assert process.wait() == code
        assert process.stderr is not None
        assert process.stderr.read() == ""  # nobody else's crash report


@pytest.mark.parametrize("sql", ["SELECT 1 FORMAT JSON", "SELECT toUInt32(1); SELECT 2"])
def test_an_answer_that_is_no_table_is_a_store_error(chdb: ChdbStore, sql: str) -> None:
    with pytest.raises(StoreError, match="ask one question, without FORMAT"):
        chdb.query(sql)


def test_what_is_no_select_may_answer_with_numbers(chdb: ChdbStore) -> None:
    assert chdb.query("SHOW PROCESSLIST").num_rows == 1


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=rf"chDB folder .*/{name}: Not a directory; give a folder that can be made"):
        ChdbStore(tmp_path / name)
