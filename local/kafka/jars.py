"""The broker's jars, fetched once with Maven into a cache folder that all checkouts share."""

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

from local.service import LocalServiceError, find_program

_POM = Path(__file__).with_name("pom.xml")


def kafka_version() -> str:
    """The version that pom.xml names."""
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", _POM.read_text())
    if found is None:
        raise LocalServiceError(f"{_POM} has no property kafka.version")
    return found[1]


def cache_folder() -> Path:
    """$OFFBEAT_CACHE, else ~/.cache/offbeat."""
    return Path(os.environ.get("OFFBEAT_CACHE") or Path.home() / ".cache" / "offbeat").resolve()


def kafka_jars() -> Path:
    """The folder of the broker's jars; fetched if it is not there or was made from another pom.xml.

    Raises ServiceUnavailable where Maven is missing, LocalServiceError where it fails.
    """
    home = cache_folder() / f"kafka-{kafka_version()}"
    home.mkdir(parents=True, exist_ok=True)
    jars, made_from = home / "lib", home / "pom.xml"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs at once: the second waits for the first's jars
        if not made_from.exists() or made_from.read_bytes() != _POM.read_bytes():
            shutil.rmtree(jars, ignore_errors=True)
            _fetch(jars)
            shutil.copyfile(_POM, made_from)  # last: it says that the folder is complete
    return jars


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
