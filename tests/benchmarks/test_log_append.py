"""The benchmark of appending: that it measures what it says, not how fast this machine is."""

from benchmarks.log_append import run


def test_every_append_is_timed_and_none_is_dropped() -> None:
    figures = run(iterations=2, operators=30, products=1)
    assert (figures["appends"], figures["dropped"]) == (60, 0)
    taken = figures["append_ns"]
    assert 0 < taken["median"] <= taken["p99"] <= taken["max"]
    assert figures["append_ns_back_to_back"] > 0
    assert 0 < figures["share_of_iteration"] < 1
    assert figures["iteration_ms"]["without"] > 0
