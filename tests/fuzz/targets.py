"""All that is fuzzed."""

from __future__ import annotations

from tests.fuzz import bus, files
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {target.name: target for target in (*bus.targets(), *files.targets())}
