"""What the long-running roles ask of the runner."""

from typing import Any

import pytest

from offbeat import roles
from offbeat.settings import Settings


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
