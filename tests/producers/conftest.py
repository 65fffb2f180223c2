"""What the tests of producers share: the recording that ships with Offbeat."""

from pathlib import Path

import pytest

from producers.importers.recording import Recording, load

EXAMPLE = Path(__file__).parents[2] / "examples" / "a1_compute_persist_3d"


@pytest.fixture(scope="session")
def example() -> Recording:
    """Eight ranks over Gloo; rank 5 computes slowly from iteration 30."""
    return load([EXAMPLE])
