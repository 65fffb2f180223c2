"""What every processor keeps to, whatever it does."""

from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas import catalogue
from schemas.message import Message, decode
from schemas.processor import Processor, Stateful, Waiting
from streams.control_view import Jobs
from streams.redelivery import letters_of
from tests.streams.cases import CASES
from tests.streams.journey import Case, Journey, Killed

SLOW = ("search", "segment", "compare")
HOLDING_BACK = ("asker", "search", "segment", "compare")
"""Those that need inputs again; what the others wait for is in their saved states."""
lives = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(Killed)), max_size=6)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return CASES[request.param](tmp_path)


@pytest.fixture
def undisturbed(case: Case) -> set[object]:
    return _undisturbed(case.name)


@cache
def _undisturbed(name: str) -> set[object]:
    with TemporaryDirectory() as folder:
        outcome = Journey(CASES[name](Path(folder))).finish().outcome()
    assert outcome, "the case shows nothing"
    return outcome


def test_it_is_a_processor(case: Case) -> None:
    processor = case.make(Jobs())
    assert isinstance(processor, Processor)
    assert processor.reads
    assert processor.name


def test_its_outputs_are_records_of_the_topics_it_declares(case: Case) -> None:
    journey = Journey(case)
    given_before = len(journey.published)
    journey.finish()
    writes = {topic.name: topic for topic in journey.step.processor.writes}
    others = {topic.name for other in case.others(Jobs()) for topic in other.writes}
    came = journey.published[given_before:]
    assert {message.topic for message in came} <= writes.keys() | others
    own = [decode(message, writes[message.topic]) for message in came if message.topic in writes]
    assert bool(own) == bool(writes)


@pytest.mark.parametrize("name", [name for name in CASES if name not in SLOW])
@settings(max_examples=30)
@given(lives=lives)
def test_kills_at_any_point_change_nothing(name: str, lives: list[tuple[int, Killed]]) -> None:
    assert _disturbed(name, lives) == _undisturbed(name)


@pytest.mark.parametrize("name", SLOW)
@settings(max_examples=5, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(lives=lives)
def test_kills_at_any_point_change_nothing_where_much_is_done(name: str, lives: list[tuple[int, Killed]]) -> None:
    assert _disturbed(name, lives) == _undisturbed(name)


def _disturbed(name: str, lives: list[tuple[int, Killed]]) -> set[object]:
    with TemporaryDirectory() as folder:
        journey = Journey(CASES[name](Path(folder)))
        for count, killed in lives:
            journey.take(count)
            journey.deliver(killed)
        return journey.finish().outcome()


def test_ever_longer_lives_change_nothing(case: Case, undisturbed: set[object]) -> None:
    """A kill before the commit and one after it, ever later."""
    journey = Journey(case)
    for count in range(1, 16):
        for killed in (Killed.ALL_SAFE, Killed.AFTER_COMMIT):
            journey.take(count)
            journey.deliver(killed)
    assert journey.finish().outcome() == undisturbed


def test_nothing_of_a_job_is_remembered_once_it_is_retired_and_another_ends(case: Case) -> None:
    told = sorted(case.inputs(), key=lambda message: (message.topic != catalogue.JOBS.name, message.job))
    *earlier, last = sorted({message.job for message in told})
    journey = Journey(replace(case, inputs=lambda: told))
    reads = {topic.name for topic in journey.step.processor.reads}
    for job in (*earlier, last):
        journey.take(sum(message.job == job and message.topic in reads for message in told))
        journey.deliver()
        if job in earlier:
            journey.retire(job)
    kept = [each for each in vars(journey.finish().step.processor).values() if isinstance(each, dict | set)]
    assert not {str(name).partition("/")[0] for each in kept for name in each}.intersection(earlier)


def test_what_is_committed_is_never_needed_again(case: Case) -> None:
    journey = Journey(case).finish()
    assert journey.take() == 0
    journey.deliver(Killed.AFTER_COMMIT)
    assert journey.take() == 0


def test_who_holds_offsets_back_says_so(case: Case) -> None:
    """/live asks for a restart of a worker whose offsets stand still without a word."""
    held: list[str] = []
    for part in (0.25, 0.5, 0.75):
        messages = case.inputs()
        first = tuple(messages[: int(part * len(messages))])
        journey = Journey(replace(case, inputs=partial(tuple[Message, ...], first), others=lambda _: ()))
        journey.take()
        journey.deliver()
        ends = Counter(message.topic for message in journey.published)
        here = [topic for topic, offset in journey.step.offsets().items() if offset < ends[topic]]
        assert not here or journey.step.holds, here
        held += here
    assert bool(held) == (case.name in HOLDING_BACK)


def test_poison_is_buried_and_changes_nothing(case: Case, undisturbed: set[object]) -> None:
    def poisoned() -> list[Message]:
        spoilt: list[Message] = []
        for message in case.inputs():
            spoilt.append(message)
            if message.topic != catalogue.JOBS.name:
                spoilt.append(replace(message, value=b"\xff" * 40))
                spoilt.append(replace(message, value=None))
                spoilt.append(replace(message, headers={}))
        return spoilt

    journey = Journey(replace(case, inputs=poisoned))
    bad = {(m.topic, m.offset) for m in journey.published if m.value in {None, b"\xff" * 40} or not m.headers}
    assert journey.finish().outcome() == undisturbed
    buried = [(one.message.topic, one.message.offset) for one in letters_of(journey.letters(), pytest.fail)]
    assert buried
    assert set(buried) <= bad, "not all records need be looked into, but good ones are never buried"
    assert len(set(buried)) == len(buried)


def test_ticking_only_publishes(case: Case, undisturbed: set[object]) -> None:
    journey = Journey(case)
    while journey.take(1):
        processor = journey.step.processor
        before = journey.step.offsets()
        list(processor.tick(1))
        assert journey.step.offsets() == before
        if isinstance(processor, Stateful):
            changed = processor.changed_states()
            list(processor.tick(1))
            assert processor.changed_states() == {}
            assert changed is not None
        journey.deliver()
    assert journey.finish().outcome() == undisturbed


def test_a_deadline_ends_what_it_waits_for(case: Case) -> None:
    journey = Journey(replace(case, others=lambda _: ()))  # nobody answers
    journey.take()
    processor = journey.step.processor
    if isinstance(processor, Waiting) and (deadline_ns := processor.next_deadline_ns()) is not None:
        assert not list(processor.tick(deadline_ns - 1))
        assert list(processor.tick(deadline_ns))
    journey.finish()
    processor = journey.step.processor
    assert not isinstance(processor, Waiting) or processor.next_deadline_ns() is None


def test_the_states_of_ended_jobs_are_dropped_after_their_last_messages_are_committed(case: Case) -> None:
    journey = Journey(case)
    journey.finish()
    if not isinstance(journey.step.processor, Stateful):
        assert journey.states == []
        return
    assert any(state.value is None for state in journey.states), "the case ends no job"
    for at, state in enumerate(journey.states):
        if state.value is None:
            assert all(later.key != state.key for later in journey.states[at + 1 :])
