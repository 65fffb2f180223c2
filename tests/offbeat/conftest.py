"""Commands configure logging for their process: here it is put back after each test."""

import pytest


@pytest.fixture(autouse=True)
def _commands_leave_no_logging(logging_as_before: None) -> None:
    """Whatever a test runs."""
