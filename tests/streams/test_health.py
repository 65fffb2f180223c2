"""Whether a worker moves, and who can see it."""

import httpx
import pytest
from prometheus_client import CollectorRegistry

from schemas.errors import SettingsError
from streams.health import Position, Progress, serve
from streams.metrics import Metrics

PLACE, OTHER = ("numbers", 0), ("numbers", 1)


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


def test_a_worker_that_leaves_messages_lying_is_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    progress.looked({PLACE: Position(5, 5, 5), OTHER: Position(7, 3, 3)})
    clock.now = 6
    progress.looked({PLACE: Position(6, 5, 5), OTHER: Position(8, 4, 4)})
    clock.now = 12
    progress.looked({PLACE: Position(7, 5, 5), OTHER: Position(9, 6, 6)})  # the other input goes on
    clock.now = 17
    progress.cycled()
    assert progress.stuck() == "numbers partition 0: messages wait, and none was taken for 11 s"
    progress.looked({PLACE: Position(7, 6, 5)})
    assert progress.stuck() is None


def test_a_backlog_that_nothing_is_taken_of_from_the_start_is_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    progress.looked({PLACE: Position(100, 50, 50)})
    clock.now = 11
    progress.cycled()
    progress.looked({PLACE: Position(100, 50, 50)})
    assert progress.stuck() == "numbers partition 0: messages wait, and none was taken for 11 s"


def test_a_worker_that_processes_and_never_commits_is_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    for now in range(0, 12, 2):
        clock.now = now
        progress.cycled()
        progress.looked({PLACE: Position(100 + now, 100 + now, 50)})
    clock.now = 12
    assert progress.stuck() == "numbers partition 0: messages were processed, and no offset was committed for 12 s"
    progress.looked({PLACE: Position(112, 112, 51)})
    assert progress.stuck() is None


@pytest.mark.parametrize("safe", [None, 55])
def test_an_offset_may_be_held_but_what_is_safe_must_be_committed(safe: int | None) -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    for now in range(0, 40, 2):
        clock.now = now
        progress.cycled()
        progress.looked({PLACE: Position(60, 60, 50, safe=50)})
    assert progress.stuck() is None
    progress.looked({PLACE: Position(60, 60, 50, safe)})
    clock.now = 49
    progress.cycled()
    progress.looked({PLACE: Position(60, 60, 50, safe)})
    assert progress.stuck() == "numbers partition 0: messages were processed, and no offset was committed for 11 s"


def test_silence_is_not_being_stuck() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    progress.looked({PLACE: Position(5, 5, 5)})
    progress.looked({PLACE: Position(6, 6, 6)})  # came and was processed between two looks
    progress.looked({PLACE: Position(6, 6, 6), OTHER: Position(99, 99, 99)})  # another partition was assigned
    clock.now = 1000
    progress.cycled()
    assert progress.stuck() is None


def test_what_was_revoked_is_nobody_s_fault() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    progress.looked({PLACE: Position(6, 5, 5)})
    progress.looked({OTHER: Position(9, 9, 9)})
    clock.now = 11
    progress.cycled()
    assert progress.stuck() is None


def test_the_page_shows_metrics_and_life() -> None:
    clock = Clock()
    progress = Progress(within_s=10, clock=clock)
    metrics = Metrics("monitor", CollectorRegistry())
    metrics.took("numbers")
    metrics.dead_letters.inc(2)
    metrics.lag("numbers", 7, 1.5, 3)
    address = f"http://127.0.0.1:{serve(0, metrics.registry, progress)}"
    page = httpx.get(f"{address}/metrics").text
    assert 'offbeat_messages_total{processor="monitor",topic="numbers"} 1.0' in page
    assert 'offbeat_dead_letters_total{processor="monitor"} 2.0' in page
    assert 'offbeat_lag_seconds{processor="monitor",topic="numbers"} 1.5' in page
    assert 'offbeat_uncommitted_messages{processor="monitor",topic="numbers"} 3.0' in page
    assert httpx.get(f"{address}/live").status_code == 200
    for other in ("/", "/nope", "/metrics/more"):
        assert httpx.get(f"{address}{other}").status_code == 404
    clock.now = 11
    answer = httpx.get(f"{address}/live")
    assert (answer.status_code, answer.text) == (503, "nothing delivered or committed for 11 s\n")


def test_a_port_that_is_taken_is_named() -> None:
    port = serve(0, CollectorRegistry(), Progress(within_s=60))
    with pytest.raises(SettingsError) as refused:
        serve(port, CollectorRegistry(), Progress(within_s=60))
    assert str(refused.value) == (
        f"port {port} of 127.0.0.1, for /metrics and /live: address already in use; "
        "give a free one with --health-port or OFFBEAT_WORKER__HEALTH_PORT, "
        "and an address of this host with OFFBEAT_WORKER__HEALTH_HOST"
    )
