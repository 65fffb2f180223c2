"""Trained models as files: what survives, what is refused."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from errno import ENOSPC
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.features import VERSION
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from offbeat import models
from offbeat.models import Model
from schemas.errors import ModelError
from tests.diagnosis.irregularity.drawn_samples import drawn
from tests.offbeat.model_files import of_other_features, rewritten


def model() -> Model:
    samples, abnormal = drawn(800)
    detector = ForestDetector(ForestSettings(trees=5, criterion="entropy")).fit(samples, abnormal)
    return Model(replace(detector, levels=Levels.of(samples)), "drawn operators", {"f1": 0.9})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "forest.skops"
    models.save(model(), path)
    return path


def test_what_was_saved_is_loaded(saved: Path) -> None:
    samples, _ = drawn(300, seed=2)
    made, loaded = model(), models.load(str(saved))
    assert loaded.detector.probability(samples).tolist() == made.detector.probability(samples).tolist()
    assert (loaded.detector.settings, loaded.detector.levels) == (made.detector.settings, made.detector.levels)
    assert (loaded.source, loaded.figures, loaded.versions) == (made.source, made.figures, made.versions)
    assert {"scikit-learn", "skops", "numpy", "offbeat"} <= set(loaded.versions)


def test_a_file_is_replaced_once_the_new_one_is_whole(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.skops"
    path.write_bytes(saved.read_bytes())

    def full(*_: object) -> NoReturn:
        raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(ModelError, match="No space left on device"):
            models.save(replace(model(), source="another"), path)
    assert [path] == list(tmp_path.iterdir())
    assert models.load(str(path)).source == "drawn operators"
    models.save(replace(model(), source="another"), path)
    assert models.load(str(path)).source == "another"
    assert [path] == list(tmp_path.iterdir())


def test_a_model_of_other_features_is_refused(saved: Path, tmp_path: Path) -> None:
    def older(_: dict[str, Any], about: dict[str, Any]) -> None:
        about["feature_version"] = VERSION - 1

    def reordered(_: dict[str, Any], about: dict[str, Any]) -> None:
        about["patterns"] = about["patterns"][::-1]

    with pytest.raises(ModelError, match="made for the feature 'phase_of_the_moon', which this version"):
        models.load(of_other_features(saved, tmp_path))
    with pytest.raises(ModelError, match=f"features of version {VERSION - 1}, which .* train it anew"):
        models.load(rewritten(saved, tmp_path, older))
    with pytest.raises(ModelError, match="was made for features of version"):
        models.load(rewritten(saved, tmp_path, reordered))


def _of_another_format(_: dict[str, Any], about: dict[str, Any]) -> None:
    about["format"] = "operator_forest/0"


def _without_roots(content: dict[str, Any], _: dict[str, Any]) -> None:
    del content["root"]


def _circular(content: dict[str, Any], _: dict[str, Any]) -> None:
    content["left"] = np.zeros_like(content["left"])


def _of_texts(content: dict[str, Any], _: dict[str, Any]) -> None:
    content["left"] = "0"


def _with_too_few_features(_: dict[str, Any], about: dict[str, Any]) -> None:
    about["settings"]["features"] = about["settings"]["features"][:1]


def _silent(content: dict[str, Any], _: dict[str, Any]) -> None:
    content["about"] = 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_of_another_format, "format 'operator_forest/0'; this version reads"),
        (_without_roots, "damaged: 'root'"),
        (_circular, "damaged: a node's children"),
        (_of_texts, "damaged: an array is no column"),
        (_with_too_few_features, "damaged: its trees ask for"),
        (_silent, "damaged"),
    ],
)
def test_what_is_no_such_model_is_refused(
    saved: Path, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        models.load(rewritten(saved, tmp_path, change))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("settings", "abnormal_from"), "0.5", "settings.abnormal_from: input should be a valid number"),
        (("settings", "abnormal_from"), float("nan"), "settings.abnormal_from: input should be a finite number"),
        (("settings", "abnormal_from"), -1, "settings.abnormal_from is -1.0; it has to be more than 0, at most 1"),
        (("settings", "abnormal_from"), 1.5, "settings.abnormal_from is 1.5; it has to be more than 0, at most 1"),
        (("settings", "trees"), True, "settings.trees: input should be a valid integer"),
        (("settings", "most_leaves"), 1, "settings.most_leaves is 1; it has to be 2 or more"),
        (("settings", "criterion"), "x", "settings.criterion: input should be 'gini' or 'entropy'"),
        (("settings", "choice", "hard"), -1, "settings.choice.hard is -1; it has to be 0 or more"),
        (("settings", "features"), ["z_score"] * 14, "settings.features: 'z_score' stands 14 times"),
        (("settings", "features"), 5, "settings.features: input should be a valid "),
        (("levels", "mean"), {}, "levels.mean.elapsed is None; it has to be a duration in ns"),
        (("levels", "p99", "std"), -1, "levels.p99.std is -1.0; it has to be a duration in ns"),
        (("levels", "p75", "q1"), 1e300, "levels.p75.q1 is 1e+300; it has to be a duration in ns"),
        (("levels", "mean", "q3"), float("inf"), "levels.mean.q3: input should be a finite number"),
        (("levels", "ranks"), [0.5], "levels.ranks.0: input should be a valid integer"),
        (("levels", "others"), [{"mean": {}, "p75": {}, "p99": {}}], "levels.others.0.mean.elapsed is None"),
        (("versions",), 3, "versions: input should be an object"),
        (("source",), 3, "source: input should be a valid string"),
        (("patterns",), 3, "patterns: input should be a valid "),
    ],
)
def test_what_it_says_of_itself_can_be(
    saved: Path, tmp_path: Path, where: tuple[str, ...], value: object, message: str
) -> None:
    def changed(_: dict[str, Any], about: dict[str, Any]) -> None:
        *path, name = where
        for part in path:
            about = about[part]
        about[name] = value

    path = rewritten(saved, tmp_path, changed)
    with pytest.raises(ModelError) as caught:
        models.load(path)
    assert str(caught.value).startswith(f"{path}: damaged: {message}")
    assert str(caught.value).endswith("; train it anew with offbeat train")


def test_what_is_nested_too_deeply_is_refused(saved: Path, tmp_path: Path) -> None:
    path, content = tmp_path / "x.skops", skops.io.load(saved, trusted=[])
    skops.io.dump({**content, "about": '{"format": ' + "[" * 100_000}, path)
    with pytest.raises(ModelError, match="damaged: about: "):
        models.load(str(path))


def test_a_model_of_before_has_levels_of_its_own_pivots_alone(saved: Path, tmp_path: Path) -> None:
    def older(_: dict[str, Any], about: dict[str, Any]) -> None:
        del about["levels"]["others"]

    assert models.load(rewritten(saved, tmp_path, older)).detector.levels == model().detector.levels


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.skops"
    with pytest.raises(ModelError, match="No such file"):
        models.load(str(path))
    path.write_bytes(b"no zip")
    with pytest.raises(ModelError, match="not a model"):
        models.load(str(path))
    skops.io.dump([1, 2], path)
    with pytest.raises(ModelError, match="not a model: it holds a list"):
        models.load(str(path))
    skops.io.dump({"about": date(2026, 1, 1)}, path)
    with pytest.raises(ModelError, match=r"holds datetime.date; a model holds plain data"):
        models.load(str(path))
    with pytest.raises(ModelError, match="the forest was not trained"):
        models.save(Model(ForestDetector(), "nothing", {}), path)
    with pytest.raises(ModelError, match="give a file that can be written"):
        models.save(model(), tmp_path / "no" / "folder" / "x.skops")


def test_an_array_without_its_end_is_refused(saved: Path, tmp_path: Path) -> None:
    """NumPy reads the head of an array as Python's own tokenizer does."""
    path = tmp_path / "x.skops"
    with zipfile.ZipFile(saved) as whole, zipfile.ZipFile(path, "w") as cut:
        for name in whole.namelist():
            content = whole.read(name)
            cut.writestr(name, content.replace(b"}", b" ") if name.endswith(".npy") else content)
    with pytest.raises(ModelError, match="not a model"):
        models.load(str(path))


