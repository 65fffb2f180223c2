"""The errors of Offbeat, one tree.

    OffbeatError
    ├── SettingsError            a setting or an argument is wrong
    ├── InputError               a recording cannot be read as what it claims to be
    ├── ModelError               a trained model cannot be used: damaged, or made for other features
    ├── MessageError             a message is poison: it goes to dead_letters
    │   ├── MessageTooLarge      larger than its topic allows, before or after decompression
    │   ├── UndecodableMessage   not an Arrow IPC stream holding one record batch
    │   ├── WrongSchema          a column or header is missing or has another type
    │   ├── ImpossibleValue      a value that cannot be (a negative rank, an end before its call)
    │   ├── UnknownJob           a record of a job that control.jobs does not know
    │   └── Unprocessable        nothing is wrong with it, but a processor fails on it
    ├── TooMuchPoison            so many bad messages in a row that going on would hide a failure
    ├── DeliveryError            the message bus did not take what was sent
    ├── BusError                 the message bus is not as the catalogue says, or cannot be reached
    ├── StoreError               the store refused, or cannot be reached
    ├── OutputError              what a command prints cannot be written
    └── ReceiverError            a webhook receiver refused, or cannot be reached

Messages say what is wrong, where, and what to do. ``diagnosis`` raises plain ``ValueError``:
its callers know the file, line or offset and say so.
"""


class OffbeatError(Exception):
    """Root of every error that Offbeat raises on purpose."""


class SettingsError(OffbeatError):
    """A setting or an argument is wrong."""


class InputError(OffbeatError):
    """A recording cannot be read; the message names file, line and field."""


class ModelError(OffbeatError):
    """A trained model cannot be used; the message names the file, what is wrong, and what to do."""


class MessageError(OffbeatError):
    """A message is poison: it goes to dead_letters and the stream goes on."""


class MessageTooLarge(MessageError):
    """A message exceeds its topic's bound, before or after decompression."""


class UndecodableMessage(MessageError):
    """The value is not an Arrow IPC stream that holds one record batch."""


class WrongSchema(MessageError):
    """A column or header is missing or has the wrong type."""


class ImpossibleValue(MessageError):
    """A value that cannot be."""


class UnknownJob(MessageError, KeyError):
    """A record of a job that control.jobs does not know; what a look-up of the job raises."""

    __str__ = Exception.__str__  # a KeyError would quote the message


class Unprocessable(MessageError):
    """A message that passed every check, and that a processor failed on: the fault is the processor's."""


class TooMuchPoison(OffbeatError):
    """Too many bad messages in a row; the worker stops loudly."""


class DeliveryError(OffbeatError):
    """The message bus did not take what was sent."""


class BusError(OffbeatError):
    """The message bus is not as the catalogue says, or cannot be reached."""


class StoreError(OffbeatError):
    """The store refused, or cannot be reached."""


class OutputError(OffbeatError):
    """What a command prints cannot be written."""


class ReceiverError(OffbeatError):
    """A webhook receiver refused, or cannot be reached."""
