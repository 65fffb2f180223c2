"""The users of docs/security.md, on a served ClickHouse: each may do its work, and nothing else."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from local.clickhouse import LocalClickHouse
from schemas.errors import StoreError
from sinks.clickhouse.driver import DriverStore, ServerAddress
from sinks.clickhouse.migrate import require_migrated
from tests.offbeat.command_line import EXAMPLE, ROOT, offbeat, refusal
from tests.services import skipped_where_unavailable
from tests.sinks.clickhouse.samples import stored_in

pytestmark = pytest.mark.clickhouse

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
MIGRATE, SINK, READER, REPLAY = "offbeat_migrate", "offbeat_sink", "offbeat_reader", "offbeat_replay"
DATABASE = "offbeat"
PASSWORD = "of-a-test"


def documented() -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """Settings and grants of each user, as the page's statements have them."""
    [block] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    statements = [statement.strip() for statement in block.split(";") if statement.strip()]
    settings: dict[str, dict[str, str]] = {}
    grants: dict[str, list[str]] = defaultdict(list)
    for statement in statements:
        if made := re.fullmatch(r"CREATE USER (\w+) IDENTIFIED BY '\.\.\.'(?: SETTINGS (.*))?", statement):
            pairs = [pair.split(" = ") for pair in (made[2] or "").split(", ") if pair]
            settings[made[1]] = {pair[0]: pair[1] for pair in pairs}
        elif statement != f"CREATE DATABASE {DATABASE}":
            granted = re.fullmatch(r"(GRANT .*) TO (\w+)", statement)
            assert granted, statement
            grants[granted[2]].append(granted[1])
    return settings, grants


class WithUsers(LocalClickHouse):
    """A server that has these users from its configuration: made by statements they would be no different."""

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        prepared = super().prepare()
        settings, grants = documented()
        profiles = "".join(
            f"<{user}>{''.join(f'<{name}>{value}</{name}>' for name, value in own.items())}</{user}>"
            for user, own in settings.items()
        )
        users = "".join(
            f"<{user}><password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks><profile>{user}</profile>"
            f"<grants>{''.join(f'<query>{grant}</query>' for grant in grants[user])}</grants></{user}>"
            for user in settings
        )
        folder = self.folder / ".clickhouse-local" / "users.d"
        folder.mkdir(exist_ok=True)
        (folder / "offbeat.xml").write_text(
            f"<clickhouse><profiles>{profiles}</profiles><users>{users}</users></clickhouse>"
        )
        return prepared


def settings_of(server: WithUsers, user: str) -> dict[str, str]:
    return {
        "OFFBEAT_STORE__ENGINE": "clickhouse",
        "OFFBEAT_STORE__HOST": server.host,
        "OFFBEAT_STORE__PORT": str(server.tcp_port),
        "OFFBEAT_STORE__DATABASE": DATABASE,
        "OFFBEAT_STORE__USER": user,
        "OFFBEAT_STORE__PASSWORD": PASSWORD,
    }


def store_of(server: WithUsers, user: str) -> DriverStore:
    return DriverStore(ServerAddress(server.host, server.tcp_port, DATABASE, user, PASSWORD), retry_for_s=0)


def by_administrator(server: WithUsers, statement: str) -> None:
    address = ServerAddress(server.host, server.tcp_port, user=server.user, password=server.password)
    store = DriverStore(address, retry_for_s=0)
    store.execute(statement)
    store.close()


@pytest.fixture(scope="module")
def server() -> Iterator[WithUsers]:
    """Migrated by the one user, filled by the other."""
    with skipped_where_unavailable(), WithUsers() as server:
        by_administrator(server, f"CREATE DATABASE {DATABASE}")
        for said in ("applied 0001_tables", "the store is as it should be"):
            migrated = offbeat("store", "migrate", settings=settings_of(server, MIGRATE))
            assert migrated.exit_code == 0, migrated.output
            assert said in migrated.stdout
        store = store_of(server, SINK)
        require_migrated(store)
        stored_in(store)
        store.close()
        yield server


