"""A lock that two threads take in turn."""

import threading
import time

from producers.live.turns import Turns


def test_whoever_waits_is_next() -> None:
    turns, order = Turns(), list[str]()

    def wait() -> None:
        with turns:
            order.append("the other")

    other = threading.Thread(target=wait)
    with turns:
        other.start()
        deadline = time.monotonic() + 30
        while not turns._next.locked():  # until the other one waits
            assert time.monotonic() < deadline
            time.sleep(0.001)
    with turns:
        order.append("again")
    other.join()
    assert order == ["the other", "again"]
