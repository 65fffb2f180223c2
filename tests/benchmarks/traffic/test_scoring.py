"""What an answer on a run is worth."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.simulated.figures import share
from benchmarks.traffic import figures
from benchmarks.traffic.scoring import fault_of, said_of
from benchmarks.traffic.trial import Score
from diagnosis.job import Job, Place
from producers.simulation.nic import FaultTruth, NicTruth, Setup, healthy
from producers.simulation.nic.truth import OPERATORS

AT_NS = 1_000_000_000
JOB = Job("job", tuple(Place(rank, f"h{rank // 2}", rank % 2) for rank in range(8)), ())
"""Four hosts of two ranks."""


def truth(kind: str | None, ranks: tuple[int, ...] = (2,)) -> NicTruth:
    fault = FaultTruth("injected", kind or "", 1.0, AT_NS, ranks, "h1", "mlx5_0")
    ends = np.array([[AT_NS // 5 * at] * 8 for at in (1, 2, 3, 4, 5, 8, 11)])
    hosts = tuple(JOB.ranks_of_host)
    tokens = np.array([[1.0, 1.0, 2.0, 0.0]] * 5 + [[1.0, 1.0, 0.0, 9.0]] * 2)
    return NicTruth((fault,) if kind else (), OPERATORS.empty_table(), ends, False, hosts, tokens)


def _without(told: NicTruth) -> NicTruth:
    """The same run, had nothing happened; its iterations are not all alike."""
    ends = np.array([[AT_NS // 5 * at] * 8 for at in (1, 2, 3, 4, 5, 6, 7.5)], dtype=np.int64)
    return replace(told, faults=(), iteration_ends_ns=ends)


def incident(
    cause: str, *ranks: int, candidates: int = 0, opened_ns: int = AT_NS, of: tuple[int, int] = (5, 9)
) -> dict[str, Any]:
    sets = [[rank] for rank in ranks][:candidates]
    told = {"cause": cause, "level": "device", "ranks": ranks, "candidates": sets, "opened_ns": opened_ns}
    return {**told, "first_iteration": of[0], "last_iteration": of[1]}


SLOW_NIC, SLOW_GPU = "communication_slow", "computation_slow"


def test_two_candidates_are_no_answer_to_a_slow_cpu() -> None:
    """The paper's table 3 has its group."""
    told = truth("computation_slow")
    cpu = replace(told, faults=tuple(replace(fault, injection="cpu_contention") for fault in told.faults))
    said = incident("compute_slow", 0, 2, candidates=2)
    assert [said_of(said, of, JOB, Setup.GPT2_70B).verdict for of in (told, cpu)] == ["candidates", "group"]


