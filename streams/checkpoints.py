"""What a processor saved of each job, as records of control.state.

A state is written after the outputs it already counted in and before the offsets are committed; the messages
below its offsets are skipped after a restart. The record with the highest offsets counts, not the last: a worker
whose partition was taken away may still be writing. The state of an ended job is a tombstone, written only after
its last messages are committed, so that none of them is ever processed again without the state.

How many bad messages a partition of an input has brought in a row goes the same way, whether its processor has states
or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas import catalogue
from schemas.errors import BusError, MessageError, WrongSchema
from schemas.message import Message, decode, encode
from schemas.processor import SavedState

_PARTITION = "partition"
_NO_JOB = "none"


@dataclass(frozen=True, slots=True)
class _Saved:
    partition: int
    state: SavedState

    @property
    def progress(self) -> int:
        """Orders the states of a job: offsets only rise, so of two states the later has the larger sum."""
        return sum(self.state.offsets.values())


class Checkpoints:
    """The states of one processor that count, built by taking the records of control.state in their order."""

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._prefix = _key(processor, "")
        self._saved: dict[str, _Saved] = {}

    def take(self, message: Message) -> None:
        """Take one record of control.state; those of other processors are passed over.

        Raises ``BusError`` for a record of this processor that cannot be read: to go on without it would be to
        forget a job's past.
        """
        if not message.key.startswith((self._prefix, _counted_key(self._processor, ""))):
            return
        if message.value is None:
            self._saved.pop(message.key, None)
            return
        try:
            saved = _decoded(message)
        except MessageError as error:
            raise BusError(
                f"{message.topic} partition {message.partition} offset {message.offset}: the saved state of "
                f"{message.key} cannot be read: {error}. Write a tombstone under this key to start the job anew"
            ) from error
        known = self._saved.get(message.key)
        if known is None or saved.progress >= known.progress:
            self._saved[message.key] = saved

    def of(self, partition: int) -> dict[str, SavedState]:
        """The states by job that the instance of a partition number saved."""
        return {
            key.removeprefix(self._prefix): saved.state
            for key, saved in self._saved.items()
            if saved.partition == partition and key.startswith(self._prefix)
        }

    def bad_in_a_row(self, partition: int) -> dict[str, SavedState]:
        """The bad messages in a row of each input, by topic, that the instance of a partition number has counted.

        An input that never brought any is not among them.
        """
        prefix = _counted_key(self._processor, f"{partition}/")
        return {key.removeprefix(prefix): saved.state for key, saved in self._saved.items() if key.startswith(prefix)}


def state_record(processor: str, job: str, partition: int, saved: SavedState, *, now_ns: int = 0) -> Message:
    """The record of control.state that saves a job's state.

    Raises ``MessageTooLarge`` for a state beyond the topic's bound: a programming error of its processor.
    """
    return _record(_key(processor, job), processor, job, partition, saved, now_ns)


def counted_record(processor: str, topic: str, partition: int, saved: SavedState, *, now_ns: int = 0) -> Message:
    """The record of control.state that saves how many bad messages a partition of a topic has brought in a row."""
    return _record(_counted_key(processor, f"{partition}/{topic}"), processor, _NO_JOB, partition, saved, now_ns)


def _record(key: str, processor: str, job: str, partition: int, saved: SavedState, now_ns: int) -> Message:
    row = {
        "processor": processor,
        "job": job,
        "offsets": [{"topic": topic, "offset": offset} for topic, offset in sorted(saved.offsets.items())],
        "format": saved.format,
        "state": saved.state,
    }
    return encode(
        catalogue.STATE,
        catalogue.STATE.from_rows([row]),
        job=job,
        key=key,
        watermark_ns=now_ns,
        headers={_PARTITION: str(partition)},
    )


def tombstone(processor: str, job: str) -> Message:
    """The record of control.state that drops an ended job's state."""
    return Message(catalogue.STATE.name, _key(processor, job), None, {"schema": catalogue.STATE.schema_id, "job": job})


def skipped_below(states: Mapping[str, SavedState], message: Message) -> bool:
    """Whether the state of the message's job, or of what else it is keyed by, has counted the message in already."""
    saved = states.get(message.key) or states.get(message.job)
    return saved is not None and message.offset < saved.offsets.get(message.topic, 0)


def _key(processor: str, job: str) -> str:
    return f"{processor}/{job}"


def _counted_key(processor: str, place: str) -> str:
    """No job's key: builds that know of none pass it over. Those that counted over all inputs had no topic in it."""
    return f"{processor}#{place}"


def _decoded(message: Message) -> _Saved:
    partition = message.headers.get(_PARTITION, "")
    if not partition.isdecimal():
        raise WrongSchema(f"{message.topic}: header {_PARTITION} is {partition!r}, expected a partition number")
    rows = decode(message, catalogue.STATE).to_pylist()
    if len(rows) != 1:
        raise WrongSchema(f"{message.topic}: {len(rows)} rows in a record, expected one")
    [row] = rows
    offsets = {offset["topic"]: offset["offset"] for offset in row["offsets"]}
    return _Saved(int(partition), SavedState(offsets, row["format"], row["state"]))
