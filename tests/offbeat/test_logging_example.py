"""The torch.distributed example of docs/logging.md, run with a module that stands in for torch."""

import functools
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from offbeat.operator_log import OperatorLog
from producers.live.rank_log import RankLog
from producers.live.registration import Group, folders
from tests.offbeat.command_line import ROOT

EXAMPLE = (ROOT / "docs" / "logging.md").read_text("utf-8").partition("```python\n")[2].partition("```")[0]


GPU = SimpleNamespace(type="cuda")


class ProcessGroup:
    def __init__(self, name: str, desc: str, ranks: list[int], backend: str) -> None:
        self.group_name, self.group_desc, self.ranks, self.backend = name, desc, ranks, backend


class Tensor:
    def __init__(self, nbytes: int, device: str = "cpu") -> None:
        self.nbytes, self.device = nbytes, SimpleNamespace(type=device)


class Cuda:
    """torch.cuda, as far as the example uses it: nothing in it waits.

    Once a call is on the stream, what is recorded there after it passes when ``finish`` says so. Other streams are
    free, unless all share a queue.
    """

    def __init__(self) -> None:
        self.capturing = self.shared_queue = self.busy = False
        self.recorded: list[Event] = []

    def finish(self) -> tuple[int, int]:
        """What is queued passes now: after the first of these times, and before the second."""
        before = time.time_ns()
        self.busy = False
        for event in self.recorded:
            event.passed_ns = event.passed_ns or time.time_ns()
        return before, time.time_ns()

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def Stream(self) -> str:  # noqa: N802
        return "another"

    def Event(self, *, enable_timing: bool) -> "Event":  # noqa: N802
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.passed_ns = cuda, 0

    def record(self, stream: str | None) -> None:
        self.cuda.recorded.append(self)
        if not (self.cuda.busy and (stream is None or self.cuda.shared_queue)):
            self.passed_ns = time.time_ns()

    def query(self) -> bool:
        return self.passed_ns > 0

    def elapsed_time(self, later: "Event") -> float:
        assert self.passed_ns
        assert later.passed_ns
        return (later.passed_ns - self.passed_ns) / 1e6


@pytest.fixture
def cuda() -> Cuda:
    return Cuda()


@pytest.fixture
def dist(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch.distributed, as far as the example uses it; calls are noted and give a handle where torch gives one."""
    dist, c10d = ModuleType("torch.distributed"), ModuleType("torch.distributed.distributed_c10d")
    c10d._world = SimpleNamespace(pg_coalesce_state={})  # type: ignore[attr-defined]
    called: list[tuple[str, Any]] = []

    def function(name: str) -> Any:
        def decorated() -> None:
            """As torch's functions, each is a wrapper of another one."""

        @functools.wraps(decorated)
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "send":  # as in torch
                c10d.isend(*args, **kwargs)
            called.append((name, (args, kwargs)))
            cuda.busy = cuda.busy or any(getattr(given, "device", None) == GPU for given in args)
            if name == "recv":
                return kwargs["src"]
            return "work" if name.startswith("i") or kwargs.get("async_op") else None

        return call

    for name in re.findall(r'^    "(\w+)": "', EXAMPLE, re.MULTILINE):
        setattr(c10d, name, function(name))
        setattr(dist, name, getattr(c10d, name))
    world = ProcessGroup("0", "default_pg", [0, 1, 2, 3], "gloo")
    own: dict[str, Any] = {
        "distributed_c10d": c10d,
        "ProcessGroup": ProcessGroup,
        "GroupMember": SimpleNamespace(NON_GROUP_MEMBER=object()),
        "group": SimpleNamespace(WORLD=world),
        "get_process_group_ranks": lambda group: group.ranks,
        "get_global_rank": lambda group, rank: group.ranks[rank],
        "get_backend": lambda group: group.backend,
        "called": called,
    }
    for name, value in own.items():
        setattr(dist, name, value)
    torch = ModuleType("torch")
    torch.distributed, torch.cuda, torch.Tensor = dist, cuda, Tensor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)
    return dist


