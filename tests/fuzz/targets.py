"""All that is fuzzed."""

from __future__ import annotations

from tests.fuzz import bus, collected, files, receivers, replayed, settings_files
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for room in (bus, collected, files, receivers, replayed, settings_files)
    for target in room.targets()
}
