"""What is fetched is fetched once for a recipe, and whole or not at all."""

from pathlib import Path

import pytest

from local.cache import cached


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path))
    return tmp_path


def fetch(folder: Path) -> None:
    folder.mkdir()
    (folder / "fetched").touch()


def test_a_recipe_is_followed_once(cache: Path) -> None:
    folder = cached("jars", "version 1", fetch)
    assert folder.is_relative_to(cache)
    (folder / "fetched").rename(folder / "old")
    assert [file.name for file in cached("jars", "version 1", fetch).iterdir()] == ["old"]
    assert [file.name for file in cached("jars", "version 2", fetch).iterdir()] == ["fetched"]


def test_a_fetch_that_was_interrupted_is_done_again() -> None:
    def interrupted(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").touch()
        raise KeyboardInterrupt

    cached("jars", "version 1", fetch)
    with pytest.raises(KeyboardInterrupt):
        cached("jars", "version 2", interrupted)
    assert [file.name for file in cached("jars", "version 1", fetch).iterdir()] == ["fetched"]
