"""Which parallelism a communicator serves, told by what is called on it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from diagnosis.traffic.calls import Calls
from diagnosis.traffic.parallelism import Parallelisms
from tests.diagnosis.traffic.made_calls import Caller, calls
from tests.diagnosis.traffic.made_epochs import MB, MS

LAYERS = 4


class Training:
    """Calls of a job in Megatron rank order: tp fastest, then cp, dp, pp; a host has ``per_host`` ranks."""

    def __init__(self, tp: int = 1, cp: int = 1, dp: int = 1, pp: int = 1, ep: int = 1, per_host: int = 8) -> None:
        self.shape = (pp, dp, cp, tp)
        self.ep, self.per_host = ep, per_host
        ranks = np.arange(tp * cp * dp * pp).reshape(self.shape)
        self.groups: dict[str, dict[int, str]] = {}
        self.members: dict[str, tuple[int, ...]] = {}
        for kind, axis in (("pp", 0), ("dp", 1), ("cp", 2), ("tp", 3)):
            for at, group in enumerate(np.moveaxis(ranks, axis, -1).reshape(-1, ranks.shape[axis])):
                self._add(kind, at, tuple(group.tolist()))
        blocks = np.moveaxis(ranks, 1, -1).reshape(-1, dp)
        for at, group in enumerate(blocks.reshape(-1, ep)):
            self._add("ep", at, tuple(group.tolist()))

    def _add(self, kind: str, at: int, group: tuple[int, ...]) -> None:
        if len(group) > 1:
            name = f"{hash((kind, at)) & 0xFFFFFFFF:x}-{kind}{at}"
            self.members[name] = group
            self.groups.setdefault(kind, {}).update(dict.fromkeys(group, name))

    def expected(self) -> dict[str, str]:
        return {name: name.split("-")[1][:2].replace("cp", "unknown") for name in self.members}

    @property
    def tree(self) -> Parallelisms:
        return Parallelisms(self.members, lambda one, other: one // self.per_host == other // self.per_host)

    def calls(self, microbatches: int = 4, context: str = "ring") -> Calls:
        random = np.random.default_rng(0)
        callers = [Caller(rank, self.members) for rank in range(int(np.prod(self.shape)))]
        for caller in callers:
            self._iteration(caller, microbatches, context, random)
        return calls(*callers)

    def _iteration(self, caller: Caller, microbatches: int, context: str, random: np.random.Generator) -> None:
        rank = caller.rank
        name = {kind: of.get(rank) for kind, of in self.groups.items()}
        line = name.get("pp")
        stages = self.members[line] if line else (rank,)
        stage, last = stages.index(rank), len(stages) - 1
        clock = itertools.count(stage * MS, 1000)
        ahead = min(last - stage, microbatches)
        for _ in range(ahead):
            self._receive(caller, name, stages, stage - 1, clock)
            self._layers(caller, name, context, random, clock)
            self._send(caller, name, stages, stage + 1, clock)
        for microbatch in range(ahead, microbatches):
            if microbatch == ahead:
                self._receive(caller, name, stages, stage - 1, clock)
            self._layers(caller, name, context, random, clock)
            self._exchange(caller, name, stages, stage + 1, clock)
            self._layers(caller, name, context, random, clock)
            if microbatch + 1 < microbatches:
                self._exchange(caller, name, stages, stage - 1, clock)
            else:
                self._send(caller, name, stages, stage - 1, clock)
        for _ in range(ahead):
            self._receive(caller, name, stages, stage + 1, clock)
            self._layers(caller, name, context, random, clock)
            self._send(caller, name, stages, stage - 1, clock)
        for op, size in (("reduce_scatter", 900 * MB), ("all_gather", 900 * MB), ("all_reduce", 8)):
            if name.get("dp"):
                caller.call(str(name["dp"]), op, size, next(clock))

    def _layers(
        self,
        caller: Caller,
        name: dict[str, str | None],
        context: str,
        random: np.random.Generator,
        clock: itertools.count[int],
    ) -> None:
        for _ in range(LAYERS):
            if tensor := name.get("tp"):
                for op in ("all_gather", "reduce_scatter", "all_gather", "reduce_scatter"):
                    caller.call(tensor, op, 20 * MB, next(clock))
            if around := name.get("cp"):
                group = self.members[around]
                at = group.index(caller.rank)
                if context == "ring":
                    now = next(clock)
                    caller.call(around, "send", 4 * MB, now, group[(at + 1) % len(group)], group=(now, now))
                    caller.call(around, "recv", 4 * MB, now, group[at - 1], group=(now, now))
                else:
                    caller.call(around, "all_gather", 4 * MB, next(clock))
            if experts := name.get("ep"):
                for _ in range(2):
                    sizes = {p: int(random.integers(1, 9)) * MB for p in self.members[experts] if p != caller.rank}
                    caller.exchange(experts, sizes, next(clock))

    def _send(
        self, caller: Caller, name: dict[str, str | None], stages: tuple[int, ...], to: int, clock: itertools.count[int]
    ) -> None:
        if 0 <= to < len(stages):
            caller.call(str(name["pp"]), "send", 8 * MB, next(clock), stages[to])

    def _receive(
        self,
        caller: Caller,
        name: dict[str, str | None],
        stages: tuple[int, ...],
        source: int,
        clock: itertools.count[int],
    ) -> None:
        if 0 <= source < len(stages):
            caller.call(str(name["pp"]), "recv", 8 * MB, next(clock), stages[source])

    def _exchange(
        self,
        caller: Caller,
        name: dict[str, str | None],
        stages: tuple[int, ...],
        other: int,
        clock: itertools.count[int],
    ) -> None:
        if 0 <= other < len(stages):
            caller.exchange(str(name["pp"]), {stages[other]: 8 * MB}, next(clock))


LAYOUTS = [
    dict(zip(("tp", "dp", "pp", "ep"), shape, strict=True))
    for shape in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 4), (1, 2, 4))
    if 1 < shape[0] * shape[1] * shape[2] <= 16 and shape[3] <= shape[1]
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_all_layouts_are_told(layout: dict[str, int]) -> None:
    training = Training(**layout, per_host=layout["tp"])
    assert training.tree.identify(training.calls()) == training.expected()


@pytest.mark.parametrize("layout", [{"tp": 2, "dp": 4, "pp": 2}, {"dp": 8, "ep": 4}, {"tp": 2, "pp": 4}], ids=str)
def test_each_host_tells_what_all_do(layout: dict[str, int]) -> None:
    training = Training(**layout, per_host=2)
    made, expected = training.calls(), training.expected()
    for first in range(0, 8, 2):
        own = made.take(np.isin(made.rank, (first, first + 1)))
        told = training.tree.identify(own)
        assert told == {name: expected[name] for name in told}
        assert set(told) == {name for name, ranks in training.members.items() if {first, first + 1} & set(ranks)}


@pytest.mark.parametrize("context", ["ring", "gather"])
@pytest.mark.parametrize(("tp", "cp"), [(2, 2), (2, 4), (4, 3)])
def test_context_parallelism_is_neither_data_nor_expert_parallelism(tp: int, cp: int, context: str) -> None:
    training = Training(tp=tp, cp=cp, dp=2, per_host=tp)
    assert training.tree.identify(training.calls(context=context)) == training.expected()


def apart(one: int, other: int) -> bool:
    return one == other


def alone(caller: Caller) -> dict[str, str]:
    """What one rank's calls show, each rank on a host of its own."""
    return dict(Parallelisms(caller.members, apart).identify(calls(caller)))


