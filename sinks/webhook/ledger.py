"""What paging knows of one job's incidents: what was told, what is held back and why. It survives a restart.

The ledger holds rows of analysis.incidents, so that a page which is due later (a silence ends, a receiver wants to
hear again) can be made without the record that brought it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from schemas.errors import UndecodableMessage
from sinks.webhook.content import Row, ended_ns
from sinks.webhook.inhibition import Extent

FORMAT = "page/2"
FORMER_FORMAT = "page/1"
"""Revisions without rows; read so that an upgrade forgets nothing."""

MOST_TITLES = 16
"""Incidents that a summary names."""

_SAVED_AS = {"delivered_revision": "told", "delivered_ns": "told_ns"}
"""What fields are called in the saved form, where that is another name."""

_REMEMBERED_PAST = 4096
"""Past incidents remembered a job. A replay reaches back some batches, never thousands of incidents."""


class Verdict(StrEnum):
    """What becomes of an incident."""

    UNDECIDED = "undecided"
    TOLD = "told"
    """A person hears of it, from its first page to its resolution."""
    SUMMARISED = "summarised"
    """There are too many: the job's summary tells of it."""
    INHIBITED = "inhibited"
    """It is the consequence of another one."""
    SILENCED = "silenced"


@dataclass(slots=True)
class Known:
    """An incident that is open, or whose end is still to be told.

    ``row`` is the first record of its newest revision: what a page of that revision says, however often it is sent.
    ``delivered_revision`` is the last one that was delivered (0: none), at ``delivered_ns`` by our own clock.
    ``because`` is the incident that it follows from, and ``because_last`` the last iteration that that one affected.
    """

    row: Row
    extent: Extent
    verdict: Verdict = Verdict.UNDECIDED
    delivered_revision: int = 0
    delivered_ns: int = 0
    because: str = ""
    because_last: int | None = None

    @property
    def revision(self) -> int:
        """The newest revision."""
        return int(self.row["revision"])

    @property
    def resolved(self) -> bool:
        """Whether the incident is over."""
        return bool(self.row["state"] == "resolved")

    @property
    def has_news(self) -> bool:
        """Whether the newest revision was not delivered yet."""
        return self.revision > self.delivered_revision


@dataclass(slots=True)
class Summary:
    """The one page about the incidents beyond the rate limit.

    ``count`` of them so far, ``titles`` of the first of them, those ``open`` still. Its revision rises with each
    incident that joins it and when the last one ends: what a revision says does not depend on when it is sent.
    """

    id: str
    opened_ns: int
    revision: int = 0
    count: int = 0
    titles: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    ended_ns: int | None = None
    delivered_revision: int = 0
    delivered_ns: int = 0

    @property
    def resolved(self) -> bool:
        """Whether all its incidents are over."""
        return self.ended_ns is not None

    @property
    def has_news(self) -> bool:
        """Whether the newest revision was not delivered yet."""
        return self.revision > self.delivered_revision


