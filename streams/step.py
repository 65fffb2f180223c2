"""A message's journey through one processor instance; the same under both runners and in every test.

Skip what a saved state has counted in, process, dead-letter the poison, and know what may be committed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from schemas.errors import MessageError, Unprocessable
from schemas.message import Message
from schemas.processor import Holding, Processor, SavedState, Sink, Stateful, Waiting
from streams.checkpoints import counted_record, skipped_below, state_record, tombstone
from streams.dead_letters import FAILURES, MOST_IN_A_ROW, DeadLetters

log = logging.getLogger(__name__)


class Step:
    """One processor instance over one partition number of its inputs.

    Messages of one input come in the order of their offsets. The order of a commit is the caller's: deliver what
    ``take`` and ``tick`` returned, deliver ``changed_states``, ``flush``, deliver the states that this changed, commit
    ``offsets``, then deliver what ``committed`` returned. ``saved_as`` is whose the saved states are; the processor's,
    unless given.
    """

    def __init__(
        self,
        processor: Processor,
        *,
        partition: int = 0,
        saved: Mapping[str, SavedState] | None = None,
        bad_in_a_row: Mapping[str, SavedState] | None = None,
        most_in_a_row: int = MOST_IN_A_ROW,
        saved_as: str | None = None,
    ) -> None:
        self.processor = processor
        self._saved_as = saved_as or processor.name
        self.dead_letters = DeadLetters(processor.name, most_in_a_row=most_in_a_row, saved=bad_in_a_row)
        self.now_ns = 0
        self._partition = partition
        self._saved = dict(saved or {})
        self._stateful = processor if isinstance(processor, Stateful) else None
        self._sink = processor if isinstance(processor, Sink) else None
        self._writes = frozenset(topic.name for topic in processor.writes)
        self._next: dict[str, int] = {}
        self._last_good: dict[str, int] = {}
        self._restart: dict[str, int] = {}
        self._ended: dict[str, dict[str, int]] = {}
        if self._stateful is not None:
            self._stateful.restore(self._saved)

    def take(self, message: Message) -> list[Message]:
        """Process a message; what is to be published; where the message was bad or too much for the processor,
        what this made of it until then, and a record of dead_letters.

        Raises ``TooMuchPoison``, and whatever else the processor raises.
        """
        self._restart.setdefault(message.topic, message.offset)
        self.dead_letters.meet(message)
        outputs = [] if skipped_below(self._saved, message) else self._processed(message)
        self._next[message.topic] = message.offset + 1  # not before: what raised was not passed
        self.now_ns = message.timestamp_ns
        return outputs

    def tick(self, now_ns: int) -> list[Message]:
        """Give the processor the time; what is to be published."""
        return self._declared(list(self.processor.tick(now_ns)))

    @property
    def holds(self) -> bool:
        """Whether the processor may hold offsets back: it waits for others, or what it follows goes on."""
        waits = isinstance(self.processor, Waiting) and self.processor.next_deadline_ns() is not None
        return waits or (isinstance(self.processor, Holding) and self.processor.holds())

    def flush(self) -> None:
        """Return once all is safe outside that a sink has taken and its offsets do not hold back."""
        if self._sink is not None:
            self._sink.flush()

    def changed_states(self) -> list[Message]:
        """Records of control.state for what changed: states, and how many bad messages each input brought in a row.

        Ended jobs are only noted (see ``committed``).
        """
        name, records = self._saved_as, []
        for job, saved in ({} if self._stateful is None else self._stateful.changed_states()).items():
            if saved is None:
                self._ended[job] = dict(self._next)
            else:
                self._ended.pop(job, None)
                records.append(state_record(name, job, self._partition, saved, now_ns=self.now_ns))
        for topic, counted in self.dead_letters.changed(self._next).items():
            records.append(counted_record(name, topic, self._partition, counted, now_ns=self.now_ns))
        return records

    def offsets(self) -> dict[str, int]:
        """The offset to commit of each input by topic name: the next one needed after a restart.

        That is where the processor says so, unless it holds nothing back: then bad and skipped messages, which it
        never saw, are passed as well. While others hold back messages of a job that ``changed_states`` noted to have
        ended, they stay where they were: from further on, a restart would bring that job's last messages without
        those that its last saved state needs.
        """
        needed = {topic.name: offset for topic, offset in self.processor.safe_offsets().items()}
        safe = {
            topic: following if needed.get(topic, following) > self._last_good.get(topic, -1) else needed[topic]
            for topic, following in self._next.items()
        }
        return safe if len(self._passed(safe)) == len(self._ended) else {topic: self._restart[topic] for topic in safe}

    def committed(self, offsets: Mapping[str, int]) -> list[Message]:
        """Note what is committed; tombstones for the ended jobs whose messages can not come again."""
        self._restart.update(offsets)
        passed = self._passed(offsets)
        for job in passed:
            del self._ended[job]
        return [tombstone(self._saved_as, job) for job in passed]

    def _passed(self, offsets: Mapping[str, int]) -> list[str]:
        """The ended jobs of which a restart at these offsets brings nothing."""
        return [
            job
            for job, following in self._ended.items()
            if all(offsets.get(topic, 0) >= offset for topic, offset in following.items())
        ]

    def _processed(self, message: Message) -> list[Message]:
        outputs: list[Message] = []
        try:
            for output in self.processor.process(message):
                outputs.append(output)  # noqa: PERF402 - what came before a failure counts: the state has changed
        except MessageError as error:
            letter = self.dead_letters.bury(message, error)
        except FAILURES as error:
            what = f"{self.processor.name} failed on it: {type(error).__name__}: {error}"
            log.exception("%s partition %d offset %d: %s", message.topic, message.partition, message.offset, what)
            letter = self.dead_letters.bury(message, Unprocessable(what))
        else:
            self.dead_letters.good(message)
            self._last_good[message.topic] = message.offset
            return self._declared(outputs)
        return [*self._declared(outputs), letter]

    def _declared(self, outputs: list[Message]) -> list[Message]:
        for output in outputs:
            if output.topic not in self._writes:
                raise ValueError(f"{self.processor.name} published to {output.topic}, which it does not declare")
        return outputs
