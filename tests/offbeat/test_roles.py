"""What the long-running roles ask of the runner."""

from collections.abc import Callable
from typing import Any

import pytest

from offbeat import roles
from offbeat.settings import Settings
from schemas.errors import ModelError
from schemas.processor import Processor
from streams.control_view import Jobs
from streams.share import Context


@pytest.mark.parametrize(
    ("step", "at_once"),
    [("monitor", True), ("compare", True), ("search", False), ("segment", False), ("incidents", False)],
)
def test_what_a_step_saved_that_may_be_overdue_is_looked_at_right_after_a_restart(
    step: str, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(roles, "run_worker", lambda *_, **options: asked.update(options))
    roles.run_step(step, Settings())
    assert asked["at_once"] == at_once


@pytest.mark.parametrize("step", ["monitor", "segment", "compare", "incidents"])
def test_only_the_step_that_searches_loads_the_model(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings().model_copy(update={"model": "/no/such.skops"})

    def run(make: Callable[[Context], Processor], **_: object) -> None:
        make(Context(0, Jobs()))

    monkeypatch.setattr(roles, "run_worker", run)
    roles.run_step(step, settings)
    with pytest.raises(ModelError):
        roles.run_step("search", settings)
