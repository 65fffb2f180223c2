"""Incidents for the tests, as records of analysis.incidents."""

from __future__ import annotations

from typing import Any

from diagnosis.job import Job
from schemas.catalogue import INCIDENTS
from schemas.message import Message, encode
from sinks.webhook.content import incident_page
from sinks.webhook.page import Page

MINUTE_NS = 60 * 10**9
OPENED_NS = 1_767_322_985_123_456_789  # 2026-01-02T03:03:05.123456789Z


def incident(incident: str = "5d3c0a9e1f", revision: int = 1, state: str = "open", **columns: Any) -> dict[str, Any]:
    """A slow GPU; ``columns`` replaces what differs."""
    updated_ns = OPENED_NS + revision * MINUTE_NS
    return {
        "id": incident,
        "revision": revision,
        "state": state,
        "cause": "compute_slow",
        "level": "device",
        "ranks": [2],
        "candidates": [],
        "devices": [{"device": "gpu:host0/2", "kind": "gpu", "downside_nics": 0}],
        "first_iteration": 4,
        "last_iteration": 4 + revision,
        "pattern": "persistent_degradation",
        "period": None,
        "confidence": 0.97,
        "lost_ns": revision * 12_700_000_000,
        "lost_gpu_seconds": revision * 101.6,
        "stage": {"phase": "forward", "pipeline_stage": 1, "microbatch": None, "op": "all_reduce"},
        "network": None,
        "methods": ["operator_graph"],
        "explanation": "Rank 2 computes 1.5 times as long as the others of its stage.",
        "opened_ns": OPENED_NS,
        "updated_ns": updated_ns,
        "resolved_ns": updated_ns if state == "resolved" else None,
        "findings": ["f1"],
        **columns,
    }


def record(*rows: dict[str, Any], job: str = "llama", offset: int = 0) -> Message:
    """A record that holds these incidents, at an offset of partition 0."""
    encoded = encode(INCIDENTS, INCIDENTS.from_rows(list(rows)), job=job)
    return Message(encoded.topic, encoded.key, encoded.value, encoded.headers, offset=offset)


def page(placement: Job | None = None, *, job: str = "llama", link: str = "", **columns: Any) -> Page:
    """The page of a slow GPU, with columns replaced."""
    return incident_page(job, incident(**columns), placement, link)
