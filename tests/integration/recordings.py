"""What the pipeline is fed with: recorded runs, each time under a job id of its own."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from offbeat.options import scenario
from producers.simulation import simulate, write

SCENARIO = "seed=5,tp=2,pp=2,dp=2,gpus_per_host=4,microbatches=2,layers=2,iterations=36"
FAULTS = [
    "kind=gpu_slow,rank=5,iterations=12-20,slowdown=1.4",
    "kind=nic_slow,rank=2,iterations=26-35,slowdown=1.4",
]
"""One after the other: two incidents, each opened, worse, resolved."""


@dataclass(frozen=True)
class Recorded:
    """A recording; the folder's name is its job id."""

    folder: Path

    @property
    def job(self) -> str:
        return self.folder.name


def simulated(folder: Path) -> Path:
    """Write the log of eight ranks on two hosts, one of them with a slow GPU and later one with a slow NIC."""
    write(simulate(scenario(SCENARIO, FAULTS)), folder)
    return folder


def under_job(recording: Path, job: str, parent: Path) -> Recorded:
    """The same recording under another job id."""
    folder = parent / job
    shutil.copytree(recording, folder)
    described = folder / "job.json"
    if described.exists():
        described.write_text(json.dumps({**json.loads(described.read_text()), "job": job}))
    return Recorded(folder)


def new_job(what: str) -> str:
    return f"{what}-{uuid4().hex[:8]}"