class Ledger:
    """The incidents of one job by id, the summaries, and when pages were admitted (ns, the messages' time)."""

    def __init__(self) -> None:
        self.incidents: dict[str, Known] = {}
        self.summaries: dict[str, Summary] = {}
        self.admitted: list[int] = []
        self._past: dict[str, tuple[int, bool]] = {}

    @property
    def empty(self) -> bool:
        """Whether nothing is open and nothing waits."""
        return not self.incidents and all(one.resolved and not one.has_news for one in self.summaries.values())

    def take(self, row: Row) -> bool:
        """Take a record of an incident in; whether it is a revision that was not known."""
        incident, revision, extent = row["id"], int(row["revision"]), Extent.of(row)
        known = self.incidents.get(incident)
        if known is not None:
            known.extent = known.extent.widened(extent)
            news = revision > known.revision
            if news:
                known.row = _kept(row)
            return news
        past, told = self._past.get(incident, (0, False))
        if revision <= past:
            return False
        if past and not told and row["state"] == "resolved":  # nobody was told of it: nor is anyone of its end
            self._pass(incident, revision, told=False)
            return False
        self._past.pop(incident, None)
        verdict = Verdict.TOLD if told else Verdict.UNDECIDED
        self.incidents[incident] = Known(_kept(row), extent, verdict, past if told else 0)
        return True

    def drop(self, incident: str) -> None:
        """Forget an incident of which nobody was told and that is over."""
        known = self.incidents.pop(incident)
        self._pass(incident, known.revision, told=False)

    def forget(self, incident: str) -> None:
        """Forget an incident as if it had never been known: its record may come again, and it explains nothing."""
        del self.incidents[incident]
        for known in self.incidents.values():
            if known.because == incident:
                known.because, known.because_last = "", None

    def summarise(self, incident: str, title: str, window_ns: int) -> None:
        """Put an incident under the job's summary, which goes on for at least a window: a new one after that."""
        now_ns = self.incidents[incident].row["updated_ns"]
        summary = next((s for s in self.summaries.values() if not s.resolved or now_ns - s.opened_ns < window_ns), None)
        if summary is None:
            self.summaries = {one.id: one for one in self.summaries.values() if one.has_news}
            summary = self.summaries[f"more-{incident}"] = Summary(f"more-{incident}", now_ns)
        summary.revision += 1
        summary.count += 1
        summary.open.append(incident)
        summary.ended_ns = None
        if len(summary.titles) < MOST_TITLES:
            summary.titles.append(title)

    def summarised_is_over(self, incident: str) -> None:
        """An incident of a summary is over; the summary is, once all of them are."""
        ended = ended_ns(self.incidents[incident].row)
        for summary in self.summaries.values():
            if incident in summary.open:
                summary.open.remove(incident)
                if not summary.open:
                    summary.revision += 1
                    summary.ended_ns = ended
        self.drop(incident)

    def settle(self, now_ns: int, linger_ns: int) -> bool:
        """Forget the incidents that are over and were told ``linger_ns`` ago; whether there were any."""
        over = [
            incident
            for incident, known in self.incidents.items()
            if known.resolved and not known.has_news and now_ns - known.delivered_ns >= linger_ns
        ]
        for incident in over:
            self._pass(incident, self.incidents.pop(incident).revision, told=True)
        return bool(over)

    def to_bytes(self) -> bytes:
        """The saved form."""
        state = {
            "incidents": [_saved(known) for known in self.incidents.values()],
            "summaries": [_saved(summary) for summary in self.summaries.values()],
            "admitted": self.admitted,
            "past": [[incident, *past] for incident, past in self._past.items()],
        }
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, state: bytes, form: str = FORMAT) -> Ledger:
        """Read the saved form, or the former one; raises ``UndecodableMessage``."""
        restored = cls()
        try:
            saved = json.loads(state)
            past = _former(saved) if form == FORMER_FORMAT else saved["past"]
            for incident, revision, told in past:
                restored._past[str(incident)] = (_whole(revision), bool(told))
            if form != FORMER_FORMAT:
                restored._restore(saved)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UndecodableMessage(f"page: a saved state cannot be read: {type(error).__name__}: {error}") from error
        return restored

    def _restore(self, saved: Mapping[str, Any]) -> None:
        for fields in saved["incidents"]:
            own = {**_read(fields), "extent": Extent(**fields["extent"]), "verdict": Verdict(fields["verdict"])}
            self.incidents[fields["row"]["id"]] = Known(**own)
        self.summaries = {fields["id"]: Summary(**_read(fields)) for fields in saved["summaries"]}
        self.admitted = [_whole(at_ns) for at_ns in saved["admitted"]]

    def _pass(self, incident: str, revision: int, *, told: bool) -> None:
        self._past.pop(incident, None)
        self._past[incident] = (revision, told)
        if len(self._past) > _REMEMBERED_PAST:
            del self._past[next(iter(self._past))]


def _kept(row: Row) -> Row:
    """A row without what no page says and what grows for as long as an incident lasts."""
    return {**row, "findings": []}


def _saved(one: Known | Summary) -> dict[str, Any]:
    return {_SAVED_AS.get(name, name): value for name, value in asdict(one).items()}


def _read(saved: Mapping[str, Any]) -> dict[str, Any]:
    names = {name: field for field, name in _SAVED_AS.items()}
    return {names.get(name, name): value for name, value in saved.items()}


def _former(saved: Mapping[str, Any]) -> Iterator[Iterable[Any]]:
    for state in ("open", "resolved"):
        yield from ([incident, revision, True] for incident, revision in saved[state].items())


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value
