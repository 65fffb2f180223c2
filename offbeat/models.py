"""Trained models as files: forests that tell abnormal operators, stored with skops as plain data.

A file holds arrays and one JSON text, no code and no pickled objects. What is read is bounded, checked to be of the
features that this version knows and of settings and levels that can be, and checked to be trees.
``default_model.skops`` ships: made from simulated logs of many jobs, so that nobody has to label anything
(``offbeat train --default`` makes it anew).
"""

from __future__ import annotations

import io
import json
import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from diagnosis.irregularity.drift import STATISTICS, Levels
from diagnosis.irregularity.features import EVERY, IN_NS, VERSION
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.irregularity.samples import PATTERNS, PHASES
from diagnosis.irregularity.trees import Trees
from offbeat.bounds import numbers
from producers.whole_files import replacing
from schemas.errors import ModelError
from schemas.topic import LONGEST_RUN_NS

FORMAT = "operator_forest/1"

DEFAULT = "default"
"""The name of the model that ships."""

TRUSTED: tuple[str, ...] = ()
"""Types that a model file may hold beyond the plain ones (numbers, texts, lists, mappings, arrays): none."""

MOST_BYTES = 16 << 20
"""Of a file."""

MOST_UNPACKED_BYTES = 64 << 20

_LIBRARIES = ("offbeat", "scikit-learn", "numpy", "skops")

_DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
    tokenize.TokenError, SyntaxError, AttributeError, LookupError, ArithmeticError,
)  # fmt: skip
"""What zipfile raises for files that are damaged, packed in unknown ways, or encrypted; and skops and NumPy for what
is packed in them."""

_ARRAYS: dict[str, np.dtype[Any]] = {
    "root": np.dtype(np.int32),
    "feature": np.dtype(np.int16),
    "threshold": np.dtype(np.float64),
    "left": np.dtype(np.int32),
    "abnormal": np.dtype(np.float64),
}


@dataclass(frozen=True, slots=True)
class Model:
    """A trained detector and what is known of it.

    ``source`` says what it was trained on; ``figures`` how well it did on what was held out (F1, precision, recall)
    and on how much; ``versions`` are those of the libraries that made it.
    """

    detector: ForestDetector
    source: str
    figures: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=lambda: {name: metadata.version(name) for name in _LIBRARIES})


def save(model: Model, path: Path) -> None:
    """Write a model; an existing file is replaced once the new one is whole.

    Raises ``ModelError`` where it is not trained or the file cannot be written.
    """
    import skops.io

    trees, levels = model.detector.trees, model.detector.levels
    if trees is None:
        raise ModelError(f"{path}: the forest was not trained")
    about = {
        "format": FORMAT,
        "feature_version": VERSION,
        "patterns": PATTERNS,
        "phases": PHASES,
        "settings": asdict(model.detector.settings),
        "levels": None if levels is None else asdict(levels),
        "source": model.source,
        "figures": model.figures,
        "versions": model.versions,
    }
    arrays = {name: getattr(trees, name).astype(dtype) for name, dtype in _ARRAYS.items()}
    content = skops.io.dumps({"about": json.dumps(about), **arrays}, compression=zipfile.ZIP_DEFLATED, compresslevel=9)
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; give a file that can be written") from error


def load(name: str) -> Model:
    """The model of a file, or the one that ships (``default``).

    Raises ``ModelError`` for what is no model, and for one that was made for other features.
    """
    if name != DEFAULT:
        return _read(Path(name), name)
    return _read(default_path(), "the default model")


def default_path() -> Path:
    """Where the model that ships is kept."""
    return Path(__file__).with_name("default_model.skops")


class _Formatted(BaseModel):
    """What tells whether the rest of a file's text is understood."""

    format: str


