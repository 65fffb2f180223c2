"""Model files that are not what they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import skops.io


def rewritten(saved: Path, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> str:
    """The file with its content (and what it says of itself) changed."""
    content = skops.io.load(saved, trusted=[])
    about = json.loads(content["about"])
    change(content, about)
    content["about"] = json.dumps(about) if isinstance(content.get("about"), str) else content.get("about")
    path = tmp_path / "changed.skops"
    skops.io.dump(content, path)
    return str(path)


def of_other_features(saved: Path, tmp_path: Path) -> str:
    """The file of a model that looks at something which there is not."""

    def renamed(_: dict[str, Any], about: dict[str, Any]) -> None:
        about["settings"]["features"][0] = "phase_of_the_moon"

    return rewritten(saved, tmp_path, renamed)
