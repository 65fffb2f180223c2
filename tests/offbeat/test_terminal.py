"""Progress and logs on stderr."""

import io
import json
import logging
import sys
from typing import Any

import pytest
import structlog
from rich.table import Table

from offbeat import logs, terminal
from offbeat.commands import silences
from offbeat.errors import told_in_one_line
from schemas.errors import SettingsError
from sinks.webhook.silences import Silence


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("count", "what", "said"),
    [(1, "rank", "1 rank"), (0, "rank", "0 ranks"), (1, "process", "1 process"), (2, "process", "2 processes")],
)
def test_one_is_told_in_the_singular(count: int, what: str, said: str) -> None:
    assert terminal.counted(count, what) == said


def test_elsewhere_long_work_is_told_in_plain_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(terminal, "LINE_AFTER_S", 1e6)
    with terminal.progress("counting", 3) as shown:
        shown.advance(1)
        shown.say("found one")
        shown.advance(2)
    with terminal.progress("reading") as shown:
        shown.advance(5)
    assert capsys.readouterr().err.splitlines() == [
        "counting: 1 of 3",
        "found one",
        "counting: 2 of 3",
        "reading: 5",
    ]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LINE_EVERY_S", 1e6)
    monkeypatch.setattr(terminal, "LINE_AFTER_S", 1e6)
    with terminal.progress("counting", 3) as shown:
        shown.advance(1)
    assert capsys.readouterr() == ("", "")


def test_work_that_does_not_come_to_a_step_is_told_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "LINE_AFTER_S", 0.0)
    told = ""
    with terminal.progress("reading"):
        while not told:
            told = capsys.readouterr().err
    assert told == "reading ...\n"


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Tty()
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.progress("counting", 3) as shown:
        shown.advance(3)
        shown.say("found one")
    drawn = screen.getvalue()
    assert "counting" in drawn
    assert "3/3" in drawn
    assert "found one\n" in drawn


def test_the_answer_is_json_that_every_program_reads(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"text": "é", "list": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"text": "é", "list": [1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        terminal.print_json(float("nan"))


class TestLogs:
    def lines(self, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
        out, err = capsys.readouterr()
        assert out == ""
        return [json.loads(line) for line in err.splitlines()]

    def test_both_ways_of_logging_become_json_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("info")
        logging.getLogger("streams.worker").info("worker %s starts", "monitor")
        structlog.get_logger("sinks.webhook").warning("receiver away", waiting=3)
        first, second = self.lines(capsys)
        assert (first["event"], first["level"], first["logger"]) == (
            "worker monitor starts",
            "info",
            "streams.worker",
        )
        assert (second["event"], second["level"], second["waiting"]) == ("receiver away", "warning", 3)
        assert first["timestamp"].endswith("Z")

    def test_what_is_below_the_level_is_left_out(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("warning")
        logging.getLogger("streams").info("no")
        structlog.get_logger("sinks").info("no")
        logging.getLogger("httpx").warning("yes")
        assert [line["event"] for line in self.lines(capsys)] == ["yes"]

    def test_a_traceback_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        logs.configure("info")
        try:
            _ = 1 / 0
        except ZeroDivisionError:
            logging.getLogger("streams").exception("failed")
        [line] = self.lines(capsys)
        assert "ZeroDivisionError" in line["exception"]

    def test_on_a_terminal_a_traceback_shows_no_values(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        logs.configure("info")

        def refused(secret: str) -> None:
            raise ValueError("no")

        try:
            refused("hunter2"[::-1])
        except ValueError:
            logging.getLogger("streams").exception("failed")
        err = capsys.readouterr().err
        assert "ValueError: no" in err
        assert "2retnuh" not in err


def test_texts_tell_a_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "gpu\x1b[2J\x9b1m\u202e é"
    table = Table("device")
    table.add_row(evil)
    out = terminal.console()
    out.print(evil, style="red")
    out.print(table)
    terminal.note(evil)
    told = capsys.readouterr()
    assert told.out.count(r"gpu\x1b[2J\x9b1m\u202e é") == 2
    assert told.err == "gpu\\x1b[2J\\x9b1m\\u202e é\n"
    assert "\x1b" not in told.out


def test_a_refusal_tells_a_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), told_in_one_line():
        raise SettingsError("job \x1b[2J")
    assert capsys.readouterr().err == "job \\x1b[2J\n"


def test_a_silence_tells_a_terminal_nothing() -> None:
    line = silences._line(Silence("a", 1, 0, job="b", reason="c\x1b[2J\nd"))
    assert line.endswith(r": job b (c\x1b[2J\nd)")
