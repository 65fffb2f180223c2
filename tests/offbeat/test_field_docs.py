"""The docstrings of fields are read from where they stand."""

from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel

from offbeat.field_docs import field_docs


@dataclass(frozen=True, slots=True)
class Room:
    """About the room."""

    width: float = 2.0
    """Its width, in metres."""
    doors: int = field(default=1, metadata={"least": 1})
    """How many doors it has;
    raised, it is
      draughty."""
    lit: bool = True

    @property
    def wide(self) -> bool:
        """Whether it is."""
        return self.width > 3

    name: str = ""
    """What it is called."""


class Model(BaseModel):
    name: str = "a"
    """What it is called."""
    other: str = "b"
    # no docstring of ``other``
    third: str = "c"
    """The third."""
    "And this is nobody's."


class Further(Model):
    fourth: str = "d"
    """The fourth."""


def test_what_stands_under_a_field_is_its_own() -> None:
    assert field_docs(Room) == {
        "width": "Its width, in metres.",
        "doors": "How many doors it has;\nraised, it is\n  draughty.",
        "name": "What it is called.",
    }


def test_models_are_read_as_well_without_their_bases() -> None:
    assert field_docs(Model) == {"name": "What it is called.", "third": "The third."}
    assert field_docs(Further) == {"fourth": "The fourth."}


def test_a_class_within_a_function_is_read() -> None:
    class Local:
        x: int = 0
        """What is
        here."""

    assert field_docs(Local) == {"x": "What is\nhere."}


def test_a_class_without_source_is_refused() -> None:
    with pytest.raises(OSError, match=r"source code|class definition"):
        field_docs(type("Made", (), {}))
