"""A Dockerfile's instructions, and a stage of it carried out without Docker: the same commands over the same files."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Instruction:
    """As ``COPY`` and what follows it, continued lines joined."""

    name: str
    rest: str


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next; ``name`` is what it is built AS."""

    base: str
    name: str | None
    instructions: tuple[Instruction, ...]

    @property
    def environment(self) -> Mapping[str, str]:
        """What ENV sets."""
        lines = [instruction.rest for instruction in self.instructions if instruction.name == "ENV"]
        return dict(pair.split("=", 1) for line in lines for pair in shlex.split(line))

    def last(self, name: str) -> str:
        """What the last instruction of a name says."""
        return [instruction.rest for instruction in self.instructions if instruction.name == name][-1]


def stages(path: Path = ROOT / "Dockerfile") -> list[Stage]:
    """The stages of a Dockerfile, in order."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    made: list[Stage] = []
    for line in filter(None, joined.splitlines()):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            made.append(Stage(base, stage or None, ()))
        else:
            last = made[-1]
            made[-1] = Stage(last.base, last.name, (*last.instructions, Instruction(name, rest)))
    return made


@dataclass
class Build:
    """One stage carried out in a scratch folder, where its VIRTUAL_ENV and its working folder lie."""

    scratch: Path

    @property
    def environment_folder(self) -> Path:
        return self.scratch / "venv"

    def run(self, stage: Stage) -> None:
        """COPY and RUN of a stage, in its order; FROM's Python is this one's, in an environment of its own."""
        work, system = self.scratch / "build", self.scratch / "system"
        work.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", str(system)], check=True)
        cleared = {name: value for name, value in os.environ.items() if not name.startswith(("OFFBEAT_", "PYTHON"))}
        environment = {
            **cleared,
            "PATH": f"{system / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.environment_folder),
        }
        assert set(stage.environment) == {"VIRTUAL_ENV"}, "another variable that this does not know"
        shell = ["/bin/sh", "-c"]
        for instruction in stage.instructions:
            if instruction.name == "SHELL":
                shell = [part.strip(' "') for part in instruction.rest.strip("[]").split(",")]
            elif instruction.name == "COPY":
                _copy(instruction.rest.split(), work)
            elif instruction.name == "RUN":
                done = subprocess.run(
                    [*shell, instruction.rest], cwd=work, env=environment, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"RUN {instruction.rest}\n{done.stdout}{done.stderr}"
            else:
                assert instruction.name in {"ENV", "WORKDIR"}, f"{instruction.name} is not known here"


def _copy(words: list[str], work: Path) -> None:
    *sources, target = words
    into = work / target
    for source in sources:
        _check_sent(source)
        origin = ROOT / source
        if origin.is_dir():
            shutil.copytree(origin, into, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(origin, into / source if target.endswith("/") else into)


def sent_to_docker() -> Iterator[str]:
    """What .dockerignore lets through at the top."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    yield from (line.removeprefix("!") for line in lines if line.startswith("!"))


def _check_sent(source: str) -> None:
    assert source in set(sent_to_docker()), f"COPY {source}: .dockerignore holds it back"
