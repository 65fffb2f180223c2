"""What agents keep, read beside them and after them: nothing is changed, and what is not whole is told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from offbeat.reading import Reading, read
from producers.importers import kept
from producers.importers.files import Limits
from producers.importers.job_of_rows import write_job_file
from producers.importers.recording import Recording, load, write
from producers.kept_folder import KeptFolder
from producers.simulation import Scenario, SimulatedRun, simulate
from schemas.errors import InputError
from tests.producers.importers import kept_log
from tests.producers.live.made import live_store, write_rank

RUN = simulate(Scenario(7, tp=2, pp=1, dp=2, layers=1, microbatches=1, iterations=8, gpus_per_host=2))
HOSTS = RUN.job.ranks_of_host
COMPARED = ["rank", "iteration", "communicator", "seq", "call_ns", "end_ns"]


@pytest.fixture
def collected(tmp_path: Path) -> Path:
    """The folders of both hosts as somebody copied them, each with its agent's ``jobs``; the first iterations gone."""
    for host, ranks in HOSTS.items():
        folder = tmp_path / "collected" / host / "offbeat-agent" / "jobs" / "sim%2F7"
        kept_log.write(folder, RUN.table, ranks, first=2)
        write_job_file(folder, RUN.job)
    return tmp_path / "collected"


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(table: pa.Table) -> list[dict[str, object]]:
    told: list[dict[str, object]] = table.select(COMPARED).to_pylist()
    return told


def test_the_folders_of_several_hosts_are_one_recording(collected: Path) -> None:
    before = files(collected)
    found = read([collected], Reading())
    assert rows(found.table) == [row for row in rows(RUN.table) if int(str(row["iteration"])) >= 2]
    assert (found.job.places, found.job.members, found.layout) == (RUN.job.places, RUN.job.members, RUN.job.layout)
    [told] = found.gone
    assert told.startswith("iterations 0-1 are no longer kept in ")
    assert told.endswith(" and 1 more")
    assert files(collected) == before


def test_what_is_gone_is_still_told_once_it_is_converted(collected: Path, tmp_path: Path) -> None:
    found = read([collected], Reading())
    write(found, tmp_path / "a.parquet")
    assert load([tmp_path / "a.parquet"]).gone == found.gone


def test_without_a_description_the_folder_names_the_job(collected: Path) -> None:
    for path in collected.rglob("job.json"):
        path.unlink()
    found = read([collected], Reading())
    assert found.job.job == "sim/7"
    assert (found.job.ranks, found.job.ranks_of_host) == (RUN.job.ranks, {})


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flipped])
def test_what_is_damaged_is_told_and_the_rest_is_read(collected: Path, damage: Callable[[Path], None]) -> None:
    [path, _] = sorted(collected.rglob("*.frames"))
    damage(path)
    found = read([collected], Reading())
    [told] = [line for line in found.gone if str(path) in line and "bytes" in line]
    assert "damaged, or are being written" in told
    assert 0 < found.table.num_rows < RUN.table.num_rows
    assert set(found.table.column("rank").to_pylist()) == set(RUN.job.ranks)


