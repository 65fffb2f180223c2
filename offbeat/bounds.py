"""What the numbers of a room's settings may be, as the metadata of their fields say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple


class Bound(NamedTuple):
    """What a number of a room may be, as the metadata of its field say: ``least`` or more, or more than ``above``; and
    ``most`` or less.
    """

    least: int = 0
    above: int | None = None
    most: int | None = None

    def __str__(self) -> str:
        low = f"{self.least} or more" if self.above is None else f"more than {self.above}"
        return low if self.most is None else f"{low}, at most {self.most}"

    def holds(self, number: float) -> bool:
        """Whether a number is within."""
        low = number >= self.least and (self.above is None or number > self.above)
        return low and (self.most is None or number <= self.most)


def numbers(group: Any, name: str) -> Iterator[tuple[str, float, Bound]]:
    """The numbers of a group and those in it, with their bounds; metadata that name no bound are a ``TypeError``."""
    for field in fields(group):
        value = getattr(group, field.name)
        if is_dataclass(value):
            yield from numbers(value, f"{name}.{field.name}")
        elif isinstance(value, int | float):
            yield f"{name}.{field.name}", value, Bound(**field.metadata)
