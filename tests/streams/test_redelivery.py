"""Dead letters that are sent again."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

from schemas import catalogue
from schemas.errors import MessageError, UndecodableMessage, UnknownJob, WrongSchema
from schemas.message import Message, encode
from streams.dead_letters import dead_letter
from streams.redelivery import REPLAYED_FROM, Letter, Redelivered, Wanted, letters_of, redeliver
from tests.schemas.samples import good_samples

FINDINGS = catalogue.FINDINGS.name


class Outbox:
    """Keeps what is sent; ``safe`` is how much of it was flushed."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.safe = 0

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def flush(self) -> None:
        self.safe = len(self.sent)


def good(offset: int = 7, job: str = "a", headers: dict[str, str] | None = None) -> Message:
    rows = next(sample.rows for sample in good_samples() if sample.topic is catalogue.FINDINGS)
    made = encode(catalogue.FINDINGS, catalogue.FINDINGS.from_rows(rows), job=job)
    own = {"producer": "search/1f", "seq": "12", "produced_ns": "99", "request": "r"}
    return Message(FINDINGS, job, made.value, {**made.headers, **own, **(headers or {})}, 3, offset, 5_000)


def letters(messages: Iterable[tuple[Message, MessageError]], processor: str = "incidents") -> list[Letter]:
    return list(letters_of((dead_letter(message, error, processor) for message, error in messages), pytest.fail))


def test_key_value_and_headers_are_kept_under_another_sender() -> None:
    message, outbox = good(), Outbox()
    done = redeliver(letters([(message, WrongSchema("mended since"))]), {}, outbox)
    [sent] = outbox.sent
    assert outbox.safe == 1
    assert (sent.topic, sent.key, sent.value) == (message.topic, message.key, message.value)
    kept = {name: text for name, text in message.headers.items() if name not in {"producer", "seq", "produced_ns"}}
    assert sent.headers == {**kept, REPLAYED_FROM: f"{FINDINGS}/3/7"}
    assert done == Redelivered(sent={FINDINGS: 1})  # type: ignore[arg-type]


def test_a_second_burial_is_known_by_where_the_message_first_came_from() -> None:
    outbox = Outbox()
    redeliver(letters([(good(), WrongSchema("no"))]), {}, outbox)
    [sent] = outbox.sent
    again = Message(sent.topic, sent.key, sent.value, sent.headers, 1, 900, 6_000)
    buried = [*letters([(good(), WrongSchema("no"))]), *letters([(again, WrongSchema("still no"))])]
    assert [(letter.origin, letter.replayed_before) for letter in buried] == [
        (f"{FINDINGS}/3/7", False),
        (f"{FINDINGS}/3/7", True),
    ]
    outbox = Outbox()
    assert redeliver(buried, {}, outbox).repeated == 1
    assert [message.headers[REPLAYED_FROM] for message in outbox.sent] == [f"{FINDINGS}/3/7"]


def test_what_several_roles_buried_is_sent_once() -> None:
    error, outbox = WrongSchema("no"), Outbox()
    both = letters([(good(), error)], "incidents") + letters([(good(), error), (good(8), error)], "store")
    done = redeliver(both, {}, outbox)
    assert (done.sent.total(), done.repeated, len(outbox.sent)) == (2, 1, 2)


def test_what_still_fails_is_told_and_only_forced() -> None:
    junk = Message(FINDINGS, "a", b"junk", {"schema": "findings/1", "job": "a"}, 0, 1)
    stranger = Message("elsewhere", "a", b"junk", {"job": "a"}, 0, 2)
    huge = Message(FINDINGS, "a", os.urandom(9 << 20), {"schema": "findings/1", "job": "a"}, 0, 3)
    buried = letters([(message, UndecodableMessage("no")) for message in (junk, stranger, huge)])
    outbox = Outbox()
    done = redeliver([*buried, *letters([(good(), WrongSchema("no"))])], {}, outbox)
    assert [message.value for message in outbox.sent] == [good().value]
    reasons = [failing.reason for failing in done.failing]
    assert reasons[0].startswith("UndecodableMessage: analysis.findings: ")
    assert reasons[1:] == [
        "elsewhere is no topic of this build",
        "the message was too large for dead_letters, which kept the reason alone",
    ]
    assert not any(failing.sent for failing in done.failing)
    outbox = Outbox()
    forced = redeliver(buried, {}, outbox, force=True)
    assert [message.value for message in outbox.sent] == [b"junk", b"junk"]  # what is gone cannot be forced
    assert [failing.sent for failing in forced.failing] == [True, True, False]


def test_a_job_must_be_known_by_now() -> None:
    buried = letters([(good(), UnknownJob("job 'a' is not in control.jobs"))])
    outbox = Outbox()
    [failing] = redeliver(buried, {}, outbox).failing
    assert failing.reason == "UnknownJob: control.jobs does not know job 'a'"
    assert not outbox.sent
    assert not redeliver(buried, {"a": object()}, outbox).failing
    assert len(outbox.sent) == 1


def test_without_an_outbox_it_is_only_counted() -> None:
    done = redeliver(letters([(good(), WrongSchema("no"))]), {}, None)
    assert done.sent == {FINDINGS: 1}


def test_what_is_wanted() -> None:
    [letter] = letters([(good(job="a"), WrongSchema("no"))])
    for fits in (
        Wanted(),
        Wanted(topic=FINDINGS, error="WrongSchema", job="a", since_ns=5_000, until_ns=5_001),
    ):
        assert letter in fits
    for misses in (
        Wanted(topic="control.jobs"),
        Wanted(error="UnknownJob"),
        Wanted(job="b"),
        Wanted(since_ns=5_001),
        Wanted(until_ns=5_000),
    ):
        assert letter not in misses


def test_a_letter_is_the_message_as_it_was() -> None:
    message = good()
    [letter] = letters([(message, WrongSchema("no"))])
    assert letter.message == message


def test_a_record_that_is_no_letter_is_told_and_hides_none() -> None:
    told: list[str] = []
    letter = dead_letter(good(), WrongSchema("no"), "incidents")
    headers = {"schema": catalogue.DEAD_LETTERS.schema_id, "job": "a"}
    junk = Message(catalogue.DEAD_LETTERS.name, "a", b"junk", headers, 0, 5)
    assert [found.origin for found in letters_of([junk, letter], told.append)] == [f"{FINDINGS}/3/7"]
    assert len(told) == 1
    assert told[0].startswith("dead_letters partition 0 offset 5 cannot be read: UndecodableMessage: ")
