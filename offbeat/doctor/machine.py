"""This installation and this host: versions, files that hold secrets, and the folders of a live agent."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from pydantic import BaseModel

from offbeat.doctor.checked import Checked, failed, ok, refused, skipped, warning
from offbeat.secret_files import SECRETS, SUFFIX
from offbeat.setting_groups import LiveSettings
from offbeat.settings import Settings
from offbeat.terminal import counted
from offbeat.tuning import tuned
from producers.live.registration import folders, is_ours
from schemas.errors import SettingsError

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>[^;,\s]+)$")


def examine(settings: Settings) -> Iterator[Checked]:
    """The checks that need no service."""
    yield of_versions(requires("offbeat") or ())
    yield from of_secret_files(secret_files(settings))
    yield from of_tuning(settings)
    yield from of_live(settings.live)


def of_versions(requirements: Iterable[str]) -> Checked:
    """Whether the libraries whose inner workings are relied upon have the very version that was tested."""
    wrong, pinned = [], []
    for requirement in requirements:
        if match := _PINNED.match(requirement):
            found = _installed(match["name"])
            pinned.append(f"{match['name']} {found}")
            if found != match["version"]:
                wrong.append(f"{match['name']} is {found or 'missing'}, not {match['version']}")
    if wrong:
        return failed(
            "versions", "; ".join(wrong), "install from requirements.lock: `uv pip sync --require-hashes`, or the image"
        )
    ours = f"offbeat {version('offbeat')}, Python {platform.python_version()}"
    return ok("versions", ", ".join([ours, *sorted(pinned)]))


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def secret_files(settings: Settings) -> list[Path]:
    """The files that are set to hold secrets, private keys included."""
    groups = [value for name in type(settings).model_fields if isinstance(value := getattr(settings, name), BaseModel)]
    named = [getattr(group, name + SUFFIX, None) for group in groups for name in sorted(SECRETS)]
    return [Path(path) for path in (*named, settings.kafka.key_file, settings.store.key) if path is not None]


def of_secret_files(files: Iterable[Path]) -> Iterator[Checked]:
    """Whether others than their owner and its group may read them."""
    for path in files:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as error:
            yield failed("secret file", f"{path}: {(error.strerror or str(error)).lower()}", "name one that is there")
            continue
        if mode & stat.S_IROTH:
            yield warning("secret file", f"{path} may be read by everyone (mode {mode:o})", f"chmod 600 {path}")
        else:
            yield ok("secret file", f"{path} (mode {mode:o})")


def of_tuning(settings: Settings) -> Iterator[Checked]:
    """The file of settings that a step would go by, where one is named."""
    file = settings.worker.tuning
    if file is None:
        return
    try:
        _, texts = tuned(settings, file)
    except SettingsError as error:
        yield refused("tuning", error)
        return
    told = ", ".join(f"{name}={text}" for name, text in sorted(texts.items()))
    yield ok("tuning", f"{file} sets {told or 'nothing'}")


def of_live(live: LiveSettings) -> Iterator[Checked]:
    """The folders of the host's log agent, where processes log on this host."""
    if not live.rings.is_dir():
        yield skipped("rings", f"{live.rings}: no process logs on this host")
        return
    yield _rings(live.rings)
    yield _kept(live)


def _rings(rings: Path) -> Checked:
    mode = rings.stat().st_mode
    if not os.access(rings, os.R_OK | os.X_OK):
        return failed("rings", f"{rings} cannot be read", "run the agent as the user that trains, or as root")
    processes = list(folders(rings))
    others = [] if os.geteuid() == 0 else [folder for folder in processes if not is_ours(folder)]
    if others and len(others) == len(processes):
        found = f"{rings}: {counted(len(others), 'process')}, all of other users, as {others[0].name}"
        return failed("rings", found, "run the agent as the user that trains, or as root")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        found = f"{rings} is open to everyone without the sticky bit (mode {stat.S_IMODE(mode):o})"
        return failed("rings", found, f"chmod 1777 {rings}, or others may move a process's rings away")
    if others:  # an agent passes them over; anybody may put a folder there
        of_all = f"{len(others)} of {counted(len(processes), 'process')}"
        found = f"{rings}: {of_all} are of other users, as {others[0].name}"
        return warning("rings", found, "leave it if these are no training, else run an agent as their user, or as root")
    return ok("rings", f"{rings}: {counted(len(processes), 'process')}")


def _kept(live: LiveSettings) -> Checked:
    folder = live.folder.absolute()
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        todo = "give it to the agent's user, or set OFFBEAT_LIVE__FOLDER"
        return failed("agent's folder", f"{there} cannot be written to", todo)
    free = shutil.disk_usage(there).free
    wanted = live.keep_bytes + live.spool_bytes
    if free < wanted:
        return warning(
            "agent's folder",
            f"{folder}: {free / 2**30:.1f} GiB free, {wanted / 2**30:.1f} GiB may be kept for one job and the spool",
            "make room, or set lower OFFBEAT_LIVE__KEEP_BYTES and __SPOOL_BYTES",
        )
    if there == folder and stat.S_IMODE(folder.stat().st_mode) & (stat.S_IROTH | stat.S_IWOTH):
        return warning("agent's folder", f"{folder} is open to everyone", f"chmod 700 {folder}")
    return ok("agent's folder", f"{folder}: {free / 2**30:.1f} GiB free")
