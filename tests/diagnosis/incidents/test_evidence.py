"""Findings and incidents as plain values: from the bus, and to a saved state and back."""

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.incidents.evidence import (
    Evidence,
    Incident,
    Run,
    Span,
    Stage,
    evidence_from_state,
    evidence_to_state,
)
from diagnosis.topology import Device
from schemas.catalogue import FINDINGS
from schemas.message import decode, encode
from tests.diagnosis.incidents.findings import found

_number = st.integers(0, 2**31 - 1)
_maybe = st.none() | _number
_text = st.none() | st.text(max_size=4)
_ranks = st.lists(_number, max_size=4).map(tuple)
_below = st.none() | st.integers(0, 1)
_devices = st.lists(st.builds(Device, st.text(max_size=4), st.sampled_from(["gpu", "nic"]), _below), max_size=2)
_stages = st.builds(Stage, _text, _maybe, _maybe, _text)
_share = st.floats(0, 1)
_evidence = st.builds(
    Evidence,
    id=st.text(min_size=1, max_size=5),
    method=st.just("operator_graph"),
    active=st.booleans(),
    iteration=_maybe,
    pattern=_text,
    first_iteration=_maybe,
    last_iteration=_maybe,
    cause=st.none() | st.sampled_from(["compute_slow", "communication_slow"]),
    level=st.none() | st.sampled_from(["device", "group"]),
    ranks=_ranks,
    candidates=st.lists(_ranks, max_size=3).map(tuple),
    devices=_devices.map(tuple),
    stage=_stages,
    run_excess_ns=_number,
    share=_share,
    coverage=_share,
    found_ns=_number,
    step_from=_maybe,
    prominence=st.none() | st.integers(0, 40).map(lambda eighths: eighths / 8),
    step_excess_ns=_number,
)
_spans = st.builds(Span, _number, _number, _number, _number, _number, _share)
_runs = st.builds(Run, st.sampled_from("ab"), _number)
_incidents = st.builds(
    Incident,
    id=st.text(max_size=5),
    revision=_number,
    state=st.sampled_from(["open", "resolved"]),
    cause=st.text(max_size=5),
    level=st.text(max_size=5),
    ranks=_ranks,
    candidates=st.lists(_ranks, max_size=3).map(tuple),
    devices=_devices.map(tuple),
    stage=_stages,
    pattern=_text,
    runs=st.dictionaries(_runs, _spans, max_size=4).map(lambda runs: {Run("a", 7): Span(7, 9, 5), **runs}),
    doubt=_share,
    methods=st.just(("a", "b")),
    findings=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    opened_ns=_number,
    updated_ns=_number,
    resolved_ns=_maybe,
)


@given(_evidence)
def test_a_finding_survives_its_record(evidence: Evidence) -> None:
    own = {f.name: getattr(evidence, f.name) for f in fields(evidence) if f.name not in {"share", "prominence"}}
    lengths = {"iteration_ns": 100 + round(8 * (evidence.prominence or 0)), "expected_ns": 100}
    lengths["scatter_ns"] = 8 if evidence.prominence is not None else 0
    row = {**own, **lengths, "evidence": {"share": evidence.share}, "waits": []}
    row["devices"] = [{"device": d.device, "kind": d.kind, "downside_nics": d.downside_nics} for d in evidence.devices]
    stage = evidence.stage
    row["stage"] = {name: getattr(stage, name) for name in ("phase", "pipeline_stage", "microbatch", "op")}
    [told] = decode(encode(FINDINGS, FINDINGS.from_rows([row]), job="j"), FINDINGS).to_pylist()
    assert Evidence.from_row(told) == evidence


def test_what_a_row_leaves_out() -> None:
    row = {"id": "x", "method": "operator_graph", "active": False, "found_ns": 5}
    [told] = decode(
        encode(
            FINDINGS, FINDINGS.from_rows([{**row, "ranks": [], "candidates": [], "devices": [], "waits": []}]), job="j"
        ),
        FINDINGS,
    ).to_pylist()
    evidence = Evidence.from_row(told)
    assert (evidence.ranks, evidence.candidates, evidence.devices, evidence.stage) == ((), (), (), Stage())
    assert (evidence.share, evidence.coverage, evidence.run_excess_ns) == (0.0, 1.0, 0)
    assert evidence.prominence is None
    assert Evidence.from_row({**told, "iteration_ns": 9, "expected_ns": 5, "scatter_ns": 0}).prominence is None


def test_an_incident_names_no_switch_for_one_of_its_nics() -> None:
    kinds = {"nic": 1, "link": 1, "tor": 32, "spine": 512, "nvlink": 0, "gpu": None}
    devices = [{"device": kind, "kind": kind, "downside_nics": below} for kind, below in kinds.items()]
    lists: dict[str, Any] = {"ranks": [3], "candidates": [], "waits": []}
    row = {"id": "x", "method": "operator_graph", "active": True, "found_ns": 5, **lists, "devices": devices}
    assert [device.kind for device in Evidence.from_row(row).devices] == ["nic", "link", "nvlink", "gpu"]
    of_switches = {**row, "devices": [device for device in devices if device["kind"] in {"tor", "spine"}]}
    assert [device.kind for device in Evidence.from_row(of_switches).devices] == ["tor", "spine"]


@given(_evidence)
def test_a_finding_survives_a_saved_state(evidence: Evidence) -> None:
    assert evidence_from_state(json.loads(json.dumps(evidence_to_state(evidence)))) == evidence


@given(_incidents)
def test_an_incident_survives_a_saved_state(incident: Incident) -> None:
    assert Incident.from_state(json.loads(json.dumps(incident.to_state()))) == incident


@given(_incidents)
def test_an_incident_spans_the_runs_of_the_method_that_opened_it_and_loses_nothing_twice(incident: Incident) -> None:
    lost = {name: [span.lost_ns for run, span in incident.runs.items() if run.method == name] for name in "ab"}
    opening = [span for run, span in incident.runs.items() if run.method == "a"]
    assert all(incident.first_iteration <= span.began and span.last <= incident.last_iteration for span in opening)
    assert incident.lost_ns == max(sum(lost["a"]), sum(lost["b"]))
    assert incident.occasions == len(opening)
    assert incident.confidence == pytest.approx(min(0.99, 1 - incident.doubt), abs=1e-4)


def test_the_made_findings_are_possible() -> None:
    assert found(3, 1, 2).candidates == ((1,), (2,))