def test_several_iterations_are_told_as_one_is() -> None:
    """Data parallelism calls few operators an iteration, however many of them are looked at."""
    one = Caller(0, {"dp": (0, 8)})
    for i in range(100):
        one.call("dp", "all_reduce", 500 * MB, i)
    assert alone(one) == {"dp": "dp"}


def test_what_is_small_serves_none() -> None:
    one = Caller(0, {"loss": (0, 8)})
    for i in range(1000):
        one.call("loss", "all_reduce", 8, i)
    assert alone(one) == {"loss": "none"}


def test_an_all_to_all_serves_experts() -> None:
    one = Caller(0, {"ep": (0, 8)})
    one.call("ep", "all_to_all", 64 * MB, 5)
    assert alone(one) == {"ep": "ep"}


def test_an_interleaved_pipeline_is_one() -> None:
    """Several chunks a stage: the last stage sends to the first, and groups go both ways, but for the first ones."""
    members = {"stages": (0, 8, 16, 24)}
    for at, rank in enumerate(members["stages"]):
        one, ahead, behind = Caller(rank, members), members["stages"][(at + 1) % 4], members["stages"][at - 1]
        one.call("stages", "recv", 8 * MB, 0, behind)
        for forward in range(1, 4):
            one.call("stages", "send", 8 * MB, forward, ahead, group=(forward, forward))
            one.call("stages", "recv", 8 * MB, forward, behind, group=(forward, forward))
        for both in range(4, 20):
            one.exchange("stages", {ahead: 8 * MB, behind: 8 * MB}, both)
        assert alone(one) == {"stages": "pp"}


def test_what_is_broadcast_before_the_first_iteration_serves_none() -> None:
    one = Caller(0, {"all": (0, 8)})
    for i in range(20):
        one.call("all", "broadcast", 500 * MB, i)
    assert alone(one) == {"all": "none"}


def test_neighbours_that_exchange_all_at_once_are_no_pipeline() -> None:
    members = {"grid": (0, 1, 2, 3)}
    callers = [Caller(rank, members) for rank in range(4)]
    for caller in callers:
        for i in range(4):
            caller.exchange("grid", dict.fromkeys((caller.rank ^ 1, caller.rank ^ 2), 64 * MB), i)
    assert Parallelisms(members, apart).identify(calls(*callers)) == {"grid": "unknown"}
