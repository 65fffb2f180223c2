"""Which faults there are, and in which order a seed brings them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.faults import (
    agents,
    bad_messages,
    broker,
    chdb_disk,
    clocks,
    jobs,
    kills,
    receiver,
    rings,
    store,
    workers,
)
from tests.faults.site import Site

Fault = Callable[[Site], None]


def faults(kill_count: int) -> dict[str, Fault]:
    """Every fault by its name."""
    return {
        "kills": partial(kills.kill_roles, kills=kill_count),
        "broker-restarts": broker.restart_broker,
        "broker-away": broker.lose_broker,
        "store-away": store.lose_store,
        "store-slow": store.slow_store,
        "store-errors": store.store_answers_errors,
        "receiver-away": receiver.lose_receiver,
        "receiver-slow": receiver.slow_receiver,
        "receiver-errors": receiver.receiver_answers_errors,
        "receiver-refuses": receiver.receiver_refuses_pages,
        "rebalance-storm": workers.storm,
        "workers-two-and-back": workers.scale,
        "producer-restarts": jobs.restart_producer,
        "job-returns": jobs.return_under_a_new_id,
        "jobs-at-once": jobs.run_two_jobs,
        "late-records": jobs.send_late_records,
        "clock-of-a-host": clocks.jump_on_a_host,
        "clocks-of-roles": clocks.jump_under_the_roles,
        "bad-messages": bad_messages.flood,
        "bad-messages-replayed": bad_messages.replay_after_a_fix,
        "bad-messages-too-many": bad_messages.too_many,
        "agent-killed": agents.kill_agent,
        "agents-disk-full": agents.fill_agents_disk,
        "rings-disk-full": rings.fill_rings_disk,
        "chdb-disk-full": chdb_disk.fill_chdb_disk,
    }


@dataclass(frozen=True)
class Step:
    """One fault of a plan; its moments are drawn from ``random``, the same whichever other faults are in the plan."""

    name: str
    befall: Fault
    random: Random


def plan(seed: int, *, kill_count: int = 50, only: Collection[str] = ()) -> Sequence[Step]:
    """The faults in the order of a seed; with ``only``, these alone. Raises ``ValueError`` for a name of none."""
    known = faults(kill_count)
    if unknown := sorted(set(only) - known.keys()):
        raise ValueError(f"there is no fault {unknown[0]!r}; known are {', '.join(known)}")
    names = list(known)
    Random(seed).shuffle(names)
    return [Step(name, known[name], Random(f"{seed}/{name}")) for name in names if not only or name in only]
