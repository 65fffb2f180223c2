"""A full disk under the rings that training processes log into: training goes on, with or without a log."""

import subprocess
import sys

from tests.faults.agents import train
from tests.faults.live_host import ITERATIONS, AgentProcess
from tests.faults.site import Site
from tests.faults.small_disk import NoSmallDisk, SmallDisk, small_disk
from tests.offbeat.command_line import ROOT

_MEGABYTES = 24

_NOT_LOGGED = "the operators of rank 0 are not logged"
"""As a process says it that has no log."""

_TRAINING = """
import sys
from pathlib import Path
from offbeat.operator_log import OperatorLog
log = OperatorLog(rank=0, job="full", world=1, folder=Path(sys.argv[1]))
for iteration in range(1_000):
    log.iteration(iteration)
    for _ in range(10):
        log.end(log.begin("tensor", "all_reduce", 1 << 20))
print("trained", flush=True)
"""


def fill_rings_disk(site: Site) -> None:
    """Fill the disk while the processes of a job log: nothing of it is lost. One that comes then has no log, says so,
    and trains to its end.
    """
    try:
        with small_disk(site.folder / "rings-full", _MEGABYTES) as disk:

            def amid(_: AgentProcess, iteration: int) -> None:
                if iteration == ITERATIONS // 3:
                    disk.fill()
                    site.tally.outages += 1
                    _train_without_a_log(site, disk)
                if iteration >= ITERATIONS // 3:
                    site.expect(disk.is_full, f"in iteration {iteration} there was room on the disk of the rings")

            train(site, site.folder / "kept-beside-full-rings", amid, rings=disk.folder / "rings")
    except NoSmallDisk as reason:
        site.tally.skipped.append(str(reason))


def _train_without_a_log(site: Site, disk: SmallDisk) -> None:
    """A process of another job, that opens its log on a disk which is full."""
    done = subprocess.run(
        [sys.executable, "-c", _TRAINING, str(disk.folder / "others")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    site.expect(done.stdout.split() == ["trained"], f"a training process ended with {done.returncode}: {done.stderr}")
    site.expect(_NOT_LOGGED in done.stderr, f"a process without a log did not say so: {done.stderr}")
