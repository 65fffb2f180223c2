"""The agent of a host that trains: killed, and with its disk full."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from offbeat.options import scenario
from producers.simulation import simulate, write
from tests.faults.kills import kill
from tests.faults.live_host import ITERATIONS, AgentProcess, Training, undisturbed
from tests.faults.site import Site
from tests.faults.small_disk import NoSmallDisk, SmallDisk, small_disk
from tests.integration.recordings import FAULTS, SCENARIO
from tests.integration.verdict import Verdict

_ONE_HOST = SCENARIO.replace("gpus_per_host=4", "gpus_per_host=8")
_SLOW_GPUS = [FAULTS[0], "kind=gpu_slow,rank=2,iterations=26-35,slowdown=1.4"]
_STEP = 2
_KILL_EVERY = 6
_DISK_MEGABYTES = 16
_FULL_FOR_S = 8.0


def kill_agent(site: Site) -> None:
    """Kill the agent at random moments while its host trains."""

    def amid(agent: AgentProcess, iteration: int) -> None:
        if iteration % _KILL_EVERY == 0:
            kill(site, agent)

    train(site, site.folder / "agent-killed", amid)


def fill_agents_disk(site: Site) -> None:
    """Fill the disk that the agent keeps iterations on: it ends and says so, training goes on, nothing is missed."""

    def amid(agent: AgentProcess, iteration: int, disk: SmallDisk, full: ExitStack) -> None:
        if iteration == ITERATIONS // 3:
            full.enter_context(site.outage("that the agent's disk is full", lambda: agent.log().count("make room")))
            disk.fill()
        if iteration == ITERATIONS // 2:
            full.close()
            site.pipeline.rest(_FULL_FOR_S)
            disk.make_room()

    kept = site.folder / "agent-full"
    try:
        with small_disk(kept, _DISK_MEGABYTES) as disk, ExitStack() as full:
            train(site, kept, lambda agent, iteration: amid(agent, iteration, disk, full))
    except NoSmallDisk as reason:
        site.tally.skipped.append(str(reason))


def train(site: Site, kept: Path, amid: Callable[[AgentProcess, int], None], *, rings: Path | None = None) -> None:
    """Train a job on one host, to its end, and judge it; ``amid`` is called between its iterations."""
    recorded = site.recording(_recording(site))
    rings = rings or site.folder / "rings" / recorded.job
    training = Training(recorded, rings)
    agent = AgentProcess(recorded, site.pipeline.environment, site.folder / f"agent-{recorded.job}", rings, kept)
    site.pipeline.repair()
    with site.pipeline.publishing(agent):
        while training.iterations < ITERATIONS - _STEP:
            training.train(_STEP)
            amid(agent, training.iterations)
            site.pipeline.rest(site.random.uniform(0.3, 1.2))
        training.end()
    stored, expected = (
        site.pipeline.stored(recorded),
        undisturbed(training, site.folder / "undisturbed" / recorded.job, site.reference),
    )
    site.tally.judge(recorded.job, Verdict.of(stored, expected, site.person.taken(recorded.job)))


def _recording(site: Site) -> Path:
    folder = site.folder / "one-host"
    if not folder.exists():
        write(simulate(scenario(_ONE_HOST, _SLOW_GPUS)), folder)
    return folder
