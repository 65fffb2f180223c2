"""Clocks that jump: that of a host that trains, and the wall clocks of the roles."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from offbeat.options import scenario
from producers.simulation import simulate, write
from tests.faults.site import Site
from tests.faults.skewed import Skew
from tests.integration.recordings import FAULTS, SCENARIO

_HOUR_S = 3600.0
_SLOW_ITERATION_S = 1.0
AT_FAULT = {("compute_slow", 5), ("communication_slow", 2, 6)}
_CLOCKS = ("call_ns", "start_ns", "end_ns")


def jump_on_a_host(site: Site) -> None:
    """Set the clock of one host of a job forward by an hour, and of another job's back: the same devices are named."""
    run = simulate(scenario(SCENARIO, FAULTS))
    for jump_s in (_HOUR_S, -_HOUR_S):
        host = site.random.choice(sorted(run.job.ranks_of_host))
        at_ns = site.random.choice(run.table.column("call_ns").to_pylist())
        table = jumped(run.table, run.job.ranks_of_host[host], at_ns, round(jump_s * 1e9))
        folder = site.folder / f"jumped-{jump_s:g}"
        write(replace(run, table=table), folder)
        recorded = site.recording(folder)
        site.diagnose(recorded)
        named = {(row["cause"], *row["ranks"]) for row in site.pipeline.stored(recorded).incidents.values()}
        site.expect(named == AT_FAULT, f"{host} jumped by {jump_s:g} s at {at_ns} ns: named {sorted(named)}")
        site.tally.clocks_set += 1


def jump_under_the_roles(site: Site) -> None:
    """Set the wall clocks of all roles forward by an hour and right again, all through a job; another time back.

    The job is slow, and so are its log agents to answer: clocks are set while searches wait.
    """
    with site.training_slowly(_SLOW_ITERATION_S):
        for jump_s in (_HOUR_S, -_HOUR_S):
            site.pipeline.repair()
            for name in site.pipeline.roles:
                site.pipeline.doom(name, Skew(site.random.uniform(0.5, 1.5), jump_s))
                site.tally.clocks_set += 1
            recorded = site.recording()
            with site.pipeline.producing(recorded):
                """Nothing befalls it but that; ``diagnose`` would begin with a repair."""
            site.judge(recorded, site.pipeline.stored(recorded))


def jumped(table: pa.Table, ranks: tuple[int, ...], at_ns: int, by_ns: int) -> pa.Table:
    """The log of a job during which the clock of these ranks' host was set."""
    later = pc.and_(pc.is_in(table["rank"], pa.array(ranks, pa.int32())), pc.greater_equal(table["call_ns"], at_ns))
    schema = table.schema
    for name in _CLOCKS:
        set_later = pc.if_else(later, pc.add(table[name], by_ns), table[name])
        table = table.set_column(table.schema.get_field_index(name), name, set_later)
    return table.cast(schema)