@pytest.mark.parametrize(
    ("written", "claims"),
    [(b"'shape': (", b"'shape': (9999999"), (b"(", b"(0xfffffffL*"), (b"'<i4'", b"'|O'"), (b"'<i4'", b"'|a4'")],
)
def test_an_array_that_claims_to_be_larger_is_refused_without_room_for_it(
    saved: Path, tmp_path: Path, written: bytes, claims: bytes
) -> None:
    path = tmp_path / "x.skops"
    with zipfile.ZipFile(saved) as whole, zipfile.ZipFile(path, "w") as made:
        for name in whole.namelist():
            content = whole.read(name)
            if name.endswith(".npy"):
                head, newline, values = content[10:].partition(b"\n")
                head = head.replace(written, claims, 1).rstrip().ljust(len(head))
                content = content[:10] + head + newline + values
            made.writestr(name, content)
    with pytest.raises(ModelError, match="not a model"):
        models.load(str(path))


def test_what_unpacks_to_more_than_a_model_has_is_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "bomb.skops"
    path.write_bytes(saved.read_bytes())
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as packed, packed.open("zeros.npy", "w") as part:
        for _ in range(65):
            part.write(bytes(1 << 20))
    with pytest.raises(ModelError, match="are more than a model has"):
        models.load(str(path))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_as_it_was(saved: Path, tmp_path_factory: Any, data: st.DataObject) -> None:
    whole = saved.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("damaged") / "x.skops"
    cut = data.draw(st.booleans())
    path.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
    try:
        loaded = models.load(str(path))
    except ModelError:
        return
    assert loaded.detector.settings == models.load(str(saved)).detector.settings
