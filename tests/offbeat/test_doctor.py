"""`offbeat doctor`: what it makes of what it finds, and what it finds on real services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import SecretStr

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from offbeat.doctor import bus, examine, machine, paging, store
from offbeat.doctor.checked import Checked, State, refused
from offbeat.doctor.settled import settle
from offbeat.setting_groups import LiveSettings, StoreSettings, WebhookSettings
from offbeat.settings import Settings
from schemas import catalogue
from schemas.errors import BusError, StoreError
from streams.compare import Compare
from streams.recent_letters import RecentLetters
from streams.segment import Segment
from streams.standing import Standing
from streams.topics import Change
from tests.integration.roles import KINDS, Kind, Role
from tests.offbeat.command_line import EXAMPLE, ROOT, offbeat, own_environment
from tests.services import settings_of

NOW_S = 1_800_000_000.0
HUSH = "hush-hush-77ab"


def state(check: Checked) -> State:
    assert check.found
    assert bool(check.todo) == (check.state in {State.FAILED, State.WARNING}), "what is amiss says what to do"
    return check.state


@pytest.mark.parametrize(
    ("error", "found", "todo"),
    [
        (BusError("missing on a:1: control.jobs: run `offbeat topics apply`"), "missing on a:1: control.jobs", "run `"),
        (BusError("no broker answers at a:1: refused; set OFFBEAT_X"), "no broker answers at a:1: refused", "set OFF"),
        (StoreError("ClickHouse at a:1: Authentication failed"), "ClickHouse at a:1: Authentication failed", "mend "),
    ],
)
def test_an_error_says_what_to_do(error: Exception, found: str, todo: str) -> None:
    check = refused("it", error)
    assert (check.state, check.found) == (State.FAILED, found)
    assert check.todo.startswith(todo)


@pytest.mark.parametrize(
    ("standing", "expected"),
    [
        (Standing(members=2, behind=0), State.OK),
        (Standing(members=2, behind=9, oldest_ns=int((NOW_S - 20) * 1e9)), State.OK),
        (Standing(members=2, behind=9, oldest_ns=int((NOW_S - 301) * 1e9)), State.FAILED),
        (Standing(members=2, behind=9), State.OK),
        (Standing(members=0, behind=0), State.WARNING),
        (Standing(members=0, behind=1, oldest_ns=int(NOW_S * 1e9)), State.FAILED),
    ],
)
def test_who_is_behind(standing: Standing, expected: State) -> None:
    assert state(bus.of_role("offbeat sink", standing, NOW_S)) is expected


def test_nobody_need_page_where_there_is_nobody_to_page() -> None:
    waiting = Standing(members=0, behind=1, oldest_ns=int(NOW_S * 1e9))
    check = bus.of_role(bus.PAGE, waiting, NOW_S, wanted=False)
    assert (check.state, check.found) == (State.WARNING, "no member, 1 message behind, the oldest for 0 s")
    nobody, somebody = WebhookSettings(), WebhookSettings(routing_key=SecretStr("key"))
    assert not bus.is_wanted(bus.PAGE, waiting, nobody)
    assert bus.is_wanted(bus.PAGE, waiting, somebody)
    assert bus.is_wanted(bus.PAGE, replace(waiting, has_run=True), nobody)  # it is set elsewhere
    assert bus.is_wanted("offbeat sink", waiting, nobody)


def test_roles_are_those_that_run() -> None:
    roles = bus.roles(Settings())
    of_traffic = {step.name: Kind(("worker", step.name), step.reads) for step in (Segment, Compare)}
    kinds = KINDS | of_traffic
    assert {name: reads for name, (_, reads) in roles.items()} == {name: kind.reads for name, kind in kinds.items()}
    assert {name: tuple(command.split()[1:]) for name, (command, _) in roles.items()} == {
        name: kind.arguments for name, kind in kinds.items()
    }
    without = bus.roles(Settings(store=StoreSettings(comm_ops=False)))["store"][1]
    assert set(roles["store"][1]) - set(without) == {catalogue.COMM_OPS}


def test_topics_are_compared_with_the_catalogue() -> None:
    created = Change("control.jobs", "partitions", None, "8")
    changed = Change("control.jobs", "retention.ms", "1", "2")
    counted = Change("control.jobs", "partitions", "4", "8", applied=False)
    assert [state(check) for check in bus.of_topics([])] == [State.OK]
    [missing] = bus.of_topics([created, changed])
    assert (state(missing), missing.found) == (State.FAILED, "missing: control.jobs")
    [other] = bus.of_topics([changed])
    assert (state(other), other.todo) == (State.FAILED, "run `offbeat topics apply`")
    assert [state(check) for check in bus.of_topics([counted])] == [State.OK, State.WARNING]


def test_what_was_buried_is_told_by_role_and_topic() -> None:
    assert state(bus.of_dead_letters(RecentLetters())) is State.OK
    of_day = Counter({("monitor", "telemetry.a"): 2, ("store", "telemetry.b"): 12})
    some = bus.of_dead_letters(RecentLetters(Counter({("store", "telemetry.b"): 3}), of_day))
    assert state(some) is State.WARNING
    assert some.found == (
        "3 in the last hour, 14 in the last day: store of telemetry.b 3, 12; monitor of telemetry.a 0, 2"
    )
    assert some.todo.startswith("run `offbeat dead-letters list`")
    many = Counter({("store", f"telemetry.{number}"): 1 for number in range(20)})
    found = bus.of_dead_letters(RecentLetters(many, many, whole=False)).found
    assert found.startswith("at least 20 in the last hour, 20 in the last day: store of telemetry.0 1, 1; ")
    assert found.endswith("; 12 further places")


@pytest.mark.parametrize(
    ("newest_s", "expected"),
    [(None, State.SKIPPED), (NOW_S - 3600, State.OK), (NOW_S + 0.5, State.OK), (NOW_S + 2, State.FAILED)],
)
def test_the_brokers_clock(newest_s: float | None, expected: State) -> None:
    assert state(bus.of_clock(None if newest_s is None else int(newest_s * 1e9), NOW_S)) is expected


@pytest.mark.parametrize(
    ("store_s", "expected"),
    [(NOW_S + 1, State.OK), (NOW_S - 0.9, State.OK), (NOW_S - 1.5, State.FAILED), (NOW_S + 4, State.FAILED)],
)
def test_the_stores_clock_lies_between_question_and_answer(store_s: float, expected: State) -> None:
    assert state(store.of_clock(store_s, NOW_S, NOW_S + 2)) is expected


class Answering:
    """A store that answers by the first word that is in a question; an error is raised."""

    def __init__(self, **answers: list[dict[str, Any]] | StoreError) -> None:
        self._answers = {"version()": [{"version": "26.3", "now_ns": time.time_ns()}], **answers}

    def query(self, sql: str, params: object = None, settings: object = None) -> pa.Table:
        answer = next(answer for word, answer in self._answers.items() if word in sql)
        if isinstance(answer, StoreError):
            raise answer
        return pa.Table.from_pylist(answer)

    def execute(self, sql: str, params: object = None) -> None:
        raise AssertionError(f"doctor would change the store: {sql}")

    def insert(self, table: str, data: object, token: str) -> None:
        raise AssertionError(f"doctor would fill {table}")

    def close(self) -> None:
        """Nothing is open."""


def test_a_store_without_tables_and_with_a_full_disk() -> None:
    full = [{"name": "big", "free": 50, "total": 100}, {"name": "default", "free": 9, "total": 100}]
    answering = Answering(EXISTS=[{"result": 0}], disks=full)
    checks = {check.what: check for check in store.of_store(answering, "host", StoreSettings(engine="clickhouse"))}
    assert {what: state(check) for what, check in checks.items()} == {
        "store": State.OK,
        "migrations": State.FAILED,
        "clock of the store": State.OK,
        "disk of the store": State.FAILED,
    }
    assert checks["migrations"].todo == "run `offbeat store migrate`"
    assert checks["disk of the store"].found.endswith("free on default")


def test_disks_without_a_size_are_skipped() -> None:
    endless = [{"name": "s3", "free": 0, "total": 0}]
    answering = Answering(EXISTS=[{"result": 0}], disks=endless)
    checks = {check.what: check for check in store.of_store(answering, "host", StoreSettings())}
    assert state(checks["disk of the store"]) is State.SKIPPED
    assert checks["disk of the store"].found == "no disk of the store tells its size"


def test_a_store_that_an_unknown_build_made_and_that_hides_its_disks() -> None:
    newer = [{"number": 9999, "name": "later", "checksum": "0"}]
    hidden = StoreError("not enough privileges")
    answering = Answering(EXISTS=[{"result": 1}], disks=hidden, FROM=newer)
    checks = {check.what: check for check in store.of_store(answering, "host", StoreSettings())}
    assert checks["migrations"].todo == "use a newer one"
    assert state(checks["disk of the store"]) is State.SKIPPED


def test_pinned_libraries_have_their_version() -> None:
    from importlib.metadata import version

    pinned = f"clickhouse-driver[lz4]=={version('clickhouse-driver')}"
    assert state(machine.of_versions([pinned, "rich<1,>=0"])) is State.OK
    wrong = machine.of_versions([pinned, "aiokafka==0.0.1", "no-such-library==1"])
    assert state(wrong) is State.FAILED
    assert wrong.found == f"aiokafka is {version('aiokafka')}, not 0.0.1; no-such-library is missing, not 1"


def test_files_with_secrets_belong_to_their_owner(tmp_path: Path) -> None:
    open_to_all, own = tmp_path / "open", tmp_path / "own"
    for path, mode in ((open_to_all, 0o644), (own, 0o640)):
        path.write_text(HUSH)
        path.chmod(mode)
    settings = Settings(
        kafka={"password_file": str(open_to_all)}, store={"password_file": str(own), "key": str(tmp_path / "none")}
    )
    checks = list(machine.of_secret_files(machine.secret_files(settings)))
    assert sorted(state(check) for check in checks) == [State.FAILED, State.OK, State.WARNING]
    assert not any(HUSH in f"{check}" for check in checks)


def live(tmp_path: Path) -> LiveSettings:
    return LiveSettings(rings=tmp_path / "rings", folder=tmp_path / "agent", keep_bytes=1 << 20, spool_bytes=1 << 20)


def test_a_host_that_trains(tmp_path: Path) -> None:
    settings = live(tmp_path)
    assert [state(check) for check in machine.of_live(settings)] == [State.SKIPPED]
    settings.rings.mkdir()
    settings.rings.chmod(0o1777)
    (settings.rings / "0-abc").mkdir(0o700)
    settings.folder.mkdir(0o700)
    assert [state(check) for check in machine.of_live(settings)] == [State.OK, State.OK]
    settings.rings.chmod(0o777)
    settings.folder.chmod(0o777)
    assert [state(check) for check in machine.of_live(settings)] == [State.FAILED, State.WARNING]
    vast = settings.model_copy(update={"keep_bytes": 1 << 60})
    assert state(list(machine.of_live(vast))[1]) is State.WARNING


def test_rings_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the doctor of another user sees them; who owns a folder cannot be changed without being root."""
    settings = live(tmp_path)
    (settings.rings / "0-abc").mkdir(parents=True, mode=0o700)
    settings.rings.chmod(0o1777)
    others = {"0-abc"}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine, "is_ours", lambda folder: folder.name not in others)
    rings, _ = machine.of_live(settings)
    assert state(rings) is State.FAILED
    assert rings.found.endswith("1 process, all of other users, as 0-abc")
    assert rings.todo == "run the agent as the user that trains, or as root"
    (settings.rings / "1-def").mkdir(mode=0o700)
    rings, _ = machine.of_live(settings)
    assert state(rings) is State.WARNING
    assert rings.found.endswith("1 of 2 processes are of other users, as 0-abc")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state(next(machine.of_live(settings))) is State.OK


