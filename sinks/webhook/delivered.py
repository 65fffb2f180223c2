"""The last delivered revision of each incident of a job: what paging must remember across a restart."""

from __future__ import annotations

import json
from typing import Any

from schemas.errors import UndecodableMessage

FORMAT = "page/1"

_REMEMBERED_RESOLVED = 4096
"""Resolved incidents remembered a job. A replay reaches back some batches, never thousands of incidents."""


class DeliveredRevisions:
    """Revisions by incident id; the open incidents all, of the resolved ones the newest."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._resolved: dict[str, int] = {}

    def __getitem__(self, incident: str) -> int:
        """The last delivered revision; 0 where none was."""
        return self._open.get(incident) or self._resolved.get(incident, 0)

    @property
    def any_open(self) -> bool:
        """Whether the receiver believes that an incident of the job goes on."""
        return bool(self._open)

    def record(self, incident: str, revision: int, *, resolved: bool) -> None:
        """Note a delivery."""
        self._open.pop(incident, None)
        self._resolved.pop(incident, None)
        (self._resolved if resolved else self._open)[incident] = revision
        if len(self._resolved) > _REMEMBERED_RESOLVED:
            del self._resolved[next(iter(self._resolved))]

    def to_bytes(self) -> bytes:
        """The saved form."""
        return json.dumps({"open": self._open, "resolved": self._resolved}, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, state: bytes) -> DeliveredRevisions:
        """Read the saved form; raises ``UndecodableMessage``."""
        try:
            saved = json.loads(state)
        except ValueError as error:
            raise UndecodableMessage(f"page: a saved state cannot be read: {error}") from error
        restored = cls()
        restored._open, restored._resolved = _revisions(saved, "open"), _revisions(saved, "resolved")
        return restored


def _revisions(saved: Any, name: str) -> dict[str, int]:
    revisions = saved.get(name) if isinstance(saved, dict) else None
    if not isinstance(revisions, dict) or not all(type(revision) is int for revision in revisions.values()):
        raise UndecodableMessage(f"page: a saved state holds no revisions of {name} incidents")
    return revisions
