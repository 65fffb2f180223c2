"""Where the recordings lie that tests read: the one that ships with Offbeat, and the samples beside the project."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "a1_compute_persist_3d"
SAMPLES = Path(os.environ.get("OFFBEAT_SAMPLES", ROOT.parent / "shared" / "samples"))


def sample(name: str) -> Path:
    """A sample's folder; skips the test where the samples are not there."""
    folder = SAMPLES / name
    if not folder.is_dir():
        pytest.skip(f"no recorded samples in {SAMPLES}: name their folder with OFFBEAT_SAMPLES")
    return folder
