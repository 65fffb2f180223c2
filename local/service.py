"""A service run as a child process: started, awaited by condition, stopped, never outliving its owner."""

import itertools
import random
import shutil
import socket
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

LOOPBACK = "127.0.0.1"

# Below the range that Linux and macOS hand out to outgoing connections: a port found free here is not
# taken by some client before the service binds it.
_PORTS = range(20_000, 32_000)


class LocalServiceError(RuntimeError):
    """The service did not start, or is not in the state that the call needs."""


class ServiceUnavailable(LocalServiceError):
    """This machine lacks what the service is made of; the message says what to install."""


def free_ports(count: int) -> list[int]:
    """`count` different loopback TCP ports that nobody listens on."""
    shuffled = random.SystemRandom().sample(_PORTS, len(_PORTS))
    ports = list(itertools.islice(filter(is_free, shuffled), count))
    if len(ports) < count:
        raise LocalServiceError(f"no {count} free TCP ports between {_PORTS[0]} and {_PORTS[-1]} on {LOOPBACK}")
    return ports


def is_free(port: int) -> bool:
    """Whether a service could listen on this loopback TCP port now."""
    with socket.socket() as probe:
        # As the services do: a port with nothing but closing connections on it is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def find_program(name: str, install: str) -> str:
    """The path of an executable; ServiceUnavailable with what to `install` where there is none."""
    path = shutil.which(name)
    if path is None:
        raise ServiceUnavailable(f"`{name}` is not on the PATH: install {install}")
    return path


class LocalService(ABC):
    """One service and its folder. What is in the folder outlives `stop`, `kill` and `restart`.

    Without a `folder` a temporary one is made. It goes at the end of the `with` block, or with the object, unless
    the start has failed: then the log in it is worth reading.
    """

    name: ClassVar[str]
    ready_within_s: ClassVar[float] = 90.0
    stopped_within_s: ClassVar[float] = 20.0

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix=f"offbeat-{self.name}-")).resolve()
        self._remove_temporary = weakref.finalize(self, shutil.rmtree, self.folder) if folder is None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        """Write the configuration into the folder; the command to run and its environment (None: ours)."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether the service answers. Called again and again; each call must come back within seconds."""

    @property
    def log_path(self) -> Path:
        """Everything that the service has printed, over all its starts."""
        return self.folder / f"{self.name}.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the service and return once it answers; LocalServiceError with the log's end if it never does."""
        if self.running:
            raise LocalServiceError(f"{self.name} in {self.folder} is running already")
        self._release()
        self.folder.mkdir(parents=True, exist_ok=True)
        command, environment = self.prepare()
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the owner, who stops the service in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self._leash = _leash(self._process.pid)
        try:
            self._await_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int | None:
        """End the service with SIGTERM, and with SIGKILL if that is not enough; its exit code.

        Does nothing if it has ended; None if it was never started, or is stopped already.
        """
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(self.stopped_within_s)
            except subprocess.TimeoutExpired:
                process.kill()
        self._release()
        return None if process is None else process.returncode

    def kill(self) -> None:
        """End the service with SIGKILL, as a crash would. Does nothing if it has ended."""
        if self._process is not None:
            self._process.kill()
        self._release()

    def restart(self) -> None:
        """Stop the service if it runs, and start it on the same ports and folder."""
        self.stop()
        self.start()

    def wait(self) -> int:
        """Wait for the service to end by itself; its exit code."""
        if self._process is None:
            raise LocalServiceError(f"{self.name} in {self.folder} is not running")
        return self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._remove_temporary is not None:
            self._remove_temporary()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.ready_within_s
        while not self.is_ready():
            if (code := process.poll()) is not None:
                raise self._failure(f"ended with code {code} before it was ready")
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready in {self.ready_within_s:g} s")
            time.sleep(0.05)

    def _failure(self, what: str) -> LocalServiceError:
        if self._remove_temporary is not None:
            self._remove_temporary.detach()
        lines = self.log_path.read_text(errors="replace").splitlines()
        return LocalServiceError("\n".join([f"{self.name} {what}; the end of {self.log_path}:", *lines[-20:]]))

    def _release(self) -> None:
        """Reap both processes, the leash first: it must never see the service's pid used again."""
        if self._leash is not None:
            with self._leash:
                self._leash.kill()
        if self._process is not None:
            self._process.wait()
        self._leash = self._process = None


def _leash(pid: int) -> subprocess.Popen[bytes]:
    """A shell that kills `pid` when this process is gone, however it went: its end closes the shell's input."""
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -s KILL "$1"', "leash", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
