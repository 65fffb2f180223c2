"""Which messages a restart needs again: those that tell of what a saved state does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas import catalogue
from schemas.message import Message
from schemas.topic import Topic


class HeldOffsets:
    """What one saved state, of a job or of a host of it, holds back of its inputs, by topic name.

    ``needed``: the first offset that a restart needs of each input of which it needs any, as was last saved.
    """

    def __init__(self, saved: Mapping[str, int] | None = None) -> None:
        """``saved``: the offsets of the state that is gone on from, where there is one."""
        self.needed = dict(saved or {})
        self._following = dict(saved or {})
        self._held: dict[str, dict[int, int]] = {}

    def hold(self, message: Message, newest_ns: int | None) -> None:
        """Note a message, and the newest time that it tells of; None: a saved state holds all of it."""
        self.needed.setdefault(message.topic, message.offset)
        self._following[message.topic] = message.offset + 1
        if newest_ns is not None:
            self._held.setdefault(message.topic, {})[message.offset] = newest_ns

    def save(self, needed_from_ns: Mapping[str, int]) -> dict[str, int]:
        """The offsets to save a state with: from there on what it does not hold is read again.

        ``needed_from_ns`` is since when what each input tells of is needed, for every input that is held.
        """
        for topic, held in self._held.items():
            since_ns = needed_from_ns[topic]
            self._held[topic] = {offset: newest_ns for offset, newest_ns in held.items() if newest_ns >= since_ns}
        self.needed = {topic: min(held) for topic, held in self._held.items() if held}
        return self._following | self.needed


def needed_of_all(states: Iterable[HeldOffsets]) -> dict[Topic, int]:
    """The first offset that a restart needs of each input of which any of the states needs some."""
    needed: dict[Topic, int] = {}
    for state in states:
        for name, offset in state.needed.items():
            topic = catalogue.TOPICS[name]
            needed[topic] = min(offset, needed.get(topic, offset))
    return needed
