"""Messages that were lost between a producer and an input, told by the gaps that they leave in its numbers."""

from __future__ import annotations

from collections import OrderedDict

from schemas.message import Message, TopicKey

_MOST_DIGITS = 18
"""Of a number; more than any producer ever sends."""


class Losses:
    """Follows the numbers of all producers, for inputs that are read without a break: those of one assignment.

    A producer numbers the messages of a topic and key from 0, under an id of its start; those of one key come in
    order. Its first message that is seen is no evidence, whatever its number: reading began in the middle, or the
    producer started anew. Numbers that were passed already are repeated messages. Of more than ``most`` producers'
    topics and keys those not heard of for longest are forgotten, and begin again.
    """

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._highest: OrderedDict[tuple[str, TopicKey], int] = OrderedDict()

    def take(self, message: Message) -> int:
        """How many messages are missing right before this one; 0 for one that bears no producer, number or key."""
        number = _number(message.headers.get("seq", ""))
        producer = message.headers.get("producer")
        if number is None or not producer or not message.key:  # without a key a message goes to any partition
            return 0
        source = (producer, (message.topic, message.key))
        highest = self._highest.get(source)
        self._highest[source] = number if highest is None else max(highest, number)
        self._highest.move_to_end(source)
        if len(self._highest) > self._most:
            self._highest.popitem(last=False)
        return 0 if highest is None else max(0, number - highest - 1)


def _number(text: str) -> int | None:
    """A header's number; None where it is none, as in messages of others."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        return None
    return int(text)