def test_the_reader_asks_and_ranks(server: WithUsers) -> None:
    settings = settings_of(server, READER)
    asked = offbeat("sql", "SELECT count() AS n FROM incidents FINAL", "--json", settings=settings)
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout) == [{"n": 3}]
    assert offbeat("sql", "SELECT * FROM open_incidents", settings=settings).exit_code == 0
    ranked = offbeat("rank", "--json", settings=settings)
    assert ranked.exit_code == 0, ranked.output
    assert json.loads(ranked.stdout)
    checks = json.loads(offbeat("doctor", "--bootstrap", "127.0.0.1:1", "--json", settings=settings).stdout)
    states = {check["what"]: check["state"] for check in checks}
    assert (states["store"], states["migrations"], states["clock of the store"]) == ("ok", "ok", "ok")


def test_a_replay_makes_and_replaces_its_result_set_and_touches_nothing_else(server: WithUsers) -> None:
    settings = settings_of(server, REPLAY)
    for more in ((), ("--replace",)):
        replayed = offbeat("replay", EXAMPLE, "--as", "again", *more, "--json", settings=settings)
        assert replayed.exit_code == 0, replayed.output
    assert "there is a result set again already" in refusal(
        offbeat("replay", EXAMPLE, "--as", "again", settings=settings)
    )
    database = f"{DATABASE}_again"
    # As a replay leaves it that was killed before it was done, and before it had a table.
    for left in (
        [f"TRUNCATE TABLE {database}.replay"],
        [f"DROP DATABASE {database} SYNC", f"CREATE DATABASE {database}"],
    ):
        for statement in left:
            by_administrator(server, statement)
        unfinished = refusal(offbeat("replay", EXAMPLE, "--as", "again", settings=settings))
        assert "result set again is unfinished" in unfinished
        assert offbeat("replay", EXAMPLE, "--as", "again", "--replace", settings=settings).exit_code == 0
    of_set = {**settings, "OFFBEAT_STORE__DATABASE": f"{DATABASE}_again"}
    asked = offbeat("sql", "SELECT count() AS n FROM incidents FINAL", "--json", settings=of_set)
    assert json.loads(asked.stdout) == [{"n": 1}]
    store = store_of(server, REPLAY)
    for statement in (
        "SELECT * FROM findings",
        "INSERT INTO findings SELECT * FROM findings",
        "DROP TABLE findings",
        f"DROP DATABASE {DATABASE}",
        "CREATE DATABASE another",
        "SELECT * FROM system.users",
    ):
        with pytest.raises(StoreError, match=r"[Nn]ot enough privileges"):
            store.execute(statement)
    store.close()


@pytest.mark.parametrize("user", [SINK, READER])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE findings",
        "TRUNCATE TABLE findings",
        "ALTER TABLE findings DELETE WHERE 1",
        "ALTER TABLE findings ADD COLUMN mine Int8",
        "CREATE TABLE mine (x Int8) ENGINE = MergeTree ORDER BY x",
        "SELECT * FROM system.users",
        "SELECT * FROM url('http://127.0.0.1:1/', LineAsString)",
        "SELECT * FROM file('/etc/passwd', LineAsString)",
        "INSERT INTO FUNCTION url('http://127.0.0.1:1/', LineAsString) SELECT 1",
        "CREATE USER another IDENTIFIED BY 'x'",
        "GRANT SELECT ON *.* TO offbeat_reader",
        "SYSTEM SHUTDOWN",
    ],
)
def test_neither_changes_tables_nor_leaves_the_database(server: WithUsers, user: str, statement: str) -> None:
    store = store_of(server, user)
    with pytest.raises(StoreError, match=r"[Nn]ot enough privileges|readonly mode|no grant"):
        store.execute(statement)
    store.close()


def test_the_sink_reads_no_findings_and_the_reader_writes_none(server: WithUsers) -> None:
    for user, statement in ((SINK, "SELECT * FROM findings"), (READER, "INSERT INTO findings SELECT * FROM findings")):
        store = store_of(server, user)
        with pytest.raises(StoreError, match=r"[Nn]ot enough privileges|readonly mode"):
            store.execute(statement)
        store.close()


def test_a_wrong_password_is_one_line(server: WithUsers) -> None:
    settings = {**settings_of(server, READER), "OFFBEAT_STORE__PASSWORD": "not-it-3c1f"}
    line = refusal(offbeat("sql", "SELECT 1", settings=settings))
    assert "Authentication failed" in line
    assert "not-it-3c1f" not in line
