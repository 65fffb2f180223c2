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


def test_what_others_wrote_tells_a_terminal_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "\x1b]0;x\x07\r\x9b2J\nno dead letters"
    refused = Message(f"e{evil}", "a", b"", {"job": f"j{evil}"}, 1, 7)
    unread = Message(LETTERS.name, "a", b"", {"schema": f"s{evil}", "job": "a"}, 0, 5)
    holding(monkeypatch, unread, dead_letter(refused, WrongSchema(f"r{evil}"), "incidents"))
    for command in ("list", "replay"):
        shown = offbeat("dead-letters", command, *(["--dry-run"] if command == "replay" else []))
        assert r"e\x1b]0;x\x07\r\x9b2J\nno dead letters" in shown.stdout
        assert all(c.isprintable() or c == "\n" for c in shown.output)
        assert "no dead letters" not in shown.output.splitlines()