def test_of_many_faults_some_are_told_and_the_others_counted(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.frames").write_bytes(b"nonsense")
    kept_log.write(tmp_path / "kept", RUN.table)
    table = kept.KEPT.read(sorted(tmp_path.rglob("*.frames")), Limits())
    gone = json.loads(table.schema.metadata[b"offbeat"])["gone"]
    assert len(gone) == kept.MOST_TOLD + 1
    assert gone[-1] == "and 10 more places that cannot be read"


def test_logs_of_several_jobs_are_not_mixed(collected: Path) -> None:
    other = collected / "h0" / "other"
    kept_log.write(other, RUN.table)
    with pytest.raises(InputError, match=r"holds logs of several jobs \(other, sim-7\); name the folders of one"):
        read([collected], Reading())
    (one, _) = sorted(path.parent for path in collected.rglob("job.json"))
    found = read([one, collected], Reading())  # what else is named says which
    assert (found.job.job, set(found.table.column("rank").to_pylist())) == (RUN.job.job, set(RUN.job.ranks))
    (other / "job.json").write_text(json.dumps({**RUN.job.to_row(), "job": "other"}))
    with pytest.raises(InputError, match="beside the logs of others"):
        read([other, next(path for path in collected.rglob("sim%2F7"))], Reading())


def test_of_folders_that_hold_one_other_job_alone_nothing_is_read(collected: Path, tmp_path: Path) -> None:
    (one, _) = sorted(path.parent for path in collected.rglob("job.json"))
    kept_log.write(tmp_path / "rings" / "other", RUN.table)
    assert {file.parent for file in read([one, tmp_path / "rings"], Reading()).files} == {one}
    assert {file.parent for file in read([tmp_path / "rings"], Reading()).files} == {tmp_path / "rings" / "other"}


def test_a_pipe_holds_nobody_up(collected: Path) -> None:
    [folder, _] = sorted(path.parent for path in collected.rglob("job.json"))
    os.mkfifo(folder / "1.frames")
    os.mkfifo(collected / "2.frames")
    assert read([collected], Reading()).job.ranks == RUN.job.ranks
    assert list(KeptFolder([folder]).rows(3, [0]))


def test_what_waits_for_kafka_is_no_log(tmp_path: Path) -> None:
    from producers.spool import Spool
    from schemas.message import Message

    Spool(tmp_path / "spool", 1 << 20).append(Message("t", "k", b"v"))
    [path] = (tmp_path / "spool").glob("*.frames")
    assert not kept.KEPT.matches(path)


def test_the_rings_are_read_beside_what_was_closed(tmp_path: Path) -> None:
    """The agent has closed the first iterations; the others are in the rings of processes that live."""
    of_rank = [[row for row in RUN.table.to_pylist() if row["rank"] == rank] for rank in RUN.job.ranks]
    presences = [
        write_rank(tmp_path / "rings", RUN.job, rank, [row for row in of if row["iteration"] >= 5])
        for rank, of in zip(RUN.job.ranks, of_rank, strict=True)
    ]
    early = RUN.table.filter(pa.compute.less(RUN.table.column("iteration"), 6))  # the fifth is in both
    kept_log.write(tmp_path / "jobs" / RUN.job.job, early)
    before = files(tmp_path / "rings")
    found = read([tmp_path / "jobs", tmp_path / "rings"], Reading())
    assert files(tmp_path / "rings") == before
    assert rows(found.table) == rows(RUN.table)
    assert found.duplicates == len([row for of in of_rank for row in of if row["iteration"] == 5])
    assert found.job.job == RUN.job.job
    for presence in presences:
        presence.leave()


def test_the_rings_alone_tell_of_the_job_as_its_processes_registered(tmp_path: Path) -> None:
    for rank in RUN.job.ranks[:2]:  # the others ran elsewhere
        of_rank = RUN.table.filter(pa.compute.equal(RUN.table.column("rank"), rank))
        write_rank(tmp_path, RUN.job, rank, of_rank.to_pylist()).leave()
    found = read([tmp_path], Reading())
    assert (found.job.job, found.job.ranks) == (RUN.job.job, RUN.job.ranks)
    assert found.job.members.items() <= RUN.job.members.items()
    assert found.table.num_rows == sum(rank in (0, 1) for rank in RUN.table.column("rank").to_pylist())
    (ring,) = tmp_path.glob("0-*/ring-0")
    ring.write_bytes(b"OFFBEAT1")
    [told] = read([tmp_path], Reading()).gone
    assert told == f"{ring} is no ring: it has 8 bytes"


def test_an_agent_goes_on_beside_it(tmp_path: Path) -> None:
    """What a live agent has closed is found by its description, and the agent finds all of it again."""
    run: SimulatedRun = RUN
    store = live_store(run.job, run.table, tmp_path)
    for _ in range(4):
        assert store.advance()
    found = load([tmp_path / "kept"])
    assert set(found.table.column("iteration").to_pylist()) == {0, 1, 2, 3}
    while store.advance():
        pass
    whole: Recording = load([tmp_path / "kept"])
    assert rows(whole.table) == rows(run.table)
