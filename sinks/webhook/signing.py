"""Signatures of webhook requests: who sent this, and when.

The header is ``X-Offbeat-Signature: t=SECONDS,v1=HEX``: HMAC-SHA256 over ``SECONDS.BODY``. While a secret is being
replaced there is one ``v1`` for each secret. Receivers written in Python can call ``verify``; others do the same:
compare in constant time, and refuse old timestamps, or a recorded request could be played again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence

from schemas.errors import OffbeatError

HEADER = "X-Offbeat-Signature"
TOLERANCE_S = 300.0
"""How far a receiver's clock and a request's timestamp may differ."""


class BadSignature(OffbeatError):
    """A request was not signed with a known secret, or too long ago."""


def sign(body: bytes, secrets: Sequence[str], at_s: float) -> str:
    """The header's value for a body sent at ``at_s`` (seconds since the epoch)."""
    timestamp = str(int(at_s))
    return ",".join([f"t={timestamp}", *(f"v1={_digest(body, secret, timestamp)}" for secret in secrets)])


def verify(header: str, body: bytes, secrets: Sequence[str], now_s: float, tolerance_s: float = TOLERANCE_S) -> None:
    """Raise ``BadSignature`` unless ``body`` was signed with one of ``secrets``, at most ``tolerance_s`` from now."""
    pairs = [(name, value) for name, _, value in (part.strip().partition("=") for part in header.split(","))]
    timestamps = [value for name, value in pairs if name == "t"]
    if len(timestamps) != 1 or not re.fullmatch(r"[0-9]{1,15}", timestamps[0]):
        raise BadSignature(f"{HEADER}: no single timestamp t=SECONDS")
    given = [value for name, value in pairs if name == "v1"]
    expected = [_digest(body, secret, timestamps[0]) for secret in secrets]
    # Every pair is compared, so that the time taken does not tell which one matched.
    matches = [hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected]
    if not any(matches):
        raise BadSignature(f"{HEADER}: no signature v1 by a known secret")
    if abs(now_s - int(timestamps[0])) > tolerance_s:
        raise BadSignature(f"{HEADER}: signed more than {tolerance_s:g} s from now")


def _digest(body: bytes, secret: str, timestamp: str) -> str:
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
