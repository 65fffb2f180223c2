"""What became of a job that faults befell, beside the same job undisturbed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tests.integration.outcome import Stored
from tests.sinks.webhook.local_receiver import Received

Pages = dict[str, list[tuple[int, str]]]
"""Revision and status of each page, in the order in which they came, by incident."""

_STATUS = {"open": "firing", "resolved": "resolved"}


@dataclass(frozen=True)
class Verdict:
    """``differences`` of what is stored and in the order of pages; ``lost`` are incidents of which the receiver does
    not know how they stand; ``repeated`` counts pages beyond the first under one idempotency key.
    """

    pages: int
    differences: tuple[str, ...]
    lost: tuple[str, ...]
    repeated: Counter[str]

    @classmethod
    def of(cls, stored: Stored, expected: Stored, taken: Sequence[Received]) -> Self:
        """Judge what is stored and what the receiver took of a job; ``expected`` comes of an undisturbed run."""
        heard = pages_of(taken)
        right = {row["id"]: (row["revision"], _STATUS[row["state"]]) for row in expected.incidents.values()}
        unordered = [
            f"incident {incident}: pages came as {pages}"
            for incident, pages in heard.items()
            if list(dict.fromkeys(pages)) != sorted(set(pages))
        ]
        return cls(
            pages=len(taken),
            differences=(
                *stored.differences(expected),
                *unordered,
                *(f"incident {incident} was paged, and is none" for incident in heard.keys() - right.keys()),
            ),
            lost=tuple(incident for incident, last in right.items() if heard.get(incident, [None])[-1] != last),
            repeated=Counter(request.key for request in taken) - Counter({request.key for request in taken}),
        )


def pages_of(taken: Sequence[Received]) -> Pages:
    """What requests to the receiver said of each incident, in order."""
    pages: Pages = {}
    for request in taken:
        incident, _, revision = request.key.rpartition("/")
        pages.setdefault(incident, []).append((int(revision), request.json["status"]))
    return pages
