"""The step that joins findings: its records, several jobs, restarts, a job's end."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.incidents.evidence import Evidence
from diagnosis.incidents.joining import JoiningSettings
from diagnosis.irregularity.run import DEGRADATION as PERSISTENT
from diagnosis.irregularity.run import FLUCTUATION
from diagnosis.job import Job, Place
from schemas.catalogue import FINDINGS, INCIDENTS
from schemas.errors import UndecodableMessage
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from streams.identity import identity
from streams.incidents import FORMAT, Incidents
from tests.diagnosis.incidents.findings import all_over, found, in_run, run_over

Row = dict[str, Any]


def job(name: str) -> Job:
    return Job(name, tuple(Place(rank, f"h{rank}", 0) for rank in range(16)), ())


JOBS = {name: job(name) for name in ("a", "b")}


def message(*findings: Evidence, last: bool = False, name: str = "a") -> Message:
    rows = []
    for finding in findings:
        row = {k: v for k, v in asdict(finding).items() if k != "share"}
        rows.append({**row, "evidence": {"share": finding.share}, "waits": [], "last": last or None})
    at = max(finding.found_ns for finding in findings)
    return encode(FINDINGS, FINDINGS.from_rows(rows), job=name, watermark_ns=at)


def told(step: Incidents, messages: Iterable[Message]) -> list[Message]:
    placed = (replace(one, offset=offset) for offset, one in enumerate(messages))
    return [output for one in placed for output in step.process(one)]


def rows(outputs: Iterable[Message]) -> list[Row]:
    return [row for output in outputs for row in decode(output, INCIDENTS).to_pylist()]


DEGRADATION = [message(in_run(i, 10, 3)) for i in (10, 11, 13)]


@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_stays_open_of_a_job_of_which_one_method_ends_before_the_other(restarted: bool) -> None:
    def by_traffic(finding: Evidence) -> Evidence:
        return replace(finding, id=f"traffic {finding.id}", method="traffic")

    step = Incidents(JOBS)
    told(step, [message(in_run(10, 10, 3)), message(by_traffic(in_run(10, 10, 3)))])
    told(step, [message(by_traffic(run_over(11, 10, 11))), message(by_traffic(all_over(12)), last=True)])
    if restarted:
        states = {name: state for name, state in step.changed_states().items() if state is not None}
        step = Incidents(JOBS)
        step.restore(states)
    found_open = rows(told(step, [message(in_run(11, 10, 3))]))
    assert [(row["state"], row["methods"]) for row in found_open] == [("open", ["operator_graph", "traffic"])]
    ended = rows(told(step, [message(run_over(13, 10, 12)), message(all_over(14), last=True)]))
    assert ended[-1]["state"] == "resolved"
    assert step.changed_states() == {"a": None}


def test_what_an_incident_says() -> None:
    [opened, supported] = rows(told(Incidents(JOBS), DEGRADATION))
    assert (opened["id"], opened["revision"]) == (identity("incident", in_run(10, 10, 3).id), 1)
    assert (opened["state"], opened["cause"], opened["level"], opened["ranks"]) == (
        "open",
        "compute_slow",
        "device",
        [3],
    )
    assert (opened["first_iteration"], opened["last_iteration"]) == (10, 11)
    assert opened["devices"] == [{"device": "gpu:h3/0", "kind": "gpu", "downside_nics": 0}]
    assert opened["stage"] == {"phase": "forward", "pipeline_stage": None, "microbatch": 1, "op": "all_reduce"}
    assert opened["lost_gpu_seconds"] == opened["lost_ns"] / 1e9 * 16
    assert opened["explanation"].startswith("Rank 3 on h3 (gpu:h3/0) computes slowly")
    assert (opened["opened_ns"], opened["resolved_ns"], opened["methods"]) == (11 * 10**9, None, ["operator_graph"])
    assert (supported["revision"], len(supported["findings"])) == (1, 3)


def test_how_often_it_comes_is_said_of_a_fluctuation_alone() -> None:
    recurring = [message(found(i, 3, pattern=FLUCTUATION, period=6.9)) for i in (20, 27)]
    lasts = [message(found(i, 3, pattern=PERSISTENT)) for i in (34, 35)]
    said = rows(told(Incidents(JOBS), [*recurring, *lasts]))
    assert [(row["pattern"], row["period"]) for row in said] == [(FLUCTUATION, 6.9)] + 2 * [(PERSISTENT, None)]


def test_settings_change_between_two_messages() -> None:
    step = Incidents(JOBS, JoiningSettings(confirmations=100))
    assert told(step, DEGRADATION[:2]) == []
    step.tune(JoiningSettings())
    assert [row["state"] for row in rows(told(step, DEGRADATION[2:]))] == ["open"]


def test_one_record_holds_each_changed_incident_once() -> None:
    two = [message(found(i, 3), found(i, 7), found(i, 3, id=f"again {i}")) for i in (20, 21)]
    [output] = told(Incidents(JOBS), two)
    assert sorted(row["ranks"][0] for row in rows([output])) == [3, 7]
    assert output.watermark_ns == 21 * 10**9


def test_findings_that_change_nothing_are_not_told() -> None:
    step = Incidents(JOBS)
    assert told(step, [message(found(20, 3))]) == []
    assert step.changed_states()["a"] is not None


def test_all_ranks_at_once_for_a_moment_open_nothing() -> None:
    everyone = [message(found(i, *range(16), cause="communication_slow")) for i in (20, 21)]
    assert told(Incidents(JOBS), everyone) == []
    assert len(told(Incidents({"a": Job("a", (*job("a").places, Place(16)), ())}), everyone)) == 1


def test_two_jobs_do_not_touch_each_other() -> None:
    one = [message(found(i, 3)) for i in (20, 21)]
    other = [message(found(i, 3), name="b") for i in (20, 21)]
    mixed = told(Incidents(JOBS), [m for pair in zip(one, other, strict=True) for m in pair])
    assert [output.job for output in mixed] == ["a", "b"]
    assert told(Incidents(JOBS), [one[0], other[0]]) == []


def test_the_end_of_a_log_resolves_and_drops_the_state() -> None:
    step = Incidents(JOBS)
    outputs = told(step, [*DEGRADATION, message(run_over(20, 10, 19), all_over(20), last=True)])
    assert rows(outputs)[-1]["state"] == "resolved"
    assert step.changed_states() == {"a": None}
    assert told(step, DEGRADATION) == []
    assert step.changed_states() == {}


def test_a_long_quiet_resolves_and_keeps_the_state() -> None:
    step = Incidents(JOBS)
    outputs = told(step, [*DEGRADATION, message(all_over(120))])
    assert rows(outputs)[-1]["state"] == "resolved"
    assert step.changed_states()["a"] is not None


_findings = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.sets(st.integers(2, 4), max_size=2), st.booleans()),
    max_size=16,
)


@settings(max_examples=40)
@given(_findings, st.sets(st.integers(0, 16), max_size=4))
def test_a_step_that_is_restarted_anywhere_tells_what_one_that_never_was_does(
    drawn: list[tuple[str, int, set[int], bool]], cuts: set[int]
) -> None:
    at, messages = {"a": 10, "b": 10}, []
    for offset, (name, ahead, ranks, over) in enumerate(drawn):
        at[name] += ahead
        some = [found(at[name], rank) for rank in sorted(ranks)] or [found(at[name])]
        made = message(all_over(at[name])) if over else message(*some)
        messages.append(replace(made, offset=offset, headers={**made.headers, "job": name}))
    undisturbed = Incidents(JOBS)
    expected = [rows(undisturbed.process(one)) for one in messages]
    step, states, got = Incidents(JOBS), dict[str, SavedState](), []
    for offset, one in enumerate(messages):
        if offset in cuts:
            states |= {name: state for name, state in step.changed_states().items() if state is not None}
            step = Incidents(JOBS)
            step.restore(states)
        got.append(rows(step.process(one)))
    assert got == expected


@pytest.mark.parametrize("saved", [b"", b"{}", b'{"incidents": [{}], "recent": []}', b'{"incidents": 1, "recent": []}'])
def test_a_damaged_state_is_refused(saved: bytes) -> None:
    state = SavedState({}, FORMAT, saved)
    with pytest.raises(UndecodableMessage, match=f"a saved state of the form '{FORMAT}' cannot be read"):
        Incidents(JOBS).restore({"a": state})
