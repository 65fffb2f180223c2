"""Deterministic ids: the same thing found again, after a restart or a replay, bears the same name."""

from __future__ import annotations

import hashlib


def identity(*parts: object) -> str:
    """A short hash of the parts, in order."""
    text = "\x1f".join("" if part is None else str(part) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
