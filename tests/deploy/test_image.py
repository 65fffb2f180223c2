"""The image without Docker: its build stage is carried out, and its roles start as they will in a container.

That is: as the image's user, which owns nothing, over a file system that cannot be written but for a folder of
temporary files.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from local.clickhouse import LocalClickHouse
from local.kafka import LocalKafka
from local.service import free_ports
from schemas.catalogue import TOPICS
from tests.deploy.dockerfile import ROOT, Build, Stage, sent_to_docker, stages
from tests.services import settings_of

NOBODY = "127.0.0.1:1"
WITHIN_S = 120.0
built = pytest.mark.image


class Image:
    """What the build stage made, and a way to start it as a container would."""

    def __init__(self, environment_folder: Path, final: Stage, scratch: Path) -> None:
        self.bin = environment_folder / "bin"
        self._entry = json.loads(final.last("ENTRYPOINT"))
        self._user = int(final.last("USER").split(":")[0])
        self._set = {name: value for name, value in final.environment.items() if name not in {"PATH", "HOME"}}
        self.tmp = scratch / "tmp"
        self.tmp.mkdir()
        self.tmp.chmod(0o777)

    def start(self, *arguments: object, settings: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """A role with these settings and the image's environment, and no other."""
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": str(self.tmp),
            "TMPDIR": str(self.tmp),
            **self._set,
            **(settings or {}),
        }
        command = [str(self.bin / self._entry[0]), *self._entry[1:], *map(str, arguments)]
        return subprocess.Popen(
            [*self._contained(), *command],
            env=environment,
            cwd=self.tmp,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, settings: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """A role to its end: its exit code and what it said."""
        return ended(self.start(*arguments, settings=settings))

    def _contained(self) -> list[str]:
        """As the image's user over a read-only file system; as we are where we may not."""
        if not may_contain():
            return []
        mounts = 'mount --make-rprivate / && mount --bind "$1" "$1" && mount -o remount,ro,bind /'
        script = f'{mounts} && cd "$1" && shift && exec "$@"'
        user = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", "--no-new-privs"]
        return ["unshare", "--mount", "sh", "-ec", script, "sh", str(self.tmp), *user]


def may_contain() -> bool:
    """Whether this machine lets us mount in a namespace of our own, and change the user."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    tried = ["unshare", "--mount", "sh", "-ec", "mount --make-rprivate / && mount -o remount,ro,bind /"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
        process.wait()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    build_stage, final = stages()
    with tempfile.TemporaryDirectory(prefix="offbeat-image-") as made:  # pytest's own folders are ours alone
        scratch = Path(made)
        scratch.chmod(0o755)
        build = Build(scratch)
        build.run(build_stage)
        yield Image(build.environment_folder, final, scratch)


def test_the_final_stage_takes_what_was_built_and_no_privilege() -> None:
    build_stage, final = stages()
    assert build_stage.base == final.base
    assert build_stage.base.startswith("python:3.11.")
    assert final.last("COPY") == f"--from={build_stage.name} /opt/offbeat {build_stage.environment['VIRTUAL_ENV']}"
    assert final.last("USER") == "10001:10001"
    assert "--uid 10001" in final.last("RUN")
    assert final.environment["PATH"].startswith(build_stage.environment["VIRTUAL_ENV"] + "/bin:")


def test_docker_is_sent_what_it_copies_and_nothing_else() -> None:
    build_stage, _ = stages()
    copied = {word for each in build_stage.instructions if each.name == "COPY" for word in each.rest.split()[:-1]}
    assert copied == set(sent_to_docker())
    assert all((ROOT / name).exists() for name in copied)


def test_the_dockerfile_is_as_hadolint_wants_it() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@built
def test_it_holds_what_is_needed_to_run_and_no_tools(image: Image) -> None:
    code, out, _ = image.run("--version")
    assert (code, out) == (0, f"{version('offbeat')}\n")
    installed = {path.name.partition("-")[0] for path in image.bin.parent.glob("lib/python*/site-packages/*.dist-info")}
    assert {"offbeat", "faust_streaming", "pyarrow"} <= installed
    assert not {"pytest", "mypy", "uv", "pip", "hatchling", "hypothesis"} & installed


@built
def test_it_cannot_write_where_a_container_cannot(image: Image) -> None:
    if not may_contain():
        pytest.skip("needs root, unshare and setpriv")
    elsewhere = image.tmp.with_name("elsewhere")
    elsewhere.mkdir(mode=0o777)
    code, _, err = image.run("store", "migrate", "--data-dir", elsewhere / "store")
    assert code != 0
    assert "Read-only file system" in err
    assert list(elsewhere.iterdir()) == []


@built
def test_a_role_without_a_broker_ends_with_a_line_that_says_so(image: Image) -> None:
    settings = {
        "OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": NOBODY,
        "OFFBEAT_WEBHOOK__URL": "http://127.0.0.1:1",
        "OFFBEAT_STORE__ENGINE": "clickhouse",
        "OFFBEAT_STORE__HOST": "127.0.0.1",
        "OFFBEAT_STORE__PORT": "1",
    }
    roles = (
        ("topics", "apply"),
        ("worker", "monitor"),
        ("worker", "search"),
        ("worker", "segment"),
        ("worker", "compare"),
        ("worker", "incidents"),
        ("alert",),
        ("store", "migrate"),
        ("produce", "--simulate", "tp=2,pp=1,dp=1,layers=1,microbatches=1,iterations=2"),
    )
    started = [image.start(*role, settings=settings) for role in roles]
    for role, (code, out, err) in zip(roles, [ended(process) for process in started], strict=True):
        said = "ClickHouse at 127.0.0.1:1" if role[0] == "store" else f"no broker answers at {NOBODY}: "
        last = err.splitlines()[-1] if err else ""
        assert (code, out, last.startswith(said)) == (2, "", True), f"{role}: exit {code}\n{out}{err}"


@built
def test_the_agent_starts_without_a_broker_and_ends_in_order(image: Image) -> None:
    [port] = free_ports(1)
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": NOBODY, "OFFBEAT_LIVE__RINGS": str(image.tmp / "rings")}
    agent = image.start("agent", "--health-port", port, settings=settings)
    code, err = stopped_once_alive(agent, port)
    assert code == 0, err


@built
def test_an_agent_that_may_not_see_the_rings_says_so(image: Image) -> None:
    if not may_contain():
        pytest.skip("needs root, unshare and setpriv")
    rings = image.tmp / "of-another-user"
    rings.mkdir(mode=0o700)
    code, _, err = image.run("agent", settings={"OFFBEAT_LIVE__RINGS": str(rings)})
    assert code == 2
    assert err.splitlines()[-1] == f"{rings}: permission denied: run the agent as the user that trains, or as root"


def stopped_once_alive(role: subprocess.Popen[str], port: int) -> tuple[int, str]:
    """Wait until a role answers on its port, then end it: its exit code and what it said."""
    deadline = time.monotonic() + WITHIN_S
    while not answers(f"http://127.0.0.1:{port}/live"):
        assert role.poll() is None, ended(role)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    role.send_signal(signal.SIGTERM)
    code, _, err = ended(role)
    return code, err


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as page:
            return bool(page.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@built
@pytest.mark.kafka
@pytest.mark.clickhouse
def test_topics_and_tables_are_made_and_the_sink_begins(
    image: Image, local_kafka: LocalKafka, local_clickhouse: LocalClickHouse
) -> None:
    [port] = free_ports(1)
    settings = settings_of(local_kafka, local_clickhouse)
    assert image.run("sink", settings=settings)[0] == 2, "a sink may not begin before the migrations"
    code, out, err = image.run("topics", "apply", settings=settings)
    assert code == 0, err
    assert all(name in out for name in TOPICS)
    code, out, err = image.run("store", "migrate", settings=settings)
    assert code == 0, err
    assert "applied" in out
    sink = image.start("sink", "--health-port", port, settings=settings)
    code, err = stopped_once_alive(sink, port)
    assert (code, "offbeat sink has stopped" in err) == (0, True), err