@pytest.fixture
def layers(dist: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that was imported before and keeps a call under a name of its own."""
    layers: Any = ModuleType("layers")
    layers.gather = dist.all_gather_into_tensor
    monkeypatch.setitem(sys.modules, "layers", layers)
    return layers


@pytest.fixture
def example(dist: Any) -> dict[str, Any]:
    """What the example defines."""
    example: dict[str, Any] = {}
    exec(EXAMPLE, example)  # it is ours
    return example


@pytest.fixture
def log(tmp_path: Path, example: dict[str, Any]) -> Iterator[OperatorLog]:
    """A log that is wrapped around the calls, in its first iteration."""
    with OperatorLog(rank=1, job="j", folder=tmp_path) as log:
        example["wrap"](log)
        log.iteration(0)
        yield log


def rows(folder: Path) -> list[dict[str, Any]]:
    [process] = folders(folder)
    rank_log = RankLog(process)
    rank_log.look()
    found: list[dict[str, Any]] = rank_log.rows(0).to_pylist()
    return found


def test_calls_are_logged_and_go_through(dist: Any, log: OperatorLog, tmp_path: Path) -> None:
    tensor = Tensor(64)
    assert dist.all_reduce(tensor) is None
    assert dist.reduce_scatter_tensor(Tensor(8), Tensor(32)) is None
    assert dist.all_gather([Tensor(16), Tensor(16)], Tensor(16)) is None
    assert dist.barrier() is None
    assert dist.called[0] == ("all_reduce", ((tensor,), {}))
    assert [name for name, _ in dist.called] == ["all_reduce", "reduce_scatter_tensor", "all_gather", "barrier"]
    assert [(row["op"], row["bytes"]) for row in rows(tmp_path)] == [
        ("all_reduce", 64),
        ("reduce_scatter", 32),
        ("all_gather", 32),
        ("barrier", None),
    ]
    assert all(row["end_ns"] is not None for row in rows(tmp_path))
    assert [row["communicator"] for row in rows(tmp_path)] == ["0"] * 4


def test_an_end_that_is_not_known_is_not_made_up(dist: Any, log: OperatorLog, tmp_path: Path) -> None:
    elsewhere = ProcessGroup("7", "TENSOR", [1, 3], "xccl")
    assert dist.all_reduce(Tensor(64, "xpu"), group=elsewhere) is None
    assert dist.all_reduce(Tensor(64), async_op=True) == "work"
    dist.distributed_c10d._world.pg_coalesce_state[elsewhere] = []
    assert dist.all_reduce(Tensor(64), group=elsewhere) is None
    assert [row["end_ns"] for row in rows(tmp_path)] == [None, None, None]
    [process] = folders(tmp_path)
    assert RankLog(process).registration.groups[0] == Group("7", (1, 3), "TENSOR")


def test_on_a_gpu_a_call_ends_when_its_event_has_passed(
    dist: Any, cuda: Cuda, log: OperatorLog, tmp_path: Path
) -> None:
    called_ns = time.time_ns()
    assert dist.all_reduce(Tensor(64, "cuda")) is None
    started_ns = time.time_ns()
    assert dist.all_gather([Tensor(16, "cuda"), Tensor(16, "cuda")], Tensor(16, "cuda")) is None
    assert [row["end_ns"] for row in rows(tmp_path)] == [None, None]
    time.sleep(0.01)
    ended = cuda.finish()
    dist.all_reduce(Tensor(64, "cuda"))
    first, second, third = rows(tmp_path)
    assert called_ns <= first["call_ns"] <= first["start_ns"] <= started_ns
    assert near(first["end_ns"], ended)
    assert near(second["start_ns"], ended), "it waited for the first"
    assert near(second["end_ns"], ended)
    assert third["end_ns"] is None


def test_a_mark_that_had_to_wait_shifts_no_end(
    dist: Any, cuda: Cuda, example: dict[str, Any], log: OperatorLog, tmp_path: Path
) -> None:
    example["Gpu"].EVERY_NS = 0
    cuda.shared_queue = True
    dist.all_reduce(Tensor(64, "cuda"))
    dist.all_reduce(Tensor(64, "cuda"))  # its mark waits for the first
    time.sleep(0.05)
    cuda.finish()
    dist.all_reduce(Tensor(64, "cuda"))
    ended = cuda.finish()
    dist.all_reduce(Tensor(64, "cuda"))
    assert near(rows(tmp_path)[2]["end_ns"], ended)


def near(at_ns: int, between: tuple[int, int]) -> bool:
    """Within 0.1 ms, which is 1 s of drift."""
    return between[0] - 100_000 <= at_ns <= between[1] + 100_000


def test_in_a_cuda_graph_nothing_is_recorded(dist: Any, cuda: Cuda, log: OperatorLog, tmp_path: Path) -> None:
    cuda.capturing = True
    dist.all_reduce(Tensor(64, "cuda"))
    assert cuda.recorded == []
    assert [row["end_ns"] for row in rows(tmp_path)] == [None]


def test_sends_and_receives_know_their_peer(dist: Any, log: OperatorLog, tmp_path: Path) -> None:
    pair = ProcessGroup("9", "PIPELINE", [1, 3], "gloo")
    dist.send(Tensor(4), 3, pair)
    dist.recv(Tensor(4), src=2)
    dist.distributed_c10d.isend(Tensor(4), group=pair, group_dst=1)  # as batch_isend_irecv calls it
    dist.irecv(Tensor(4))
    found = [(row["op"], row["peer"], row["p2p_seq"], row["end_ns"] is None) for row in rows(tmp_path)]
    assert found == [("send", 3, 0, False), ("recv", 2, 0, False), ("send", 3, 1, True), ("recv", None, None, True)]


def test_groups_of_others_are_left_alone(dist: Any, log: OperatorLog, tmp_path: Path) -> None:
    dist.all_reduce(Tensor(4), group=dist.GroupMember.NON_GROUP_MEMBER)
    assert [name for name, _ in dist.called] == ["all_reduce"]
    assert rows(tmp_path) == []


def test_a_call_that_fails_has_no_end_and_the_next_is_logged(dist: Any, log: OperatorLog, tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        dist.all_reduce(Tensor(4), group=ProcessGroup("8", "", [1], "gloo"), async_op=Failing())
    dist.all_reduce(Tensor(4))
    assert [row["end_ns"] is None for row in rows(tmp_path)] == [True, False]


class Failing:
    def __bool__(self) -> bool:
        raise AttributeError


def test_a_call_that_a_module_keeps_under_another_name_is_logged(
    dist: Any, layers: Any, log: OperatorLog, tmp_path: Path
) -> None:
    layers.gather(Tensor(16), Tensor(8))
    assert [name for name, _ in dist.called] == ["all_gather_into_tensor"]
    assert [(row["op"], row["bytes"]) for row in rows(tmp_path)] == [("all_gather", 16)]


def test_wrapping_twice_logs_once(dist: Any, log: OperatorLog, tmp_path: Path) -> None:
    example: dict[str, Any] = {}
    exec(EXAMPLE, example)
    example["wrap"](log)
    dist.all_reduce(Tensor(64))
    assert len(rows(tmp_path)) == 1
