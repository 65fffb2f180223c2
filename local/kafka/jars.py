"""The broker's jars, fetched once with Maven."""

import re
import subprocess
from pathlib import Path

from local.cache import cached
from local.service import LocalServiceError, find_program

_POM = Path(__file__).with_name("pom.xml")


def kafka_version() -> str:
    """The version that pom.xml names."""
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", _POM.read_text())
    if found is None:
        raise LocalServiceError(f"{_POM} has no property kafka.version")
    return found[1]


def kafka_jars() -> Path:
    """The folder of the broker's jars; fetched if it is not there or was made from another pom.xml.

    Raises ServiceUnavailable where Maven is missing, LocalServiceError where it fails.
    """
    return cached(f"kafka-{kafka_version()}", _POM.read_text(), _fetch)


def _fetch(jars: Path) -> None:
    maven = find_program("mvn", "Maven (Debian: apt-get install maven)")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    done = subprocess.run(
        [maven, "--batch-mode", "--quiet", "--file", str(_POM), *goal],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalServiceError(f"Maven could not fetch Kafka's jars into {jars}:\n{done.stdout[-2000:]}")
