"""Several receivers of which all are told and one is enough: Alertmanagers, which do not pass alerts on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from schemas.errors import ReceiverError
from sinks.webhook.delivery import Delivery, ReceiverAway
from sinks.webhook.receiver import Request

_log = structlog.get_logger(__name__)

PAUSE_S = 30.0
"""A member that failed is left alone for so long while another one takes the pages: it may cost a time-out each."""


class Cluster:
    """Posts to every member; a page is taken once one member took it. The others hear of it when it is sent again."""

    def __init__(self, members: Sequence[Delivery], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._members = tuple(members)
        self._clock = clock
        self._failed_at: dict[Delivery, float] = {}

    def post(self, request: Request, key: str) -> None:
        """Send a request to the members that are there, and to all where none of those takes it.

        Raises what a member raises where no member took it: that one is away, if one is.
        """
        paused = [member for member in self._members if self._is_paused(member)]
        failures = self._failures([member for member in self._members if member not in paused], request, key)
        if len(failures) + len(paused) == len(self._members):
            failures += self._failures(paused, request, key)
        if len(failures) == len(self._members):
            raise next((failure for failure in failures if isinstance(failure, ReceiverAway)), failures[0])

    def _failures(self, members: Sequence[Delivery], request: Request, key: str) -> list[ReceiverError]:
        failures: list[ReceiverError] = []
        for member in members:
            try:
                member.post(request, key)
            except ReceiverError as failure:
                if member not in self._failed_at:
                    _log.warning("member away", place=member.place, error=str(failure))
                self._failed_at[member] = self._clock()
                failures.append(failure)
            else:
                if self._failed_at.pop(member, None) is not None:
                    _log.info("member back", place=member.place)
        return failures

    def _is_paused(self, member: Delivery) -> bool:
        return member in self._failed_at and self._clock() - self._failed_at[member] < PAUSE_S
