"""`offbeat dead-letters` over records that anybody may have written, without a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from schemas import catalogue
from schemas.errors import WrongSchema
from schemas.message import Message
from streams.dead_letters import dead_letter
from tests.offbeat.command_line import offbeat

LETTERS = catalogue.DEAD_LETTERS
JUNK = Message(LETTERS.name, "a", b"junk", {"schema": LETTERS.schema_id, "job": "a"}, 0, 5)
GOOD = dead_letter(Message("elsewhere", "a", b"", {"job": "a"}, 1, 7), WrongSchema("no"), "incidents")


class Kept:
    """What a topic holds, for who follows it."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def catch_up(self) -> list[Message]:
        return self._messages


def holding(monkeypatch: pytest.MonkeyPatch, *letters: Message) -> None:
    """Let dead_letters hold these, and every other topic nothing."""

    @contextmanager
    def follower(_: object, topic: str, **__: object) -> Iterator[Kept]:
        yield Kept([*letters] if topic == LETTERS.name else [])

    monkeypatch.setattr("streams.topics.check", lambda *_, **__: None)
    monkeypatch.setattr("streams.follower.Follower", follower)


def test_a_record_that_cannot_be_read_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    holding(monkeypatch, JUNK, GOOD)
    listed = offbeat("dead-letters", "list", "--json")
    assert listed.exit_code == 0, listed.output
    assert [row["offset"] for row in json.loads(listed.stdout)] == [7]
    assert "dead_letters partition 0 offset 5 cannot be read: UndecodableMessage: " in listed.stderr
    replayed = offbeat("dead-letters", "replay", "--dry-run")
    assert replayed.exit_code == 1, replayed.output
    assert "not sent: elsewhere partition 1 offset 7: " in replayed.stdout
    assert "dead_letters partition 0 offset 5 cannot be read: " in replayed.stderr
