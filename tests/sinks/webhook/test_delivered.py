"""What paging remembers across a restart."""

from hypothesis import given
from hypothesis import strategies as st

from sinks.webhook.delivered import DeliveredRevisions

deliveries = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 9), st.booleans()))


@given(deliveries)
def test_a_saved_state_restores_every_revision(noted: list[tuple[str, int, bool]]) -> None:
    delivered = DeliveredRevisions()
    last: dict[str, tuple[int, bool]] = {}
    for incident, revision, resolved in noted:
        delivered.record(incident, revision, resolved=resolved)
        last[incident] = (revision, resolved)
    restored = DeliveredRevisions.from_bytes(delivered.to_bytes())
    for remembers in (delivered, restored):
        assert {incident: remembers[incident] for incident in "abcde"} == {
            incident: last.get(incident, (0, False))[0] for incident in "abcde"
        }
        assert remembers.any_open == any(not resolved for _, resolved in last.values())
    assert restored.to_bytes() == delivered.to_bytes()


def test_memory_is_bounded_and_open_incidents_are_never_forgotten() -> None:
    delivered = DeliveredRevisions()
    delivered.record("open", 7, resolved=False)
    for number in range(10_000):
        delivered.record(f"{number:016x}", 2, resolved=True)
    assert delivered["open"] == 7
    assert delivered[f"{9_999:016x}"] == 2
    assert len(delivered.to_bytes()) < 200_000
