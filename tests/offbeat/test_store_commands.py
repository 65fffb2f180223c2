"""`offbeat store migrate`, `sql` and `rank`, on a chDB folder that `diagnose --data-dir` filled."""

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from sinks.clickhouse.chdb import ChdbStore
from tests.offbeat.command_line import EXAMPLE, offbeat, refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "data"
    result = offbeat("diagnose", EXAMPLE, "--data-dir", folder)
    assert result.exit_code == 0, result.output
    return folder


def rows(folder: Path, query: str, *more: str) -> Any:
    result = offbeat("sql", query, "--data-dir", folder, "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_what_was_diagnosed_is_stored(folder: Path) -> None:
    [incident] = rows(folder, "SELECT job, cause, ranks, devices.device AS devices, state FROM incidents FINAL")
    assert incident == {
        "job": "a1_compute_persist_3d",
        "cause": "compute_slow",
        "ranks": [5],
        "devices": ["gpu:rank5"],
        "state": "resolved",
    }
    [count] = rows(folder, "SELECT count() AS iterations, countIf(irregular) AS irregular FROM iteration_history")
    assert count == {"iterations": 60, "irregular": 30}


def test_a_folder_that_holds_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    recording = tmp_path / "logs"
    recording.mkdir()
    (recording / "rank0.jsonl").touch()
    for asking in (("sql", "SELECT 1"), ("rank",), ("sink",)):
        said = refusal(offbeat(*asking, "--data-dir", recording))
        assert said.startswith(f"{recording}: holds no store; name one with --data-dir, make it with `offbeat store ")
    assert offbeat("store", "migrate", "--dry-run", "--data-dir", recording).exit_code == 0
    assert [path.name for path in recording.iterdir()] == ["rank0.jsonl"]


def test_a_second_diagnosis_changes_nothing(folder: Path) -> None:
    query = "SELECT count() AS n, sum(cityHash64(*)) AS digest FROM findings FINAL"
    before = rows(folder, query)
    assert offbeat("diagnose", EXAMPLE, "--data-dir", folder).exit_code == 0
    assert rows(folder, query) == before


def test_the_culprit_leads_the_ranking(folder: Path) -> None:
    ranking = json.loads(offbeat("rank", "--data-dir", folder, "--json").stdout)
    assert (ranking[0]["place"], ranking[0]["device"]) == (1, "gpu:rank5")
    of_job = ("rank", "--data-dir", folder, "--json", "--job", "a1_compute_persist_3d")
    assert json.loads(offbeat(*of_job).stdout) == ranking
    assert json.loads(offbeat(*of_job, "--until", "2001-01-01").stdout) == []
    assert json.loads(offbeat("rank", "--data-dir", folder, "--json", "--until", "2001-01-01").stdout) == []
    assert json.loads(offbeat("rank", "--data-dir", folder, "--json", "--since", "2001-01-01").stdout) == ranking


def test_a_window_or_a_job_that_is_not_there_is_said(folder: Path) -> None:
    rank = ("rank", "--data-dir", folder)
    for until in ("2020-01-01", "2030-01-01"):
        said = refusal(offbeat(*rank, "--since", "2030-01-01", "--until", until))
        assert said.startswith("offbeat rank: Invalid value: there is nothing between --since and --until")
    said = refusal(offbeat(*rank, "--since", "2199-01-01"))
    assert said.startswith("offbeat rank: Invalid value: --since is 2199-01-01 00:00 UTC, which is yet to come")
    assert refusal(offbeat(*rank, "--job", "another")).startswith(
        "nothing is stored of job 'another'; see `offbeat sql"
    )


def test_the_jobs_that_there_are_are_listed_by_the_command_that_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "in a folder"
    assert offbeat("store", "migrate", "--data-dir", folder).exit_code == 0
    store = ChdbStore(folder)
    store.execute("INSERT INTO iterations (job) VALUES ('of-operators'), ('of-both')")
    store.execute("INSERT INTO traffic_metrics (job) VALUES ('of-nics'), ('of-both')")
    store.close()
    said = refusal(offbeat("rank", "--data-dir", folder, "--job", "another"))
    name, *arguments = shlex.split(said.partition("`")[2].removesuffix("`"))
    assert name == "offbeat"
    jobs = json.loads(offbeat(*arguments, "--json").stdout)
    assert sorted(row["job"] for row in jobs) == ["of-both", "of-nics", "of-operators"]


def test_how_devices_are_ranked_can_be_chosen(folder: Path) -> None:
    def ranked(*how: str) -> Any:
        return json.loads(offbeat("rank", "--data-dir", folder, "--json", *how).stdout)

    whole, plain = ranked("--top", "0"), ranked("-k", "0", "--no-prior", "--no-decay")
    assert [row["place"] for row in ranked("-k", "1")] == [1]
    assert {row["device"] for row in whole} == {row["device"] for row in plain}
    assert whole[0]["ambiguity_set"] == ["gpu:rank5"]
    assert plain[0]["score"] == pytest.approx(
        plain[0]["irregularity_rate"] / sum(r["irregularity_rate"] for r in plain)
    )
    assert ranked("-k", "0", "--alpha", "1e6")[0]["score"] == pytest.approx(74 / 126, abs=1e-3)
    assert ranked("-k", "0", "--epsilon", "1e-6") != []
    assert "alpha is -1.0; give 0 or more" in refusal(offbeat("rank", "--data-dir", folder, "--alpha", "-1"))


def test_people_get_a_table_and_programs_csv(folder: Path) -> None:
    query = "SELECT 1 AS number, 'a,b' AS text, [1, 2] AS list, NULL AS nothing"
    assert offbeat("sql", query, "--data-dir", folder).stdout.splitlines()[0].split() == [
        "number",
        "text",
        "list",
        "nothing",
    ]
    assert offbeat("sql", query, "--csv", "--data-dir", folder).stdout == (
        'number,text,list,nothing\n1,"a,b","[1, 2]",\n'
    )


def test_nested_values_are_json_in_csv(folder: Path) -> None:
    query = "SELECT map('at', 'häst') AS pairs, [tuple(1, 'b')::Tuple(rank Int32, host String)] AS hosts"
    [header, line] = csv.reader(offbeat("sql", query, "--csv", "--data-dir", folder).stdout.splitlines())
    assert header == ["pairs", "hosts"]
    [row] = rows(folder, query)
    assert [json.loads(cell) for cell in line] == [row["pairs"], row["hosts"]]
    assert "häst" in line[0]


def test_values_that_json_lacks_have_a_form(folder: Path) -> None:
    query = "SELECT toDateTime64('2026-01-02 03:04:05.123456789', 9, 'UTC') AS at, nan AS ratio, [inf] AS more"
    assert rows(folder, query) == [{"at": "2026-01-02 03:04:05.123456789Z", "ratio": None, "more": [None]}]


def test_parameters_are_no_part_of_the_query(folder: Path) -> None:
    [row] = rows(folder, "SELECT {text:String} AS text, {n:Int32} + 1 AS n", "-p", "text=a' OR '1'='1", "-p", "n=4")
    assert row == {"text": "a' OR '1'='1", "n": 5}
    assert "NAME=VALUE" in refusal(offbeat("sql", "SELECT 1", "-p", "text", "--data-dir", folder))


def test_a_long_answer_is_cut_and_said_to_be(folder: Path) -> None:
    result = offbeat("sql", "SELECT number FROM numbers(9)", "--csv", "--max-rows", 3, "--data-dir", folder)
    assert result.stdout.splitlines() == ["number", "0", "1", "2"]
    assert result.stderr == "only the first 3 rows; --max-rows asks for more\n"


@pytest.mark.parametrize(
    "query",
    ["DROP TABLE findings", "INSERT INTO migrations (number) VALUES (9)", "ALTER TABLE findings DELETE WHERE true"],
)
def test_nothing_can_be_changed(folder: Path, query: str) -> None:
    before = rows(folder, "SELECT count() FROM findings")
    said = refusal(offbeat("sql", query, "--data-dir", folder))
    assert said.startswith("only SELECT, WITH, SHOW, DESCRIBE, EXISTS and EXPLAIN are allowed")
    assert rows(folder, "SELECT count() FROM findings") == before


def test_an_empty_answer_is_said_to_be(folder: Path) -> None:
    query = ("sql", "SELECT job FROM findings WHERE false", "--data-dir", folder)
    assert offbeat(*query).stdout == "no rows\n"
    assert offbeat(*query, "--csv").stdout == "job\n"
    assert json.loads(offbeat(*query, "--json").stdout) == []


def test_a_wrong_query_is_one_line(folder: Path) -> None:
    said = refusal(offbeat("sql", "SELECT * FROM nothing_there", "--data-dir", folder))
    assert said == f"chDB folder {folder}: Unknown table expression identifier 'nothing_there'"
    assert "either --csv or --json" in refusal(offbeat("sql", "SELECT 1", "--csv", "--json", "--data-dir", folder))


def test_a_store_that_is_not_there_is_said(tmp_path: Path) -> None:
    for arguments in (("sql", "SELECT 1"), ("rank",)):
        line = refusal(offbeat(*arguments, "--data-dir", tmp_path / "none"))
        assert line.startswith(f"{tmp_path}/none: no such chDB folder; name one with --data-dir")
    assert not (tmp_path / "none").exists()


def test_the_sink_says_how_its_folder_is_migrated(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    remedy = f"`offbeat store migrate --data-dir {folder}`"
    assert f"no such chDB folder; name one with --data-dir, make it with {remedy}" in refusal(
        offbeat("sink", "--data-dir", folder)
    )
    ChdbStore(folder).close()
    (folder / "metadata").mkdir(exist_ok=True)
    line = refusal(offbeat("sink", "--data-dir", folder))
    assert line == f"the store lacks migration 0001_tables; run {remedy}"


def test_a_folder_that_nobody_named_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = offbeat("store", "migrate")
    assert made.exit_code == 0, made.output
    assert made.stderr == f"no store is set: making the chDB folder {tmp_path / 'offbeat-data'}\n"
    assert offbeat("store", "migrate").stderr == ""
    assert offbeat("store", "migrate", "--data-dir", tmp_path / "named").stderr == ""


def test_a_server_that_is_away_is_said_at_once() -> None:
    away = {"OFFBEAT_STORE__ENGINE": "clickhouse", "OFFBEAT_STORE__HOST": "127.0.0.1", "OFFBEAT_STORE__PORT": "1"}
    assert "ClickHouse at 127.0.0.1:1" in refusal(offbeat("sql", "SELECT 1", settings=away))


def test_of_a_folder_that_is_not_there_it_says_what_would_be_applied(tmp_path: Path) -> None:
    where = ("--data-dir", tmp_path / "new")
    would = offbeat("store", "migrate", "--dry-run", *where)
    assert would.exit_code == 0, would.output
    assert would.stderr == f"the chDB folder {tmp_path / 'new'} would be made\n"
    assert not (tmp_path / "new").exists()
    assert offbeat("store", "migrate", *where).stdout == would.stdout.replace("would apply", "applied") != ""
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file: no such chDB folder" in refusal(
        offbeat("store", "migrate", "--dry-run", "--data-dir", tmp_path / "file")
    )


def test_a_store_is_migrated_once(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    where = ("--data-dir", tmp_path / "new")
    would = offbeat("store", "migrate", "--dry-run", *where).stdout
    assert would.startswith("would apply 0001_")
    assert offbeat("store", "migrate", *where).stdout == would.replace("would apply", "applied")
    assert offbeat("store", "migrate", *where).stdout == "the store is as it should be\n"
    assert json.loads(offbeat("store", "migrate", "--json", *where).stdout) == []
