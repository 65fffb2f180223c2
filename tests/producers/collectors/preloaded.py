"""Training processes with the preloaded library, against stubs of NCCL and libibverbs that are built here."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from producers.collectors import preload

STUBS = Path(__file__).parent / "stubs"
HEADERS = Path(preload.__file__).parent


@dataclass
class Built:
    """The library, the stubs, and a program that is linked to the stub of NCCL."""

    folder: Path
    library: Path = field(init=False)
    program: Path = field(init=False)

    def __post_init__(self) -> None:
        with_verbs, alone = self.folder / "verbs", self.folder / "nccl"
        for made in (with_verbs, alone):
            made.mkdir()
        self.library = preload.build(self.folder)
        self.program = self.folder / "train"
        shared = ("-shared", "-fPIC")
        for stub, target in (("nccl", alone / "libnccl.so.2"), ("ibverbs", with_verbs / "libibverbs.so.1")):
            named = f"-Wl,-soname,{target.name},--version-script={STUBS / stub}.map"
            _compile(f"{stub}.c", target, *shared, named, "-ldl")
        _compile("connect.c", self.folder / "connect", str(with_verbs / "libibverbs.so.1"))
        _compile("train.c", self.program, str(alone / "libnccl.so.2"), "-lpthread", "-ldl")

    def environment(self, calls: Path, *, rank: int = 0, verbs: bool = True, **more: str) -> dict[str, str]:
        """That of a rank of four which logs to a folder."""
        folders = [self.folder / "nccl", *([self.folder / "verbs"] if verbs else [])]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OFFBEAT_")}
        return {
            **inherited,
            "LD_LIBRARY_PATH": ":".join(map(str, folders)),
            "LD_PRELOAD": str(self.library),
            "OFFBEAT_COLLECT__CALLS": str(calls),
            "OFFBEAT_COLLECT__JOB": "llama",
            "OFFBEAT_COLLECT__INFINIBAND": str(self.folder / "infiniband"),
            "RANK": str(rank),
            "STUB_RANK": str(rank),
            "WORLD_SIZE": "4",
            **more,
        }

    def run(
        self, environment: dict[str, str], *command: str, program: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the program, or another one, to its end."""
        return subprocess.run(
            [str(program or self.program), *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def _compile(source: str, target: Path, *arguments: str) -> None:
    command = ["cc", "-std=gnu11", "-O1", "-w", f"-I{HEADERS}", "-o", str(target), str(STUBS / source), *arguments]
    subprocess.run(command, check=True)
