"""The case of Holmes' section 5.3: 3,072 GPUs, one of them slow, found from the logs of at most 106."""

from typing import Literal

import pytest

from diagnosis.operator_graph.algorithm_1 import COMPUTE, Search
from diagnosis.operator_graph.locate import Irregularity, LocateSettings, locate
from diagnosis.operator_graph.logs import Logs
from diagnosis.operators import Operators, last_callers
from tests.diagnosis.answering import answered
from tests.diagnosis.made_logs import MS
from tests.diagnosis.operator_graph.published_case import FullSize, reduced

CASE = FullSize()
IRREGULAR, BASELINE = reduced().irregular, reduced().baseline
PIPELINE = tuple(range(0, 2304, 384))
PATH = (*PIPELINE, 2304, 2572, 2574)
GROUP, TENSOR = set(range(2304, 2688, 4)), {2572, 2573, 2574, 2575}


def test_the_log_is_one_that_a_job_could_write() -> None:
    """Every communication of the ranks at hand has all its members, and ends after the last has entered."""
    ranks = {rank + stage * 384 for rank in (0, 1, 268, 269, 270, 271) for stage in range(8)}
    operators = Operators.from_arrow(CASE.log(ranks | GROUP))
    keys = operators.meeting_keys
    _, entered, seen = last_callers(keys, operators.call_ns)
    assert (operators.end_ns >= entered).all()
    whole = {name: set(CASE.job.members[name]) <= ranks | GROUP for name in operators.communicators}
    held = [(row, name) for row, name in _named(operators) if whole[name]]
    assert len(held) > 1000
    for row, name in held:
        assert seen[row] == (2 if operators.is_point_to_point(row) else len(CASE.job.members[name]))


def _named(operators: Operators) -> list[tuple[int, str]]:
    return [(row, operators.communicators[code]) for row, code in enumerate(operators.communicator.tolist())]


@pytest.mark.parametrize("statistics", [True, False], ids=["statistics", "rows"])
def test_algorithm_1_walks_as_published(statistics: bool) -> None:
    logs = Logs(CASE.job, (IRREGULAR,), BASELINE) if statistics else Logs(CASE.job, (*BASELINE, IRREGULAR))
    search = Search(logs, IRREGULAR, BASELINE)
    _, asked = answered(search.run(0), CASE.log)
    [root] = search.roots
    assert (root.cause, root.leaf.rank, root.leaf.path) == (COMPUTE, 2574, PATH)
    assert search.visited == PATH
    assert asked.ranks == {*PIPELINE} | GROUP | TENSOR
    assert len(asked.ranks) <= 106


@pytest.mark.parametrize("search", ["attribution", "algorithm_1"])
def test_the_slow_gpu_is_named_from_few_logs(search: Literal["attribution", "algorithm_1"]) -> None:
    irregularity = Irregularity(IRREGULAR, BASELINE, pivots=(0,), excess_ns=80 * MS)
    location, asked = answered(locate(CASE.job, irregularity, LocateSettings(search=search)), CASE.log)
    [culprit] = location.culprits
    assert (culprit.cause, culprit.ranks) == ("compute_slow", (2574,))
    assert culprit.path[0] == 0
    assert culprit.path[-3:] == (2304, 2572, 2574)
    assert len(asked.ranks) <= 106
    assert culprit.irregularity_rate > 0.99
