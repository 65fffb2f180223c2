"""A lock that two threads take in turn."""

import threading
import time

from producers.live.turns import Turns


def test_whoever_waits_is_next() -> None:
    turns, over = Turns(), threading.Event()
    taken = 0

    def take_again_and_again() -> None:
        nonlocal taken
        while not over.is_set():
            with turns:
                taken += 1
                time.sleep(0.02)

    other = threading.Thread(target=take_again_and_again)
    other.start()
    between = []
    for _ in range(5):
        time.sleep(0.03)
        before = taken
        with turns:
            between.append(taken - before)
    over.set()
    other.join()
    assert sum(between) <= 1  # one may have been taken before this thread came to wait
