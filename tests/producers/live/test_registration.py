"""What processes of one job tell of its communicators, together."""

from __future__ import annotations

from typing import Any

from producers.live.registration import Group, Registration, told_groups


def registered(rank: int, *groups: Group, **options: Any) -> Registration:
    return Registration(job="job", rank=rank, start_id="0", groups=groups, **options)


def test_members_and_kinds_are_those_of_whoever_tells_them() -> None:
    said = [
        registered(0, Group("tp"), Group("dp", (0, 2))),
        registered(1, Group("tp", (0, 1), "tensor")),
        registered(2, Group("dp", (), "data"), Group("tp")),
    ]
    assert told_groups(said) == [Group("tp", (0, 1), "tensor"), Group("dp", (0, 2), "data")]


def test_whose_members_nobody_tells_has_those_that_use_it() -> None:
    assert told_groups([registered(3, Group("pp")), registered(1, Group("pp"))]) == [Group("pp", (1, 3), None)]
