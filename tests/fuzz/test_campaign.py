"""The campaign sees what an input does to its process, and goes on behind it; its inputs can be made again."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import bad_targets
from tests.fuzz.campaign import Tried, run, shared_out
from tests.fuzz.mutations import MOST_BYTES, mutated
from tests.fuzz.target import READ, damaged
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
SEED = 5
SHORT = len(b"good input")


def shortened(target: str, inputs: int) -> list[int]:
    """The ordinals of the inputs that the bad targets are bad for."""
    trial = bad_targets.TARGETS[target].make(Path())
    return [ordinal for ordinal in range(inputs) if len(damaged(trial, SEED, target, ordinal)) < SHORT]


@pytest.fixture(scope="module")
def tried() -> dict[str, Tried]:
    shares = dict.fromkeys(("good", "raises", "asks"), 30)
    shares |= {name: shortened(name, 30)[0] + 2 for name in ("dies", "hangs", "hoards")}
    done = run("tests.fuzz.bad_targets:TARGETS", shares, seed=SEED, within_s=1.0)
    assert {one.target: one.inputs for one in done} == shares
    return {one.target: one for one in done}


def test_what_is_read_or_refused_is_no_failure(tried: dict[str, Tried]) -> None:
    assert tried["good"].failures == []
    assert set(tried["good"].outcomes) == {READ, "InputError"}
    assert sum(tried["good"].outcomes.values()) == tried["good"].inputs


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("dies", "ends the process (SIGSEGV)"),
        ("hangs", "hangs"),
        ("hoards", "takes more than 64 MiB"),
    ],
)
def test_what_an_input_does_to_its_process_is_seen(tried: dict[str, Tried], target: str, what: str) -> None:
    [failed] = tried[target].failures
    expected = shortened(target, tried[target].inputs)
    assert (failed.what, failed.ordinal, failed.count) == (what, expected[0], len(expected))


def test_errors_of_one_line_are_one_failure(tried: dict[str, Tried]) -> None:
    [failed] = tried["raises"].failures
    expected = shortened("raises", 30)
    assert failed.what.startswith("KeyError")
    assert failed.where.endswith("_raises")
    assert (failed.ordinal, failed.count) == (expected[0], len(expected))


def test_a_refusal_for_want_of_memory_is_a_failure(tried: dict[str, Tried]) -> None:
    [failed] = tried["asks"].failures
    assert (failed.what, failed.count) == ("asks for too much memory", len(shortened("asks", 30)))


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=3), st.integers())
def test_an_input_is_the_same_whenever_it_is_made(seeds: list[bytes], seed: int) -> None:
    made = [mutated(seeds, random.Random(seed)) for _ in range(2)]
    assert made[0] == made[1]
    assert len(made[0]) <= MOST_BYTES


def test_inputs_differ() -> None:
    made = {mutated([b"rank=3,op=all_reduce" * 20], random.Random(seed)) for seed in range(200)}
    assert len(made) > 180


def test_all_inputs_are_shared_out_and_every_target_gets_some() -> None:
    shares = shared_out(TARGETS, 10_000)
    assert set(shares) == set(TARGETS)
    assert sum(shares.values()) == 10_000
    assert min(shares.values()) > 10


def test_the_command_tells_every_target_and_the_seed() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "40", "--seed", "3", "--json"]
    done = subprocess.run(
        [*command, "--target", "options", "--target", "signature"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["seed"], told["inputs"]) == (3, 40)
    assert [(row["target"], row["inputs"], row["failed"]) for row in told["targets"]] == [
        ("options", 20, 0),
        ("signature", 20, 0),
    ]
    assert all(sum(row["outcomes"].values()) == 20 for row in told["targets"])
