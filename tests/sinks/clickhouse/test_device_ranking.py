"""The view `device_ranking` against its reference in diagnosis/ranking, on a hundred thousand findings."""

import math
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnosis.ranking.devices import Implication, RankedDevice, RankingSettings, rank
from diagnosis.ranking.irregularity_rate import rate_told
from diagnosis.topology import Device
from schemas.catalogue import FINDINGS
from schemas.errors import StoreError
from schemas.tables import TABLES
from sinks.clickhouse.rows import stored_rows
from sinks.clickhouse.store import Store
from tests.sinks.clickhouse.samples import START_NS, finding

RANKING = """
SELECT * FROM device_ranking(
    window_from = {window_from:DateTime64(9, 'UTC')}, window_to = {window_to:DateTime64(9, 'UTC')},
    alpha = {alpha:Float64}, epsilon = {epsilon:Float64}, prior = {prior:Bool}, decay = {decay:Bool},
    coverage = {coverage:Bool}, k = {k:UInt32}
)
ORDER BY job, place, score DESC, device
"""
SECOND = 10**9
WINDOW = (START_NS + 10 * SECOND, START_NS + 90 * SECOND)
"""Findings are from the hundred seconds after the start."""

BELOW = {"gpu": 0, "cpu": 0, "nvlink": 0, "nic": 1, "link": 1, "tor": 32, "spine": 1024, "hypervisor": None}
STORED = (None, math.nan, math.inf, -math.inf, -0.5, 0.0, 0.25, 0.25, 0.5, 1.0, 7.0)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Findings:
    """Findings of some jobs made by chance, each with one of the device sets and one of the evidences."""

    count: int
    jobs: int = 3
    kinds: int = 5000

    @cached_property
    def of_job(self) -> Ints:
        return self._draws("job").integers(self.jobs, size=self.count)

    @cached_property
    def found_ns(self) -> Ints:
        return START_NS + self._draws("time").integers(100, size=self.count) * SECOND

    @cached_property
    def iteration(self) -> list[int | None]:
        """About a third as many iterations as findings; some findings are about none in particular."""
        drawn = self._draws("iteration").integers(self.count // 3, size=self.count)
        return [int(iteration) if iteration % 5 else None for iteration in drawn]

    @cached_property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Whether a finding is active and names somebody; both are known by its number."""
        numbers = np.arange(self.count)
        return np.asarray((numbers % 17 != 0) & (numbers % 19 != 0))

    @cached_property
    def devices(self) -> list[tuple[Device, ...]]:
        """What findings implicate: NICs with their only cables, ToRs and spines, or switches alone, or one device of
        another kind.
        """
        draws = self._draws("devices")
        made = (_path, _path, _path, _switches, _other)
        return [made[int(draws.integers(len(made)))](draws) for _ in range(self.kinds)]

    @cached_property
    def evidence(self) -> list[dict[str, Any]]:
        """Series of all kinds, constant, anticorrelated, short, with gaps and absent; then the stored rate counts."""
        draws = self._draws("evidence")
        return [_evidence(draws) for _ in range(self.kinds)]

    @cached_property
    def which(self) -> tuple[Ints, Ints]:
        """Devices and evidence of each finding."""
        draws = self._draws("which")
        return draws.integers(self.kinds, size=self.count), draws.integers(self.kinds, size=self.count)

    @cached_property
    def inside(self) -> dict[str, list[Implication]]:
        """By job, what of the window implicates which devices, by the reference."""
        rates = [rate_told(e["operator_ns"], e["iteration_ns"], e["irregularity_rate"]) for e in self.evidence]
        by_job: dict[str, list[Implication]] = defaultdict(list)
        for number in np.flatnonzero(self.counted & (self.found_ns >= WINDOW[0]) & (self.found_ns < WINDOW[1])):
            devices, evidence = (int(of[number]) for of in self.which)
            implication = Implication(rates[evidence], self.devices[devices], self.iteration[number])
            by_job[f"job{self.of_job[number]}"].append(implication)
        return by_job

    def ranked(self, ranking: RankingSettings) -> list[dict[str, Any]]:
        """The reference's answer."""
        return [row for job, of in sorted(self.inside.items()) for row in told(job, rank(of, ranking))]

    def store(self, store: Store) -> None:
        """Put them into the store."""
        rows = FINDINGS.from_rows([finding(0)]).take(pa.array(np.zeros(self.count, dtype=np.int64)))
        numbers = np.arange(self.count)
        devices, evidence = self.which
        columns = {
            "id": pa.array([f"{number:08x}" for number in numbers]),
            "active": pa.array(numbers % 17 != 0),
            "ranks": pa.array([[], [1]]).take(pa.array((numbers % 19 != 0).astype(np.int64))),
            "devices": pa.array([[asdict(device) for device in of] for of in self.devices]).take(pa.array(devices)),
            "evidence": pa.array(self.evidence, FINDINGS.schema.field("evidence").type).take(pa.array(evidence)),
            "found_ns": pa.array(self.found_ns),
            "iteration": pa.array(self.iteration),
        }
        for name, values in columns.items():
            field = rows.schema.field(name)
            rows = rows.set_column(rows.schema.get_field_index(name), field, values.cast(field.type))
        for job in range(self.jobs):
            batch = rows.filter(pa.array(self.of_job == job))
            store.insert("findings", stored_rows(TABLES["findings"], batch, f"job{job}"), uuid.uuid4().hex)

    def _draws(self, what: str) -> np.random.Generator:
        return np.random.default_rng(list(what.encode()))


def told(job: str, ranked: Iterable[RankedDevice]) -> list[dict[str, Any]]:
    """Ranked devices as the view's rows."""
    return [{"job": job, **asdict(device), "ambiguity_set": list(device.ambiguity_set)} for device in ranked]


def _device(kind: str, name: str) -> Device:
    return Device(f"{kind}:{name}", kind, BELOW[kind])


def _path(draws: np.random.Generator) -> tuple[Device, ...]:
    """Two NICs and what is between them; the first often the same one."""
    one, other = min(int(draws.integers(128)), int(draws.integers(128))), int(draws.integers(128))
    ends = [_device(kind, f"h{end // 8}/{end % 8}") for end in (one, other) for kind in ("nic", "link")]
    return (
        *ends,
        *(_device("tor", str(end % 8)) for end in (one, other)),
        _device("spine", str(int(draws.integers(4)))),
    )


def _switches(draws: np.random.Generator) -> tuple[Device, ...]:
    """A ToR, or spines of which the traffic may have taken any, or both."""
    if draws.random() < 0.5:
        return (_device("tor", str(draws.integers(8))),)
    spines = tuple(_device("spine", str(number)) for number in range(int(draws.integers(1, 5))))
    return spines if draws.random() < 0.8 else (_device("tor", "0"), *spines)


def _other(draws: np.random.Generator) -> tuple[Device, ...]:
    kind = str(draws.choice(["gpu", "gpu", "gpu", "cpu", "nvlink", "hypervisor"]))
    return (_device(kind, f"h{draws.integers(16)}"),)


def _evidence(draws: np.random.Generator) -> dict[str, Any]:
    told: dict[str, Any] = {"irregularity_rate": STORED[draws.integers(len(STORED))], "delta": 1.2, "path": []}
    length = int(draws.integers(2, 13))
    iteration = draws.integers(10**9, 2 * 10**9, length)
    noise = draws.integers(0, 10**9, length)
    match int(draws.integers(8)):
        case 0:
            return told | {"operator_ns": [], "iteration_ns": []}
        case 1:
            series = noise, np.full(length, 7 * 10**8)
        case 2:
            series = np.full(length, 123_456_789), iteration
        case 3:
            series = 4 * 10**9 - 2 * iteration, iteration
        case 4:
            series = 3 * iteration + 7, iteration
        case 5:  # two series that do not belong together
            series = noise[:-1], iteration
        case _:
            series = noise + iteration // 2, iteration
    operator, whole = (list(map(int, values)) for values in series)
    if length > 6:
        operator[2] = whole[4] = None  # type: ignore[call-overload]
    return told | {"operator_ns": operator, "iteration_ns": whole}


def at(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // 10**9, UTC)


def asked(store: Store, ranking: RankingSettings, window: tuple[int, int] = WINDOW) -> list[dict[str, Any]]:
    params = asdict(ranking)
    params["k"] = params.pop("top")
    params |= {"window_from": at(window[0]), "window_to": at(window[1])}
    rows: list[dict[str, Any]] = store.query(RANKING, params).to_pylist()
    return rows


def agree(answer: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Whether places, devices and counts are the same, and numbers as far as sums in another order may be."""
    assert [names_of(row) for row in answer] == [names_of(row) for row in expected]
    for name in ("score", "irregularity_rate", "decay", "prior_a", "prior_b"):
        assert [row[name] for row in answer] == pytest.approx([row[name] for row in expected], rel=1e-12), name


def names_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not isinstance(value, float)}


WHOLE = RankingSettings(top=0)
MANY, FEWER = Findings(100_000), Findings(10_000)


@cache
def many_ranked() -> list[dict[str, Any]]:
    """The reference's answer, which is the same for each engine."""
    return MANY.ranked(WHOLE)


def test_the_view_is_the_reference_on_a_hundred_thousand_findings(migrated: Store) -> None:
    MANY.store(migrated)
    agree(asked(migrated, WHOLE), many_ranked())


@pytest.mark.parametrize(
    "ranking",
    [
        pytest.param(replace(WHOLE, coverage=False, epsilon=1e-6, alpha=30), id="as printed"),
        pytest.param(RankingSettings(prior=False, decay=False), id="sums"),
    ],
)
def test_the_view_is_the_reference_under_other_settings(migrated: Store, ranking: RankingSettings) -> None:
    FEWER.store(migrated)
    agree(asked(migrated, ranking), FEWER.ranked(ranking))


NAMED = [_device(kind, "a") for kind in BELOW] + [_device("nic", "b"), _device("link", "b"), _device("nic", "c")]
NAMED += [_device("tor", "b"), _device("tor", "c")]
_rates = st.none() | st.sampled_from([math.nan, -0.5, math.inf, 0.0]) | st.integers(1, 4).map(lambda n: n / 4)
_series = st.sampled_from([([], []), ([1, 2, 9], [10, 20, 90]), ([1, 2, 9], [5, 5, 5]), ([1, 5, 1, 5], [1, 1, 2, 2])])
_findings = st.builds(
    lambda number, named, rate, series, **changes: finding(
        number,
        devices=[asdict(device) for device in named],
        evidence={"irregularity_rate": rate, "operator_ns": series[0], "iteration_ns": series[1]},
        **changes,
    ),
    st.integers(0, 5),
    st.lists(st.sampled_from(NAMED), max_size=4, unique=True),
    _rates,
    _series,
    active=st.booleans() | st.just(True),
    ranks=st.just([1]) | st.just([]),
    found_ns=st.integers(0, 9).map(lambda second: START_NS + second * SECOND),
    iteration=st.none() | st.integers(20, 21),
)
_settings = st.builds(
    RankingSettings,
    alpha=st.sampled_from([0.0, 1.0, 30.0]),
    epsilon=st.sampled_from([math.e, 1e-6]),
    prior=st.booleans(),
    decay=st.booleans(),
    coverage=st.booleans(),
    top=st.integers(0, 3),
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.fixed_dictionaries({job: st.lists(_findings, max_size=5) for job in ("one", "two")}),
    seconds=st.tuples(st.integers(0, 3), st.integers(3, 10)),
    ranking=_settings,
)
def test_the_newest_findings_of_a_window_are_ranked_within_their_job(
    migrated: Store, rows: dict[str, list[dict[str, Any]]], seconds: tuple[int, int], ranking: RankingSettings
) -> None:
    store_rows(migrated, rows)
    window = (START_NS + seconds[0] * SECOND, START_NS + seconds[1] * SECOND)
    expected: list[dict[str, Any]] = []
    for job, given_rows in sorted(rows.items()):
        newest: dict[str, dict[str, Any]] = {}
        for row in given_rows:
            if row["id"] not in newest or row["found_ns"] >= newest[row["id"]]["found_ns"]:
                newest[row["id"]] = row
        implications = [
            Implication(rate_of(row), tuple(Device(**device) for device in row["devices"]), row["iteration"])
            for row in newest.values()
            if row["active"] and row["ranks"] and window[0] <= row["found_ns"] < window[1]
        ]
        expected += told(job, rank(implications, ranking))
    agree(asked(migrated, ranking, window), expected)


def rate_of(row: dict[str, Any]) -> float:
    evidence = row["evidence"]
    return rate_told(evidence["operator_ns"], evidence["iteration_ns"], evidence["irregularity_rate"])


def store_rows(store: Store, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Hold these findings, and nothing else; a row an insert, so that of equals the last one counts."""
    store.execute("TRUNCATE TABLE findings")
    for job, of in rows.items():
        for row in of:
            store.insert("findings", stored_rows(TABLES["findings"], FINDINGS.from_rows([row]), job), uuid.uuid4().hex)


def told_alike(store: Store, named: Iterable[tuple[int, list[Device]]]) -> list[dict[str, Any]]:
    """What the view says of findings, each of an iteration about some devices, once it is what the reference says."""
    rows = [
        finding(place, devices=[asdict(device) for device in devices], iteration=iteration, found_ns=START_NS)
        for place, (iteration, devices) in enumerate(named)
    ]
    store_rows(store, {"one": rows})
    implications = [
        Implication(rate_of(row), tuple(Device(**device) for device in row["devices"]), row["iteration"])
        for row in rows
    ]
    answer = asked(store, WHOLE, (START_NS, START_NS + SECOND))
    agree(answer, told("one", rank(implications, WHOLE)))
    return answer


@pytest.mark.parametrize("alone", [8, 9])
def test_a_spine_that_takes_three_tors_to_explain_keeps_all_in_sql_too(migrated: Store, alone: int) -> None:
    """Three iterations name three ToRs each; with nine that name one, it is not most of what was found any more."""
    ways = [(iteration, number) for iteration in range(3) for number in range(3)]
    ways += [(iteration, 0) for iteration in range(10, 10 + alone)]
    kinds = ("nic", "tor")
    answer = told_alike(
        migrated,
        [(iteration, [*(_device(kind, f"{n}") for kind in kinds), _device("spine", "s")]) for iteration, n in ways],
    )
    [spine] = [row for row in answer if row["kind"] == "spine"]
    assert (spine["decay"] == 1.0) == (alone == 8)


@pytest.mark.parametrize("ways", [2, 3])
def test_what_names_a_tor_alone_is_left_out_of_what_its_other_findings_say_in_sql_too(
    migrated: Store, ways: int
) -> None:
    tor = _device("tor", "t")
    answer = told_alike(migrated, enumerate([*[[tor]] * 5, *([_device("nic", f"{way}"), tor] for way in range(ways))]))
    [row] = [row for row in answer if row["kind"] == "tor"]
    assert (row["decay"] == 1.0) == (ways == 3)


def test_series_of_different_lengths_leave_the_stored_rate(migrated: Store) -> None:
    """No search writes them, but one bad row must not keep the others from being ranked."""
    evidence = {"irregularity_rate": 0.5, "operator_ns": [1, 2, 3], "iteration_ns": [1, 2]}
    store_rows(migrated, {"one": [finding(0, evidence=evidence)]})
    [row] = asked(migrated, RankingSettings(), (START_NS, START_NS + 100 * SECOND))
    assert row["irregularity_rate"] == 0.5


def test_every_parameter_is_needed(migrated: Store) -> None:
    with pytest.raises(StoreError, match="window_to"):
        migrated.query("SELECT * FROM device_ranking(window_from = '2026-01-01 00:00:00')")
