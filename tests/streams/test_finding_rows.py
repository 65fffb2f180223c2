"""What a search found, as rows of analysis.findings."""

from dataclasses import replace
from typing import Any

import pytest

from diagnosis.job import Job, Layout, Place
from diagnosis.operator_graph.culprits import Culprit
from diagnosis.operator_graph.leaf import OperatorRef, Wait
from diagnosis.operator_graph.locate import Irregularity, Location
from diagnosis.topology import Device
from schemas.catalogue import FINDINGS
from schemas.message import decode, encode
from streams.finding_rows import METHOD, located
from streams.findings import cleared

Row = dict[str, Any]

JOB = Job("j", tuple(Place(rank) for rank in range(8)), (), layout=Layout(tp=2, pp=2, dp=2))
IRREGULAR = Irregularity(iteration=20, baseline=(15, 16), pivots=(1, 5), excess_ns=40)
COLUMNS = {"iteration_ns": 140, "expected_ns": 100, "pattern": "abnormal_spike", "found_ns": 7, "first_iteration": 19}
CULPRIT = Culprit(
    cause="communication_slow",
    level="group",
    ranks=(4, 6),
    candidates=((4,), (6,)),
    devices=(Device("nic:a/0", "nic", 1), Device("nic:b/0", "nic", 1)),
    operator=OperatorRef(4, "c", 7, "all_gather", "gradient", 3, 99),
    excess_ns=30,
    share=0.75,
    path=(5, 4),
    operator_ns=(1, 2),
    iteration_ns=(100, 140),
    irregularity_rate=0.5,
)
LOCATION = Location(
    culprits=(CULPRIT,),
    waits=(Wait(5, 4, "c", "all_gather", 30),),
    visited=(1, 5, 4),
    coverage=0.5,
    clock_error_ns=11,
    last_record_ns=123,
    bounded=True,
)


def sent(made: list[Row]) -> list[Row]:
    """Rows as they come out of the bus."""
    told: list[Row] = decode(encode(FINDINGS, FINDINGS.from_rows(made), job="j"), FINDINGS).to_pylist()
    return told


def rows(location: Location) -> list[Row]:
    return sent(located(JOB, IRREGULAR, location, COLUMNS, 1000))


def test_everything_that_was_found_is_told() -> None:
    [row] = rows(LOCATION)
    assert (row["method"], row["active"], row["iteration"], row["pivot"]) == ("operator_graph", True, 20, 5)
    assert (row["cause"], row["level"], row["ranks"]) == ("communication_slow", "group", [4, 6])
    assert row["candidates"] == [[4], [6]]
    assert row["devices"][1] == {"device": "nic:b/0", "kind": "nic", "downside_nics": 1}
    assert row["root_operator"] == {"rank": 4, "communicator": "c", "position": 7, "op": "all_gather"}
    assert row["stage"] == {"phase": "gradient", "pipeline_stage": None, "microbatch": 3, "op": "all_gather"}
    assert row["waits"] == [{"waiting_rank": 5, "awaited_rank": 4, "communicator": "c", "op": "all_gather"}]
    assert row["evidence"] == {
        "delta": 1.4,
        "irregularity_rate": 0.5,
        "share": 0.75,
        "operator_ns": [1, 2],
        "iteration_ns": [100, 140],
        "path": [5, 4],
        "clock_error_ns": 11,
        "fetched_bytes": 1000,
    }
    told = ("coverage", "bounded", "last_record_ns", "excess_ns", "first_iteration", "pattern", "found_ns", "last")
    assert [row[name] for name in told] == [0.5, True, 123, 30, 19, "abnormal_spike", 7, None]


@pytest.mark.parametrize(("rank", "stage"), [(0, 0), (3, 0), (4, 1)])
def test_the_pipeline_stage_of_a_single_culprit_is_told(rank: int, stage: int) -> None:
    alone = replace(CULPRIT, ranks=(rank,), candidates=(), level="device")
    [row] = rows(replace(LOCATION, culprits=(alone,)))
    assert row["stage"]["pipeline_stage"] == stage


def test_a_search_that_names_nobody_says_how_far_it_went() -> None:
    [row] = rows(replace(LOCATION, culprits=()))
    assert (row["active"], row["cause"], row["ranks"], row["pivot"]) == (True, None, [], 1)
    assert (row["root_operator"], row["stage"]) == (None, None)
    assert (row["coverage"], row["evidence"]["path"], row["evidence"]["share"]) == (0.5, [1, 5, 4], None)


def test_ids_are_the_same_again_and_differ_by_what_they_are_of() -> None:
    other = replace(CULPRIT, ranks=(1,), candidates=())
    both = rows(replace(LOCATION, culprits=(CULPRIT, other)))
    assert [row["id"] for row in both] == [row["id"] for row in rows(replace(LOCATION, culprits=(other, CULPRIT)))]
    job_b = located(replace(JOB, job="k"), IRREGULAR, LOCATION, COLUMNS, 0)[0]
    later = located(JOB, replace(IRREGULAR, iteration=21), LOCATION, COLUMNS, 0)[0]
    over = [cleared("j", METHOD, what, {"iteration": 20, "found_ns": 7}) for what in ("run", "quiet")]
    ids = [row["id"] for row in (*both, job_b, later, *over)]
    assert len(set(ids)) == len(ids)


def test_what_is_over_names_nobody() -> None:
    made = cleared("j", METHOD, "quiet", {"iteration": 20, "found_ns": 7, "last": True})
    [row] = sent([made])
    assert (row["active"], row["ranks"], row["first_iteration"], row["last"]) == (False, [], None, True)
