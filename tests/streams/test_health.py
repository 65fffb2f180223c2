"""Whether a worker moves, and who can see it."""

import httpx
import pytest
from prometheus_client import CollectorRegistry

from schemas.errors import SettingsError
from streams.health import Progress, serve
from streams.metrics import Metrics

PLACE = ("numbers", 0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_whose_cycle_stands_still_is_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    clock.now = 9
    progress.cycled()
    clock.now = 19
    assert progress.stuck() is None
    clock.now = 20
    assert progress.stuck() == "nothing delivered or committed for 11 s"


def test_a_worker_that_leaves_new_messages_lying_is_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    progress.looked({PLACE: 5}, {PLACE: 5})
    progress.looked({PLACE: 6}, {PLACE: 5})
    clock.now = 11
    progress.cycled()
    assert progress.stuck() == "new messages have been waiting for 11 s"
    progress.took()
    assert progress.stuck() is None


def test_silence_is_not_being_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    progress.looked({PLACE: 5}, {PLACE: 5})
    progress.looked({PLACE: 6}, {PLACE: 6})  # came and was processed between two looks
    progress.looked({PLACE: 6, ("numbers", 1): 99}, {PLACE: 6})  # another partition was assigned
    clock.now = 1000
    progress.cycled()
    assert progress.stuck() is None


def test_the_page_shows_metrics_and_life() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    metrics = Metrics("monitor", CollectorRegistry())
    metrics.took("numbers")
    metrics.dead_letters.inc(2)
    metrics.lag("numbers", 7, 1.5)
    address = f"http://127.0.0.1:{serve(0, metrics.registry, progress, host='127.0.0.1')}"
    page = httpx.get(f"{address}/metrics").text
    assert 'offbeat_messages_total{processor="monitor",topic="numbers"} 1.0' in page
    assert 'offbeat_dead_letters_total{processor="monitor"} 2.0' in page
    assert 'offbeat_lag_seconds{processor="monitor",topic="numbers"} 1.5' in page
    assert httpx.get(f"{address}/live").status_code == 200
    clock.now = 11
    answer = httpx.get(f"{address}/live")
    assert (answer.status_code, answer.text) == (503, "nothing delivered or committed for 11 s\n")


def test_a_port_that_is_taken_is_named() -> None:
    port = serve(0, CollectorRegistry(), Progress(within_s=60), host="127.0.0.1")
    with pytest.raises(SettingsError) as refused:
        serve(port, CollectorRegistry(), Progress(within_s=60), host="127.0.0.1")
    assert str(refused.value) == (
        f"port {port}, for /metrics and /live: address already in use; "
        "give a free one with --health-port or OFFBEAT_WORKER__HEALTH_PORT"
    )
