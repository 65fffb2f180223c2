"""An authority and a certificate of this machine's loopback address, made with openssl for the life of a test."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from local.service import LOOPBACK, LocalServiceError, find_program

_LIFE = ("-days", "2")


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form: the authority's certificate, and the server's key with its certificate after it."""

    authority: Path
    server: Path


def make_certificates(folder: Path) -> Certificates:
    """Make both in a folder, good for two days; ServiceUnavailable where there is no openssl."""
    openssl = find_program("openssl", "openssl (Debian: apt-get install openssl)")
    authority, authority_key = folder / "authority.pem", folder / "authority.key"
    key, requested, certificate = folder / "server.key", folder / "server.csr", folder / "server.crt"
    extensions = folder / "server.ext"
    extensions.write_text(f"subjectAltName=IP:{LOOPBACK},DNS:localhost\nextendedKeyUsage=serverAuth\n")
    request = [openssl, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    signing = ["-x509", *_LIFE, "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign"]
    _run([*request, *signing, "-subj", "/CN=authority of a test", "-keyout", authority_key, "-out", authority])
    _run([*request, "-subj", f"/CN={LOOPBACK}", "-keyout", key, "-out", requested])
    by: list[str | Path] = ["-CA", authority, "-CAkey", authority_key]
    _run([openssl, "x509", "-req", "-in", requested, *by, *_LIFE, "-extfile", extensions, "-out", certificate])
    server = folder / "server.pem"
    server.touch(0o600)
    server.write_text(key.read_text() + certificate.read_text())
    return Certificates(authority, server)


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalServiceError(f"openssl made no certificate:\n{done.stderr[-2000:]}")