def test_the_tuning_file_is_read_as_a_step_would(tmp_path: Path) -> None:
    file = tmp_path / "tuning"
    settings = Settings(worker={"tuning": str(file)})
    assert list(machine.of_tuning(Settings())) == []

    def check(text: str | None) -> Checked:
        if text is not None:
            file.write_text(text)
        [check] = machine.of_tuning(settings)
        return check

    missing = check(None)
    assert state(missing) is State.FAILED
    assert missing.found.startswith(f"OFFBEAT_WORKER__TUNING: {file}: ")
    good = check("OFFBEAT_MONITOR__DELTA=1.2")
    assert (state(good), good.found) == (State.OK, f"{file} sets monitor.delta=1.2")
    for wrong in ("delta: 1.2", "OFFBEAT_MONITOR__DELTA=much", "OFFBEAT_KAFKA__PASSWORD=a", "OFFBEAT_PIVOTS=3"):
        assert state(check(wrong)) is State.FAILED


def test_a_secret_file_that_is_missing_costs_its_own_service_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    for variable, value in {
        "OFFBEAT_STORE__PASSWORD_FILE": str(tmp_path / "gone"),
        "OFFBEAT_WEBHOOK__URL_FILE": str(empty),
        "OFFBEAT_LIVE__RINGS": str(tmp_path / "rings"),
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(bus, "examine", lambda _: iter([Checked("brokers", State.OK, "asked")]))
    checks = list(examine(settle({})))
    found = {check.what: state(check) for check in checks}
    assert [check.found for check in checks if check.what == "secret file"] == [
        f"OFFBEAT_STORE__PASSWORD_FILE: {tmp_path}/gone: no such file or directory",
        f"OFFBEAT_WEBHOOK__URL_FILE: {empty} does not hold one line",
    ]
    assert found["secret file"] is State.FAILED
    assert (found["store"], found["receiver of pages"]) == (State.SKIPPED, State.SKIPPED)
    assert (found["brokers"], found["rings"]) == (State.OK, State.SKIPPED)


@pytest.mark.parametrize(
    "half", [{"receiver": "pagerduty"}, {"receiver": "alertmanager"}, {"receiver": "slack", "secrets": "abc"}]
)
def test_a_receiver_of_pages_that_is_set_up_by_half_is_told(half: dict[str, Any]) -> None:
    [check, *_] = paging.examine(WebhookSettings(**half))
    assert state(check) is State.FAILED


def test_settings_that_cannot_be_are_a_failed_check() -> None:
    result = offbeat("doctor", "--json", settings={"OFFBEAT_STORE__PORT": "many"})
    assert result.exit_code == 1
    settings, rest = json.loads(result.stdout)
    assert (settings["what"], settings["state"]) == ("settings", "failed")
    assert settings["found"].startswith("OFFBEAT_STORE__PORT: ")
    assert rest["state"] == "skipped"


def test_where_there_is_no_terminal_a_check_is_a_line_with_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Checked("brokers", State.OK, "a:1 answers"),
        Checked("lag of offbeat sink", State.SKIPPED, "two\nlines"),
        Checked("topics", State.FAILED, f"missing: {'a.topic, ' * 40}another", "run `offbeat topics apply`"),
    ]
    monkeypatch.setattr("offbeat.doctor.examine", lambda _: iter(found))
    assert offbeat("doctor").stdout.splitlines() == [
        "ok       brokers: a:1 answers",
        "skipped  lag of offbeat sink: two\\nlines",
        f"failed   topics: missing: {'a.topic, ' * 40}another; to do: run `offbeat topics apply`",
    ]


