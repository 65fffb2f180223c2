"""What the tests of producers share."""

import pytest

from producers.importers.recording import Recording, load
from tests.recordings import EXAMPLE


@pytest.fixture(scope="session")
def example() -> Recording:
    """Eight ranks over Gloo; rank 5 computes slowly from iteration 30."""
    return load([EXAMPLE])