@pytest.mark.parametrize(
    ("kind", "said", "setup", "verdict", "normal_hosts"),
    [
        (SLOW_NIC, incident("communication_slow", 2), Setup.GPT2_70B, "right", 0),
        (SLOW_NIC, incident("communication_slow", 3), Setup.GPT2_70B, "right", 0),
        (SLOW_NIC, incident("communication_slow", 4), Setup.GPT2_70B, "false", 1),
        (SLOW_NIC, incident("compute_slow", 2, 3), Setup.GPT2_70B, "wrong_class", 1),
        (SLOW_NIC, incident("communication_slow", 2, opened_ns=AT_NS // 2), Setup.GPT2_70B, "false", 1),
        (SLOW_NIC, incident("communication_slow", 0, 2, 4), Setup.GPT2_70B, "group", 2),
        (SLOW_NIC, incident("communication_slow", 0, 2, candidates=2), Setup.GPT2_70B, "group", 1),
        (SLOW_GPU, incident("compute_slow", 0, 2, candidates=2), Setup.GPT2_70B, "candidates", 0),
        (SLOW_GPU, incident("compute_slow", 0, 2, candidates=2), Setup.MIXTRAL, "group", 1),
        (SLOW_GPU, incident("host_slow", 2, 3), Setup.GPT2_70B, "right", 0),
        (SLOW_GPU, incident("mixed_slow", 2), Setup.GPT2_70B, "right", 0),
        (SLOW_NIC, incident("mixed_slow", 2), Setup.GPT2_70B, "right", 0),
        ("computation_stop", incident("mixed_slow", 2), Setup.GPT2_70B, "wrong_class", 1),
        (SLOW_GPU, incident("imbalance", 6), Setup.MIXTRAL, "hot", 0),
        (SLOW_GPU, incident("imbalance", 4), Setup.MIXTRAL, "not_hot", 0),
        (None, incident("imbalance", 4, of=(1, 1)), Setup.MIXTRAL, "hot", 0),
        (None, incident("imbalance", 6, of=(1, 4)), Setup.MIXTRAL, "not_hot", 0),
        (None, incident("imbalance", 6, 4), Setup.MIXTRAL, "not_hot", 0),
        ("computation_stop", incident("hang_not_entered", 2, 3), Setup.MIXTRAL, "right", 0),
        ("communication_stop", incident("hang_hardware", 2), Setup.MIXTRAL, "right", 0),
        (None, incident("communication_slow", 2), Setup.MIXTRAL, "false", 1),
    ],
)
def test_verdicts(kind: str | None, said: dict[str, Any], setup: Setup, verdict: str, normal_hosts: int) -> None:
    one = said_of(said, truth(kind), JOB, setup)
    assert (one.verdict, len(one.normal_hosts)) == (verdict, normal_hosts)
    assert one.device_right == (verdict == "right" and said["ranks"] == (2,))


@pytest.mark.parametrize("rank", range(8))
def test_without_experts_nobody_is_hot(rank: int) -> None:
    none = replace(truth(None), tokens=np.empty((0, 4)))
    assert said_of(incident("imbalance", rank), none, JOB, Setup.GPT2_70B).verdict == "not_hot"


@pytest.mark.parametrize(
    ("ranks", "verdict"), [((0, 2, 4, 6), "right"), (tuple(range(8)), "right"), ((0, 2, 4), "false"), ((2,), "false")]
)
def test_where_all_machines_are_slow_an_answer_names_them_all(ranks: tuple[int, ...], verdict: str) -> None:
    everywhere = truth(SLOW_NIC)
    everywhere = replace(everywhere, faults=tuple(replace(everywhere.faults[0], ranks=(rank,)) for rank in range(8)))
    assert said_of(incident("communication_slow", *ranks), everywhere, JOB, Setup.GPT2_70B).verdict == verdict
    told = fault_of(everywhere, None)
    assert told is not None
    assert told.ranks == tuple(range(8))


def score(
    kind: str | None,
    *said: dict[str, Any],
    what: str = "gpt2_70b/pcie_downgrade/0.5",
    at_first: tuple[dict[str, Any], ...] | None = None,
) -> Score:
    told = truth(kind)
    answers, first = (
        tuple(said_of(one, told, JOB, Setup.GPT2_70B) for one in of)
        for of in (said, said if at_first is None else at_first)
    )
    fault = fault_of(told, None if kind is None else _without(told))
    return Score(1, what, "default", False, 4, fault, answers, first, (), 1.0, 0.5)


def test_the_slowdown_is_against_the_same_run_without_the_fault() -> None:
    """Two iterations begin after the fault: 3 fifths of a second instead of 1, and 3 instead of 1.5."""
    told = truth(SLOW_NIC)
    of_slow = fault_of(told, _without(told))
    assert of_slow is not None
    assert of_slow.slowdown == 2.5
    [fault] = told.faults
    late = replace(told, faults=(replace(fault, at_ns=2 * AT_NS),))
    in_the_last = fault_of(late, _without(told))
    assert in_the_last is not None
    assert in_the_last.slowdown == 2.0, "it falls into the last one"
    stopped = fault_of(replace(told, hung=True), None)
    assert stopped is not None
    assert stopped.slowdown is None


def test_figures_count_nodes_by_the_definitions() -> None:
    right = incident("communication_slow", 2)
    scores = [
        score(SLOW_NIC, right),
        score(SLOW_NIC, right, incident("compute_slow", 6, 7)),
        score(SLOW_NIC),
        score(None, what="healthy/mixtral"),
    ]
    told = figures.summarise(scores)
    own = told["classes"]["communication_slow"]
    assert (own["recall"]["count"], own["recall"]["of"]) == (2, 3)
    assert (own["precision"]["count"], own["precision"]["of"]) == (2, 3)
    assert (own["false_positives"]["count"], own["false_positives"]["of"]) == (1, 9)
    assert told["healthy"]["without_blame"]["share"] == 1.0
    assert told["shrink"] == {setup.value: healthy(setup, 1).shrink for setup in (Setup.GPT2_70B, Setup.MIXTRAL)}
    assert told["table_3"]["injected"] == {"gpt2_70b": {"right": 2, "missed": 1, "to_machine": share(2, 3)}}
    assert told["logs_of_operators"]["all"]["recall"]["count"] == 0
    assert list(told["recall_by"]["slowdown"]) == ["1.1 or more"]
    assert [failure["missed"] for failure in told["failures"]] == [False, True]


def test_what_people_were_told_first_counts_for_itself() -> None:
    """A group is named first, and its slow machine later."""
    right, group = incident("compute_slow", 2), incident("compute_slow", 2, 4, 6)
    scores = [score("computation_slow", right, at_first=(group,)), score("computation_slow", right)]
    own = figures.summarise(scores)["all"]
    assert (own["answers_right"]["count"], own["answers_right"]["of"]) == (2, 2)
    assert (own["first_told_right"]["count"], own["first_told_right"]["of"]) == (1, 2)
    in_logs = figures.summarise(scores)["logs_of_operators"]["all"]
    assert in_logs["first_told_right"] is None, "what the search was told first is not noted"


def test_runs_beyond_the_table_and_routing_are_told_apart() -> None:
    beyond = "gpt2_70b/pcie_downgrade/0.5/everywhere"
    scores = [
        score(SLOW_NIC, incident("communication_slow", 2), what=beyond),
        score(None, incident("imbalance", 6), what="healthy/hot_experts"),
        score(None, incident("imbalance", 4), what="healthy/hot_experts"),
        score(None, what="healthy/mixtral"),
    ]
    told = figures.summarise(scores)
    assert told["runs"] == {"table_4": 0, "beyond": 1, "healthy": 3}
    assert told["beyond"] == {beyond: {"right": 1, "to_machine": share(1, 1)}}
    assert (told["healthy"]["without_blame"]["count"], told["healthy"]["uneven"]["count"]) == (3, 2)
    routed = told["table_3"]["expert_imbalance"]
    shares = {setup: {kind: one["count"] for kind, one in of.items()} for setup, of in routed.items()}
    assert shares == {"mixtral": {"hot": 0, "not_hot": 0}, "hot_experts": {"hot": 1, "not_hot": 1}}


def test_every_normal_node_that_is_named_counts_once() -> None:
    """Whether by one answer or several, of one kind of anomaly or more."""
    named = [incident(cause, rank) for cause in ("compute_slow", "communication_slow") for rank in (0, 4)]
    own = figures.summarise([score(SLOW_NIC, incident("communication_slow", 2), *named)])["classes"][SLOW_NIC]
    assert (own["precision"]["count"], own["precision"]["of"]) == (1, 3)
    assert (own["false_positives"]["count"], own["false_positives"]["of"]) == (2, 3)


def test_no_more_nodes_count_as_wrongly_named_than_are_normal() -> None:
    """Where all are named for what none of them has, the faulty one as well."""
    own = figures.summarise([score(SLOW_NIC, incident("compute_slow", 0, 2, 4, 6))])["classes"][SLOW_NIC]
    assert (own["false_positives"]["count"], own["false_positives"]["of"]) == (3, 3)


def test_a_score_survives_its_file() -> None:
    one = score(SLOW_NIC, incident("communication_slow", 2), incident("compute_slow", 0, 4))
    assert Score.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert one.fault is not None
    assert one.fault.slowdown == 2.5
