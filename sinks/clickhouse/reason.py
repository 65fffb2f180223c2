"""What ClickHouse says of a failure, in a line that a person can take in."""

from __future__ import annotations

import re

_CODE = re.compile(r"^(?:(?:Code: \d+\.\s+)?DB::\w*Exception[.:]\s+)+")
_TRACE = re.compile(r"\.?\s+Stack trace:.*", re.DOTALL)
_NAME = re.compile(r"(?:\s*\([A-Z][A-Z0-9_]+\)|\s*\(version [^)]*\)|\.)+$")
_SCOPE = re.compile(r"[.:]?\s+In scope\s.*", re.DOTALL)
_EXPECTED = re.compile(r"\.?\s+Expected one of: .*", re.DOTALL)


def reason(message: str) -> str:
    """The essence of an error's message.

    Without its number and name, the stack trace, the statement again, and all that could have stood in its place.
    """
    message = _CODE.sub("", _TRACE.sub("", message))
    for ballast in (_NAME, _SCOPE, _EXPECTED):
        message = ballast.sub("", message)
    return " ".join(message.split())
