"""The brokers: whether they answer, their topics, who reads them and how far behind, what was buried, their clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from offbeat.doctor.checked import CLOCK_WITHIN_S, Checked, failed, ok, refused, skipped, warning
from offbeat.setting_groups import WebhookSettings
from offbeat.settings import Settings
from offbeat.terminal import counted
from schemas import catalogue
from schemas.errors import BusError, SettingsError
from schemas.tables import TABLES
from schemas.topic import Topic
from streams.bus import Bus
from streams.compare import Compare
from streams.incidents import Incidents
from streams.monitor import Monitor
from streams.recent_letters import RecentLetters, recent_letters
from streams.search import Search
from streams.segment import Segment
from streams.standing import Standing, newest_ns, standings
from streams.topics import Change, apply

WITHIN_S = 10.0
"""A person waits no longer for a broker's answer."""

_DEAD_LETTERS = "dead letters"
_MOST_PLACES = 8

PAGE = "offbeat alert"
"""Who pages, where there is somebody to be paged."""

LATE_S = 300.0
"""From then on a worker that is behind counts as stuck; as its own /live page has it."""


def examine(settings: Settings) -> Iterator[Checked]:
    """The checks of Kafka; where no broker answers, that one alone."""
    from offbeat import wiring

    try:
        bus = wiring.bus(settings.kafka)
        changes = apply(bus, catalogue.TOPICS.values(), dry_run=True, within_s=WITHIN_S)
    except (BusError, SettingsError) as error:
        yield refused("brokers", error)
        return
    protection = "" if bus.encrypted else ", without TLS"
    yield ok("brokers", f"{bus.bootstrap_servers} answers{protection}")
    yield from of_topics(changes)
    missing = {change.topic for change in changes if change.before is None}
    yield from _groups(bus, settings, missing)
    if catalogue.DEAD_LETTERS.name not in missing:
        yield _dead_letters(bus)
    yield _clock(bus, missing)


def of_topics(changes: Sequence[Change]) -> Iterator[Checked]:
    """What differs from the catalogue: what ``topics apply`` would mend, and partition counts, which it leaves."""
    mendable = [change for change in changes if change.applied]
    if missing := sorted({change.topic for change in mendable if change.before is None}):
        yield failed("topics", f"missing: {', '.join(missing)}", "run `offbeat topics apply`")
    elif mendable:
        yield failed("topics", "; ".join(map(str, mendable)), "run `offbeat topics apply`")
    else:
        yield ok("topics", f"{len(catalogue.TOPICS)} topics with the settings of this build")
    for change in changes:
        if not change.applied:
            yield warning(
                "partitions",
                f"{change.topic} has {change.before}, the catalogue says {change.after}",
                "leave it while the topics that are read together agree; docs/operations.md, Tune",
            )


def roles(settings: Settings) -> dict[str, tuple[str, tuple[Topic, ...]]]:
    """Command and inputs of each role, by its name within the groups."""
    stored = tuple(table.topic for table in TABLES.values() if settings.store.comm_ops or table.name != "comm_ops")
    return {
        "monitor": ("offbeat worker monitor", Monitor.reads),
        "search": ("offbeat worker search", Search.reads),
        "segment": ("offbeat worker segment", Segment.reads),
        "compare": ("offbeat worker compare", Compare.reads),
        "incidents": ("offbeat worker incidents", Incidents.reads),
        "store": ("offbeat sink", stored),
        "page": (PAGE, (catalogue.INCIDENTS,)),
    }


def is_wanted(command: str, standing: Standing, webhook: WebhookSettings) -> bool:
    """Whether a role should run. Whom to page is set where that is done, which may be elsewhere: there it has run."""
    return command != PAGE or webhook.is_set or standing.has_run


def of_role(command: str, standing: Standing, now_s: float, *, wanted: bool = True) -> Checked:
    """How a role's group stands, at ``now_s`` since the epoch; ``wanted``: whether it has run, or is set to."""
    what = f"lag of {command}"
    age_s = None if standing.oldest_ns is None else max(now_s - standing.oldest_ns / 1e9, 0.0)
    waited = "" if age_s is None else f", the oldest for {age_s:.0f} s"
    behind = f"{counted(standing.behind, 'message')} behind{waited}"
    members = counted(standing.members, "member")
    if standing.members == 0 and standing.behind and wanted:
        return failed(what, f"no member, {behind}", f"start `{command}`; its log says why it ended")
    if standing.members == 0:
        waits = behind if standing.behind else "nothing waits"
        return warning(what, f"no member, {waits}", f"start `{command}` if it ought to run")
    if age_s is not None and age_s > LATE_S:
        todo = "read its log and its /live page; if it works, add workers, up to the partitions"
        return failed(what, f"{members}, {behind}", todo)
    return ok(what, f"{members}, {behind}")


def _groups(bus: Bus, settings: Settings, missing: set[str]) -> Iterator[Checked]:
    prefix = settings.worker.group_prefix
    known = {
        f"{prefix}.{name}": (command, [topic.name for topic in reads])
        for name, (command, reads) in roles(settings).items()
        if missing.isdisjoint(topic.name for topic in reads)
    }
    try:
        found = standings(bus, {group: topics for group, (_, topics) in known.items()}, within_s=WITHIN_S)
    except BusError as error:
        yield refused("lag", error)
        return
    for group, (command, _) in known.items():
        standing = found[group]
        yield of_role(command, standing, time.time(), wanted=is_wanted(command, standing, settings.webhook))


def _dead_letters(bus: Bus) -> Checked:
    try:
        return of_dead_letters(recent_letters(bus, time.time_ns(), within_s=WITHIN_S))
    except BusError as error:
        return refused(_DEAD_LETTERS, error)


def of_dead_letters(found: RecentLetters) -> Checked:
    """Which messages could not be processed lately, by role and topic: what they told is in no finding and no page."""
    if not found.of_day.total():
        return ok(_DEAD_LETTERS, "none in the last day")
    least = "" if found.whole else "at least "
    counts = f"{least}{found.of_hour.total()} in the last hour, {found.of_day.total()} in the last day"
    most = found.of_day.most_common(_MOST_PLACES)
    places = [f"{role} of {topic} {found.of_hour[role, topic]}, {count}" for (role, topic), count in most]
    if further := len(found.of_day) - len(most):
        places.append(f"{counted(further, 'further place')}")
    return warning(_DEAD_LETTERS, f"{counts}: {'; '.join(places)}", "run `offbeat dead-letters list`: it says why")


def _clock(bus: Bus, missing: set[str]) -> Checked:
    try:
        newest = newest_ns(bus, catalogue.TOPICS.keys() - missing, within_s=WITHIN_S)
    except BusError as error:
        return refused("clock of the brokers", error)
    return of_clock(newest, time.time())


def of_clock(newest: int | None, now_s: float) -> Checked:
    """Whether this host's clock is behind the brokers': they tell theirs by the records that they append alone."""
    what = "clock of the brokers"
    if newest is None:
        return skipped(what, "no record to tell it by")
    ahead_s = newest / 1e9 - now_s
    if ahead_s > CLOCK_WITHIN_S:
        return failed(
            what,
            f"their newest record lies {ahead_s:.1f} s in this host's future",
            "keep time with NTP here and on the brokers",
        )
    return ok(what, f"not ahead of this host's; their newest record is {max(-ahead_s, 0.0):.0f} s old")
