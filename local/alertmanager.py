"""Prometheus Alertmanager on loopback, out of Debian's package."""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.cache import cached
from local.debian import unpacked
from local.service import LOOPBACK, LocalService, free_ports

_PACKAGE = "prometheus-alertmanager"

# Debian's build reads templates and pages from a folder under /, which only root could fill. Both paths have the same
# length, so the program can be told to look below its working directory instead.
_THEIRS, _OURS = b"/usr/share/prometheus/alertmanager", b"usr/share/prometheus//alertmanager"


class LocalAlertmanager(LocalService):
    """One Alertmanager, alone in its cluster, that tells `webhook_url` of alerts at once, grouped by job.

    It keeps alerts in memory, as it does everywhere: a restart forgets them. What it has told of survives `stop`.
    """

    name = "alertmanager"

    def __init__(self, webhook_url: str, folder: Path | None = None) -> None:
        super().__init__(folder)
        [self._port] = free_ports(1)
        self._webhook_url = webhook_url

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def prepare(self) -> tuple[Sequence[str | Path], Mapping[str, str] | None]:
        home = cached(f"{_PACKAGE}-relative", "1", _make_relative)
        below = self.folder / "usr"
        if not below.exists():
            below.symlink_to(home / "usr")
        config = self.folder / "alertmanager.json"  # JSON is YAML
        config.write_text(json.dumps(self._config()))
        options = [f"--config.file={config}", f"--storage.path={self.folder / 'data'}", "--cluster.listen-address="]
        return [home / "alertmanager", *options, f"--web.listen-address={LOOPBACK}:{self._port}"], None

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _config(self) -> dict[str, object]:
        at_once = {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "4h"}
        hook = {"url": self._webhook_url, "send_resolved": True}
        return {
            "route": {"receiver": "offbeat", "group_by": ["job"], **at_once},
            "receivers": [{"name": "offbeat", "webhook_configs": [hook]}],
        }


def _make_relative(folder: Path) -> None:
    debian = unpacked(_PACKAGE)
    folder.mkdir()
    (folder / "usr").symlink_to(debian / "usr")
    program = folder / "alertmanager"
    shutil.copy(debian / "usr" / "bin" / _PACKAGE, program)
    program.write_bytes(program.read_bytes().replace(_THEIRS, _OURS))