def test_a_folder_that_a_sink_fills_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "status").touch()
    holding = (
        "import fcntl, sys; f = open(sys.argv[1], 'rb'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    command = [sys.executable, "-c", holding, str(tmp_path / "status")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sink:
        assert sink.stdout is not None
        sink.stdout.readline()
        [check] = store.examine(StoreSettings(engine="chdb", path=tmp_path))
        sink.communicate(b"\n")
    assert state(check) is State.SKIPPED
    assert check.found.startswith(f"{tmp_path} is held by process {sink.pid}, ")


def test_paging_is_judged_by_its_settings_alone() -> None:
    def states(**settings: Any) -> list[State]:
        return [state(check) for check in paging.examine(WebhookSettings(**settings))]

    url = SecretStr(f"https://oncall.example/{HUSH}")
    assert states() == [State.SKIPPED]
    assert states(receiver="pagerduty", url=url) == [State.FAILED]
    assert states(url=SecretStr("ftp://oncall.example")) == [State.FAILED]
    assert states(url=url) == [State.OK, State.WARNING, State.WARNING]
    assert states(url=url, secrets=SecretStr("s"), external_url="https://grafana.example") == [State.OK]


@pytest.mark.kafka
@pytest.mark.clickhouse
def test_on_real_services(local_kafka: LocalKafka, local_clickhouse: LocalClickHouse, tmp_path: Path) -> None:
    settings = settings_of(local_kafka, local_clickhouse) | {
        "OFFBEAT_WEBHOOK__URL": f"https://oncall.example/{HUSH}",
        "OFFBEAT_LIVE__RINGS": str(tmp_path / "rings"),
    }

    def states() -> dict[str, str]:
        result = offbeat("doctor", "--json", settings=settings)
        assert result.stdout, (result.output, result.exception)
        checks = json.loads(result.stdout)
        assert result.exit_code == any(check["state"] == "failed" for check in checks), result.output
        assert all(check["todo"] for check in checks if check["state"] == "failed")
        assert HUSH not in result.output
        assert local_clickhouse.password not in result.output
        return {check["what"]: check["state"] for check in checks}

    bare = states()
    assert {what for what, found in bare.items() if found == "failed"} == {"topics", "migrations"}
    for prepared in (("topics", "apply"), ("store", "migrate")):
        assert offbeat(*prepared, settings=settings).exit_code == 0
    assert "failed" not in states().values()

    assert offbeat("produce", "--recording", EXAMPLE, "--linger", 0, settings=settings).exit_code == 0
    waiting = states()
    assert {what for what, found in waiting.items() if found == "failed"} == {
        "lag of offbeat worker monitor",
        "lag of offbeat worker search",
        "lag of offbeat sink",
    }
    environment = {**own_environment(settings), "PYTHONPATH": str(ROOT)}
    with Role(KINDS["monitor"], environment, tmp_path / "monitor"):
        deadline = time.monotonic() + 90
        while states()["lag of offbeat worker monitor"] != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.2)
    lines = offbeat("doctor", settings=settings)
    assert lines.exit_code == 1
    assert HUSH not in lines.output
    [line] = [line for line in lines.stdout.splitlines() if line.startswith("failed   lag of offbeat sink: ")]
    assert "no member, " in line
    assert "start `offbeat sink`; its log says why it ended" in line
