"""What the tests of collectors share."""

import os

import pytest

from schemas.errors import SettingsError
from tests.producers.collectors.preloaded import Built


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The preloaded library and what it is tested with; skipped, or in CI failed, where there is no C compiler."""
    try:
        return Built(tmp_path_factory.mktemp("preload"))
    except SettingsError as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
