"""A full disk under the rings that training processes log into: training goes on, with or without a log."""

import subprocess
import sys
from pathlib import Path

from tests.faults.site import Site
from tests.faults.small_disk import NoSmallDisk, SmallDisk, small_disk
from tests.offbeat.command_line import ROOT

_MEGABYTES = 8

_TRAINING = """
import sys
from pathlib import Path
from offbeat.operator_log import OperatorLog
log = OperatorLog(rank=0, job="full", world=1, folder=Path(sys.argv[1]))
for iteration in range(2_000):
    if iteration == 1_000:
        print("half", flush=True)
        sys.stdin.readline()
    log.iteration(iteration)
    for _ in range(10):
        log.end(log.begin("tensor", "all_reduce", 1 << 20))
print("trained", flush=True)
"""


def fill_rings_disk(site: Site) -> None:
    """Fill the disk before a process opens its log, and while another one logs: both train to their ends."""
    try:
        with small_disk(site.folder / "rings-full", _MEGABYTES) as disk:
            for full_from_the_start in (False, True):
                said = _train(disk, site.folder, full_from_the_start)
                site.tally.outages += 1
                site.expect(said[-1:] == ["trained"], f"a training process ended before it was done: {said}")
                disk.make_room()
    except NoSmallDisk as reason:
        site.tally.skipped.append(str(reason))


def _train(disk: SmallDisk, folder: Path, full_from_the_start: bool) -> list[str]:
    """What a training process says, whose disk is full at the latest when it is half done."""
    if full_from_the_start:
        disk.fill()
    rings = disk.folder / f"rings-{full_from_the_start}"
    with (folder / "training.log").open("a") as log:
        training = subprocess.Popen(
            [sys.executable, "-c", _TRAINING, str(rings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
        )
    with training:
        assert training.stdout is not None
        half = training.stdout.readline()
        disk.fill()
        rest, _ = training.communicate("on\n")
    return [half.strip(), *rest.split()]
