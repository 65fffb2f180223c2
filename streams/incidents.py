"""The step that joins findings into incidents: what a person is paged for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from diagnosis.incidents.evidence import Evidence, Incident
from diagnosis.incidents.explanation import explain
from diagnosis.incidents.joining import IncidentJoiner, JoiningSettings
from diagnosis.irregularity.run import FLUCTUATION
from diagnosis.job import Job
from schemas import catalogue
from schemas.message import Message, decode, encode
from schemas.processor import SavedState
from schemas.topic import Topic
from streams.identity import identity
from streams.over import forget_retired

FORMAT = "incidents/5"


class Incidents:
    """Follows the findings of every job; saves what is open and what was found recently.

    What a method finds in a job after it has said its last is passed over; a job is over once all that found
    something in it have.
    """

    name = "incidents"
    reads: tuple[Topic, ...] = (catalogue.FINDINGS,)
    writes: tuple[Topic, ...] = (catalogue.INCIDENTS,)

    def __init__(self, jobs: Mapping[str, Job], settings: JoiningSettings | None = None) -> None:
        self._jobs = jobs
        self._settings = settings or JoiningSettings()
        self._joiners: dict[str, IncidentJoiner] = {}
        self._speaking: dict[str, set[str]] = {}
        self._over: dict[str, set[str]] = {}
        self._changed: dict[str, SavedState | None] = {}

    def process(self, message: Message) -> Iterable[Message]:
        rows = decode(message, catalogue.FINDINGS).to_pylist()
        job = self._jobs[message.job]
        over = self._over.get(message.job, set())
        rows = [row for row in rows if row["method"] not in over]
        if not rows:
            return
        joiner = self._joiners.get(message.job)
        if joiner is None:
            joiner = self._joiners[message.job] = IncidentJoiner(_incident_id, self._settings)
        joiner.world, joiner.spines = len(job.ranks), len(job.spines)
        changed: dict[str, Incident] = {}
        for incident in joiner.take(*map(Evidence.from_row, rows)):
            changed[incident.id] = incident
        speaking = self._speaking.setdefault(message.job, set())
        speaking |= {row["method"] for row in rows}
        if ended := {row["method"] for row in rows if row["last"]}:
            self._over[message.job] = over | ended
            forget_retired(self._over, self._jobs)
            speaking -= ended
        if speaking:
            state = json.dumps({**joiner.to_state(), "over": sorted(self._over.get(message.job, ()))}).encode()
            self._changed[message.job] = SavedState({message.topic: message.offset + 1}, FORMAT, state)
        else:
            del self._joiners[message.job], self._speaking[message.job]
            self._changed[message.job] = None
        if changed:
            batch = catalogue.INCIDENTS.from_rows([_row(job, incident) for incident in changed.values()])
            yield encode(catalogue.INCIDENTS, batch, job=message.job, watermark_ns=message.watermark_ns)

    def tune(self, settings: JoiningSettings) -> None:
        """Join by other settings from the next message on."""
        self._settings = settings
        for joiner in self._joiners.values():
            joiner.settings = settings

    def tick(self, now_ns: int) -> Iterable[Message]:
        return ()

    def safe_offsets(self) -> Mapping[Topic, int]:
        return {}

    def changed_states(self) -> Mapping[str, SavedState | None]:
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, states: Mapping[str, SavedState]) -> None:
        for job, saved in states.items():
            self._joiners[job], self._speaking[job], self._over[job] = saved.read(FORMAT, self._from_bytes)

    def _from_bytes(self, saved: bytes) -> tuple[IncidentJoiner, set[str], set[str]]:
        state = json.loads(saved)
        joiner, over = IncidentJoiner.from_state(state, _incident_id, self._settings), set(state["over"])
        return joiner, joiner.methods - over, over


def _incident_id(opening: Evidence) -> str:
    return identity("incident", opening.id)


def _row(job: Job, incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "revision": incident.revision,
        "state": incident.state,
        "cause": incident.cause,
        "level": incident.level,
        "ranks": list(incident.ranks),
        "candidates": [list(ranks) for ranks in incident.candidates],
        "devices": [{"device": d.device, "kind": d.kind, "downside_nics": d.downside_nics} for d in incident.devices],
        "first_iteration": incident.first_iteration,
        "last_iteration": incident.last_iteration,
        "pattern": incident.pattern,
        "period": incident.period if incident.pattern == FLUCTUATION else None,
        "confidence": incident.confidence,
        "lost_ns": incident.lost_ns or None,
        "lost_gpu_seconds": incident.lost_ns / 1e9 * len(job.ranks) or None,
        "stage": {
            "phase": incident.stage.phase,
            "pipeline_stage": incident.stage.pipeline_stage,
            "microbatch": incident.stage.microbatch,
            "op": incident.stage.op,
        },
        "methods": list(incident.methods),
        "explanation": explain(job, incident),
        "opened_ns": incident.opened_ns,
        "updated_ns": incident.updated_ns,
        "resolved_ns": incident.resolved_ns,
        "findings": list(incident.findings),
    }
