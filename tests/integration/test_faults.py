"""A short seeded form of the fault campaign, on the services that all tests share; `make faults` is the long one."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from streams.monitor import Monitor
from tests.faults import report
from tests.faults.campaign import carry_out
from tests.faults.groups import Further
from tests.faults.plan import Step, faults, plan
from tests.faults.short import several_at_once
from tests.faults.site import Services, Site
from tests.faults.tally import Tally
from tests.integration.pipeline import Share
from tests.services import ClickHouseAddress

SEED = 1
_ALL: Share = frozenset((topic.name, partition) for topic in Monitor.reads for partition in range(topic.partitions))
_SOME = frozenset(sorted(_ALL)[:3])


@pytest.mark.kafka
@pytest.mark.clickhouse
def test_several_faults_at_once(kafka: str, clickhouse: ClickHouseAddress, tmp_path: Path) -> None:
    with Site.deployed(Services(kafka, clickhouse), tmp_path, iteration_s=0.1) as site:
        [tally] = carry_out(site, [Step("several-at-once", several_at_once, Random(SEED))])
    assert tally.survived, "\n".join(tally.differences[:10])
    assert (tally.jobs, tally.kills, tally.outages, tally.rebalances) == (1, 3, 2, 2)
    assert tally.restarts >= tally.kills
    assert tally.pages > 0


def test_a_seed_draws_one_plan() -> None:
    names = [step.name for step in plan(SEED)]
    assert sorted(names) == sorted(faults(50))
    assert names == [step.name for step in plan(SEED)]
    assert names != [step.name for step in plan(SEED + 1)]
    alone, *_ = plan(SEED, only=names[3:4])
    assert alone.random.random() == plan(SEED)[3].random.random()
    with pytest.raises(ValueError, match="there is no fault 'rain'"):
        plan(SEED, only=["rain"])


def test_what_does_not_come_to_its_end_is_a_difference() -> None:
    def fails(_: Site) -> None:
        pytest.fail("there was no finding")

    [tally] = carry_out(_Idle(), [Step("fails", fails, Random(SEED))])  # type: ignore[arg-type]
    assert not tally.survived
    assert tally.differences == ["did not come to its end: Failed: there was no finding"]
    told = report.as_json(SEED, [tally, Tally("other", kills=2)])
    assert (told["survived"], told["kills"], len(told["faults"])) == (False, 2, 2)


@pytest.mark.parametrize("felt", [0, 1])
def test_an_outage_that_nobody_felt_is_a_difference(felt: int) -> None:
    site, signs = _Idle(), [0]

    def befall(_: Site) -> None:
        with Site.outage(site, "the broker's absence", lambda: signs[0]):  # type: ignore[arg-type]
            signs[0] += felt

    [tally] = carry_out(site, [Step("away", befall, Random(SEED))])  # type: ignore[arg-type]
    assert (tally.outages, tally.survived) == (1, bool(felt))
    assert felt or "sign that anybody felt the broker's absence" in tally.differences[0]


@pytest.mark.parametrize(
    ("broker_tells", "rebalances"),
    [
        ([], 0),  # a worker that starts and starts
        ([{"monitor": _ALL}, {"monitor": _ALL, "monitor-further": frozenset()}], 0),
        ([{}, {"monitor-further": _ALL}], 0),
        ([{}, {"monitor": _SOME, "monitor-further": _ALL - _SOME}], 1),
        ([{"monitor": _SOME, "monitor-further": _ALL - _SOME}, {"monitor": _SOME}, {}], 1),
        ([{"monitor": _SOME, "monitor-further": _ALL - _SOME}, {}, {"monitor": _ALL}], 2),
    ],
)
def test_only_what_the_broker_tells_is_a_rebalance(broker_tells: list[dict[str, Share]], rebalances: int) -> None:
    def befall(site: Site) -> None:
        with Further.started(site, "monitor", "further") as further:
            further.await_joined()
            further.kill()
            further.await_left()

    site = _Idle(broker_tells)
    [tally] = carry_out(site, [Step("joins", befall, Random(SEED))])  # type: ignore[arg-type]
    assert (tally.rebalances, tally.survived) == (rebalances, rebalances == 2)
    assert tally.survived or "there was no" in tally.differences[0]
    assert not site.worker.running


def test_a_further_worker_that_ends_before_it_joins_is_a_difference() -> None:
    def befall(site: Site) -> None:
        with Further.started(site, "monitor", "further") as further:
            further.worker.kill()
            further.await_joined()

    site = _Idle([{"monitor": _SOME, "monitor-further": _ALL - _SOME}])
    [tally] = carry_out(site, [Step("ends", befall, Random(SEED))])  # type: ignore[arg-type]
    assert tally.rebalances == 0
    assert "ended before it had joined" in tally.differences[0]


class _Worker:
    """Stands where a worker's process would."""

    folder = Path("monitor-further")
    running = False

    def start(self) -> None:
        self.running = True

    def kill(self) -> None:
        self.running = False

    def last_words(self) -> str:
        return ""


class _Idle:
    """Stands where a site would, with no pipeline to speak of; a broker tells ``shares`` of a group, one a look."""

    tally: Tally

    def __init__(self, shares: Sequence[Mapping[str, Share]] = ()) -> None:
        self.restarts = Counter[str]()
        self.worker = _Worker()
        self._shares = deque(shares)

    def another(self, name: str, instance: str) -> "_Worker":
        return self.worker

    def shares(self, _: str) -> Mapping[str, Share]:
        return self._shares.popleft() if self._shares else {}

    def awaited(self, look: Callable[[], bool], what: str) -> None:
        while not look():
            if not self._shares:
                pytest.fail(f"there was no {what}")

    @property
    def pipeline(self) -> "_Idle":
        return self