class _About(BaseModel):
    """What a file's text says beside its format; types are those that were saved."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    feature_version: int
    patterns: tuple[str, ...]
    phases: tuple[str, ...]
    settings: ForestSettings
    levels: Levels | None
    source: str
    figures: Mapping[str, Any]
    versions: Mapping[str, str]


def _read(path: Path, name: str) -> Model:
    content = _content(path, name)
    try:
        told = _Formatted.model_validate_json(content["about"]).format
        if told != FORMAT:
            raise ModelError(f"{name}: a model of the format {told!r}; this version reads {FORMAT!r}")
        about = _About.model_validate_json(content["about"])
        _check_settings(about.settings)
        if about.levels is not None:
            _check_levels(about.levels)
        _check_features(about, name)
        trees = _trees(content, len(about.settings.features))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{name}: damaged: {_fault(error)}; train it anew with offbeat train") from error
    return Model(ForestDetector(about.settings, trees, about.levels), about.source, about.figures, about.versions)


def _fault(error: Exception) -> str:
    """What is wrong, with the field of the file's text where it is one's."""
    if not isinstance(error, ValidationError):
        return str(error)
    fault = error.errors(include_url=False, include_input=False)[0]
    message = fault["msg"].removeprefix("Value error, ")
    return f"{'.'.join(map(str, fault['loc'])) or 'about'}: {message[0].lower()}{message[1:]}"


def _check_settings(settings: ForestSettings) -> None:
    """Raise ``ValueError`` for settings that no forest is grown by."""
    names = settings.features
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"settings.features: {twice[0]!r} stands {names.count(twice[0])} times")
    for name, number, bound in numbers(settings, "settings"):
        if not bound.holds(number):
            raise ValueError(f"{name} is {number}; it has to be {bound}")


def _check_levels(levels: Levels, where: str = "levels") -> None:
    """Raise ``ValueError`` for levels that tell nothing of a feature, or what no duration is."""
    for statistic in STATISTICS:
        told = getattr(levels, statistic)
        for name in IN_NS:
            if not 0 <= told.get(name, -1) <= LONGEST_RUN_NS:
                raise ValueError(f"{where}.{statistic}.{name} is {told.get(name)}; it has to be a duration in ns")
    for at, other in enumerate(levels.others):
        _check_levels(other, f"{where}.others.{at}")


def _content(path: Path, name: str) -> Mapping[str, Any]:
    """What a file holds, once it is known to be small and plain."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    try:
        with zipfile.ZipFile(path) as packed:
            size, unpacked = path.stat().st_size, sum(part.file_size for part in packed.infolist())
            if size > MOST_BYTES or unpacked > MOST_UNPACKED_BYTES:
                raise ModelError(f"{name}: {size} bytes, {unpacked} unpacked, are more than a model has")
            if packed.testzip() is not None:
                raise zipfile.BadZipFile("a checksum does not fit")
            for part in packed.namelist():
                if part.endswith(".npy"):
                    _check_extent(packed.read(part))
        beyond = sorted(set(skops.io.get_untrusted_types(file=path)) - set(TRUSTED))
        if beyond:
            raise ModelError(f"{name}: holds {beyond[0]}; a model holds plain data alone")
        content = skops.io.load(path, trusted=list(TRUSTED))
    except OSError as error:
        told = f"{name}: {error.strerror or error}"
        raise ModelError(f"{told}; give a file that offbeat train made, or {DEFAULT}") from error
    except (*_DAMAGED, UntrustedTypesFoundException, ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{name}: not a model: {error}") from error
    if not isinstance(content, Mapping):
        raise ModelError(f"{name}: not a model: it holds a {type(content).__name__}")
    return content


def _check_extent(array: bytes) -> None:
    """Raise ``ValueError`` for an array that claims to be of another size than it is: NumPy would make room for it."""
    file = io.BytesIO(array)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise ValueError(f"an array of the form {version}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy reads the heads of Python 2 and of its past as well, and warns
        try:
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        except Warning as error:
            raise ValueError(f"the head of an array: {error}") from error
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(array) - file.tell():
        raise ValueError(f"an array of {len(array)} bytes claims to be {shape} of {dtype}")


def _check_features(about: _About, name: str) -> None:
    unknown = [feature for feature in about.settings.features if feature not in EVERY]
    same = about.feature_version == VERSION and about.patterns == PATTERNS
    if unknown or not same or about.phases != PHASES:
        what = f"the feature {unknown[0]!r}" if unknown else f"features of version {about.feature_version}"
        raise ModelError(
            f"{name}: was made for {what}, which this version (features {VERSION}) does not have; "
            "train it anew with offbeat train"
        )


def _trees(content: Mapping[str, Any], features: int) -> Trees:
    trees = Trees(**{name: _column(content[name], dtype) for name, dtype in _ARRAYS.items()})
    if trees.features > features:
        raise ValueError(f"its trees ask for {trees.features} features, it names {features}")
    return trees


def _column(array: Any, dtype: np.dtype[Any]) -> Any:
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        raise ValueError(f"an array is no column of {dtype}")
    return array
