"""docs/settings.md tells every setting, and its default as it is."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from offbeat.settings import Settings
from offbeat.settings_page import settings_page

FILE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_as_the_settings_are() -> None:
    assert FILE.read_text("utf-8") == settings_page(), "run: python -m offbeat.settings_page > docs/settings.md"


def rows() -> list[tuple[str, str]]:
    return re.findall(r"^\| `(OFFBEAT_\w+)` \| (.+?) \|", settings_page(), re.MULTILINE)


def test_every_default_shown_is_taken_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Settings.load()
    shown = rows()
    assert len(shown) > 60
    for variable, default in shown:
        if default == "-":
            found: Any = before
            for name in variable.removeprefix("OFFBEAT_").lower().split("__"):
                found = getattr(found, name)
            assert (found.get_secret_value() if isinstance(found, SecretStr) else found) in {None, ""}, variable
        else:
            monkeypatch.setenv(variable, default.strip("`"))
    assert Settings.load() == before


def test_every_setting_has_a_sentence_that_says_what_it_is() -> None:
    meanings = re.findall(r"^\| `(OFFBEAT_\w+)` \| [^|]+ \| [^|]+ \| (.*) \|$", settings_page(), re.MULTILINE)
    assert [variable for variable, _ in meanings] == [variable for variable, _ in rows()]
    for variable, meaning in meanings:
        assert re.fullmatch(r"[A-Z`][^|]{10,}\.", meaning), variable
        assert "``" not in meaning, variable


def test_every_choice_is_shown() -> None:
    page = settings_page()
    assert "| `OFFBEAT_LOG_LEVEL` | `info` | `debug`, `info`, `warning`, `error` |" in page
    assert "| `OFFBEAT_STORE__PORT` | - | whole number |" in page
    assert "| `OFFBEAT_STORE__PASSWORD` | - | text, never shown |" in page
