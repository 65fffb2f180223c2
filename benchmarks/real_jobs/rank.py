"""One rank of a job over Gloo: it computes, communicates through torch.distributed, and logs every operator.

A process of its own (``rank_processes.py``), with the log that any training loop may keep
(``offbeat/operator_log.py``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.network import LINE, address
from benchmarks.rank_processes import await_go, told_plan
from benchmarks.real_jobs.plan import Plan
from benchmarks.real_jobs.schedule import Await, Collective, Compute, Exchange, Message, Step, iteration
from offbeat.operator_log import OperatorLog, Ticket

_PORT = 29_500
_OTHER_WORK_S = 0.02
_JITTER = 0.01


class Rank:
    """A rank at work."""

    def __init__(self, plan: Plan, rank: int, log: OperatorLog) -> None:
        self._plan, self._rank, self._log = plan, rank, log
        self._iteration = -1
        self._drawn = Random(f"{plan.name} {plan.seed} {rank}")
        self._groups: dict[str, tuple[str, Any]] = {}
        self._beside: list[tuple[Any, Ticket]] = []
        made = {
            name: dist.new_group(list(members)) for name, members in plan.communicators.items()
        }  # by all ranks alike
        for kind, name in plan.of_rank(rank).items():
            self._groups[kind] = name, made[name]
            log.communicator(name, plan.communicators[name])

    def run(self) -> None:
        """All iterations, with the fault where this is its rank."""
        for number in range(self._plan.iterations):
            self._iteration = number
            self._log.iteration(number)
            self._throttle()
            for step in iteration(self._plan, self._rank):
                self._take(step)

    def _take(self, step: Step) -> None:
        match step:
            case Compute():
                self._compute(step)
            case Collective():
                self._communicate(step)
            case Exchange():
                self._exchange(step)
            case Await():
                for work, ticket in self._beside:
                    work.wait()
                    self._log.end(ticket)
                self._beside.clear()

    def _compute(self, step: Compute) -> None:
        fault, seconds = self._plan.fault, step.seconds
        if self._drawn.random() < self._plan.other_work:
            _keep_busy(self._drawn.expovariate(1 / _OTHER_WORK_S))
        if fault:
            seconds *= fault.slowdown(self._rank, step.phase, self._iteration)
        time.sleep(max(0.0, seconds * self._drawn.gauss(1, _JITTER)))

    def _throttle(self) -> None:
        """Shape the rank's line from the fault's first iteration on, until its last one is over."""
        fault = self._plan.fault
        if fault is None or fault.nic_mbps is None or fault.rank != self._rank:
            return
        if self._iteration == fault.iterations[0]:
            shape = ["rate", f"{fault.nic_mbps}mbit", "burst", "32kb", "latency", "400ms"]
            subprocess.run(["tc", "qdisc", "add", "dev", LINE, "root", "tbf", *shape], check=True)
        elif self._iteration == fault.iterations[-1] + 1:
            subprocess.run(["tc", "qdisc", "del", "dev", LINE, "root"], check=True)

    def _communicate(self, step: Collective) -> None:
        name, group = self._groups[step.kind]
        call = _prepared(step, group)
        ticket = self._log.begin(name, step.op, 4 * step.elements, phase=step.phase, microbatch=step.microbatch)
        work = call()
        if step.posted:
            self._beside.append((work, ticket))
        else:
            work.wait()
            self._log.end(ticket)

    def _exchange(self, step: Exchange) -> None:
        """Both are posted at once and waited for, as Megatron's batched send and receive."""
        posted = []
        for message, op, post in ((step.send, "send", dist.isend), (step.receive, "recv", dist.irecv)):
            if message:
                posted.append((op, *self._post(message, op, post)))
        for op, work, ticket in reversed(posted):
            if op == "send" and self._plan.late_waits:
                self._beside.append((work, ticket))
            else:
                work.wait()
                self._log.end(ticket)

    def _post(self, message: Message, op: str, post: Callable[..., Any]) -> tuple[Any, Ticket]:
        buffer = torch.ones(self._plan.activation)
        ticket = self._log.begin(
            self._groups["pipeline"][0],
            op,
            buffer.nbytes,
            peer=message.peer,
            phase=message.phase,
            microbatch=message.microbatch,
        )
        return post(buffer, message.peer), ticket


def _prepared(step: Collective, group: Any) -> Callable[[], Any]:
    """The call, with its buffers; it returns what is to be waited for."""
    whole, share = torch.ones(step.elements), torch.ones(step.elements // dist.get_world_size(group))
    match step.op:
        case "all_reduce":
            return lambda: dist.all_reduce(whole, group=group, async_op=True)
        case "all_gather":
            shares = list(whole.split(len(share)))
            return lambda: dist.all_gather(shares, share, group=group, async_op=True)
        case "reduce_scatter":
            shares = list(whole.split(len(share)))
            return lambda: dist.reduce_scatter(share, shares, group=group, async_op=True)
        case "all_to_all":
            received = torch.empty_like(whole)
            return lambda: dist.all_to_all_single(received, whole, group=group, async_op=True)
        case _:
            raise ValueError(f"{step.op} is in no schedule")


def _keep_busy(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def main() -> None:
    """Run a plan as one of its ranks; the log goes into the folder that the second argument names."""
    line, rank = told_plan()
    plan, rings = Plan.from_json(line), Path(sys.argv[2])
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = LINE
    await_go()
    store = dist.TCPStore(address(0), _PORT, plan.ranks, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=plan.ranks)
    log = OperatorLog(rank=rank, job=plan.name, world=plan.ranks, host=f"host{rank}", gpu=0, folder=rings)
    with log:
        Rank(plan, rank, log).run()
    dist.barrier()  # nobody leaves before all are through
    print(log.dropped, flush=True)


if __name__ == "__main__":
    main()
