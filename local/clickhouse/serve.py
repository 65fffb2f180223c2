"""Serve ClickHouse from chdb-core in this process: python serve.py DATA_FOLDER.

The engine is loaded without importing chdb, whose own start-up fixes the configuration: it must be the one in
$HOME/.clickhouse-local. A process started by LocalClickHouse, nothing to import.
"""

import importlib.util
import sys
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

# The listeners live as long as the query that opened them: it ends with a statement that never does.
_SERVE = """
SYSTEM START LISTEN TCP;
SYSTEM START LISTEN HTTP;
SELECT sleepEachRow(1) FROM system.numbers
SETTINGS max_block_size = 1, function_sleep_max_microseconds_per_block = 0
FORMAT Null
"""


def load_engine() -> ModuleType:
    """The engine's extension module, found beside chdb's Python files."""
    package = importlib.util.find_spec("chdb")
    libraries = [
        library
        for folder in (package and package.submodule_search_locations) or ()
        for library in Path(folder).glob("_chdb*.so")
    ]
    if not libraries:
        sys.exit("chdb-core is not installed: make setup")
    loader = ExtensionFileLoader("_chdb", str(libraries[0]))
    spec = importlib.util.spec_from_loader("_chdb", loader)
    assert spec is not None
    engine = importlib.util.module_from_spec(spec)
    loader.exec_module(engine)
    return engine


if __name__ == "__main__":
    load_engine().query(_SERVE, "TabSeparated", path=sys.argv[1])
