"""One tree of errors, and its picture."""

import inspect
import re

from schemas import errors


def classes() -> dict[str, type[Exception]]:
    """Every error, by name."""
    return {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}


def test_the_picture_of_the_tree_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r" {4}(?P<indent>[ │├└─]*)(?P<name>[A-Z]\w+)", line)
        if match:
            level = len(match["indent"]) // 4
            path[level:] = [match["name"]]
            drawn[match["name"]] = path[level - 1] if level else "Exception"
    assert drawn == {name: kind.__bases__[0].__name__ for name, kind in classes().items()}


def test_every_error_says_what_it_means() -> None:
    for name, kind in classes().items():
        assert kind.__doc__, name
        assert str(kind("what, where, what to do")) == "what, where, what to do"
