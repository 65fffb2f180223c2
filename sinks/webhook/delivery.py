"""One attempt to deliver a page by HTTP, and what its failure means.

============================================  ==============================================================
no answer (connection, time-out), 408, 409,   ``ReceiverAway``: try again, later. Under an idempotency key,
429, 5xx                                      409 says that the first copy of the page is still being taken.
400, 413, 415, 422                            ``PageRefused``: this page will never be taken as it is, unless
                                              the answer blames the set-up (``Request.blames_settings``).
other 4xx, redirects, anything else           ``ReceiverError``: no page will be taken until somebody acts.
============================================  ==============================================================

Redirects are not followed: a page would go, signed, to a place that nobody configured.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Protocol, Self

import httpx

from schemas.errors import MessageError, ReceiverError, SettingsError
from sinks.webhook.receiver import Request
from sinks.webhook.signing import HEADER, sign

_PAGE_REFUSED = frozenset({400, 413, 415, 422})
_TRY_AGAIN = frozenset({408, 409, 429})
_MOST_WORDS = 200
_OF_THE_PAGE = frozenset({409, 500})
"""Failures worth trying again that say nothing of the next page."""


_FINAL = "redirects are not followed; set the webhook's URL to its final address"

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_UP_TO_THE_HOST = re.compile(r"^[^/?#]*//[^/?#]*")


class ReceiverAway(ReceiverError):
    """The receiver did not take a page now; it may later.

    ``retry_after_s`` is what it asked for; ``wholly`` says that another page would fare no better.
    """

    def __init__(self, message: str, *, reason: str, wholly: bool, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.wholly = wholly
        self.retry_after_s = retry_after_s


class PageRefused(ReceiverError, MessageError):
    """The receiver will never take this page; it may take others. The page's record belongs in dead_letters."""


class Post(Protocol):
    """What takes a request under its idempotency key, or raises why not: a delivery, or a cluster of them."""

    def post(self, request: Request, key: str) -> None: ...


class Delivery:
    """Signed POSTs to one URL. One connection pool; safe to share between sinks and threads.

    ``secrets`` sign every request (several while one is being replaced; none: not signed), ``headers`` are added
    (an Authorization, say). What a receiver says of a page is told without ``hidden`` texts, the headers' values and
    the URL: it may repeat what it was sent. ``timeout_s`` bounds each of connecting, sending and waiting for the
    answer. ``now`` is the wall clock (seconds since the epoch) of the signature. Raises ``SettingsError`` for what
    cannot be sent.
    """

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        hidden: Collection[str] = (),
        timeout_s: float = 10.0,
        now: Callable[[], float] = time.time,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = _checked(url)
        if not all(secrets):
            raise SettingsError("webhook: the signing secret is empty; set it, or leave it out to send unsigned")
        self.place = f"{self._url.scheme}://{self._url.netloc.rpartition(b'@')[2].decode('ascii')}"
        """The URL without what may be secret in it: user, path and query."""
        self._secrets = tuple(secrets)
        self._hidden = [text for text in (*hidden, *(headers or {}).values(), *_told_by(self._url)) if text]
        self._now = now
        self._client = httpx.Client(
            timeout=timeout_s,
            headers={"User-Agent": "offbeat", **_checked_headers(headers or {})},
            follow_redirects=False,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def post(self, request: Request, key: str) -> None:
        """Send a request once, under its idempotency key.

        Raises ``ReceiverAway``, ``PageRefused`` or ``ReceiverError``, as the module's table says.
        """
        headers = {**request.headers, "Idempotency-Key": key}
        if self._secrets:
            headers[HEADER] = sign(request.body, self._secrets, self._now())
        try:
            with self._client.stream("POST", self._url, content=request.body, headers=headers) as response:
                self._judge(response, request, key)
        except httpx.TransportError as error:
            reason = type(error).__name__
            said = f"{self.place}: {reason}: {self._shown(str(error))}"  # it quotes what came, whatever that is
            raise ReceiverAway(said, reason=reason, wholly=True) from error
        except httpx.InvalidURL as error:  # of a redirect, which the client reads though it does not follow it
            raise ReceiverError(
                f"{self.place} answered page {key} with a redirect to what is no URL: {_FINAL}"
            ) from error

    def _judge(self, response: httpx.Response, request: Request, key: str) -> None:
        if response.is_success:
            return
        status = response.status_code
        words = self._first_words(response)
        said = f"{self.place} answered {status} to page {key}{words}"
        if status in _TRY_AGAIN or response.is_server_error:
            raise ReceiverAway(
                said,
                reason=f"http_{status}",
                wholly=status not in _OF_THE_PAGE,
                retry_after_s=_retry_after_s(response.headers.get("Retry-After"), self._now()),
            )
        if status in _PAGE_REFUSED and not any(blame in words.lower() for blame in request.blames_settings):
            raise PageRefused(said)
        if response.is_redirect:
            raise ReceiverError(f"{said}: {_FINAL}")
        raise ReceiverError(f"{said}: check the webhook's URL, its credentials and its signing secret")

    def _first_words(self, response: httpx.Response) -> str:
        """What the receiver said, as far as it is short: an error page may be long, or never end."""
        try:
            words = next(response.iter_raw(), b"").decode("utf-8", "replace")
        except httpx.TransportError:
            return ""
        shown = self._shown(words)
        return f" ({shown})" if shown else ""

    def _shown(self, words: str) -> str:
        """The first of what the other side said, on one line and without what is secret."""
        for text in self._hidden:
            words = words.replace(text, "***")
        return "".join(c if c.isprintable() else " " for c in words[:_MOST_WORDS]).strip()


def read_url(url: str) -> httpx.URL:
    """A URL's parts. Raises ``SettingsError`` for what is no URL, without a part of it: any may be of a password.

    So is one with an @ behind the host: of ``https://user:12/34@host`` the host would be ``user``, and its port 12.
    """
    if "@" in _UP_TO_THE_HOST.sub("", url, count=1):
        raise SettingsError(
            "webhook: the URL has an @ behind its host: percent-encode what is special in its user and password, as / "
            "to %2F; an @ that belongs to the path or the query is written %40"
        )
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:  # its text, in a traceback too, names what it takes for a port
        raise SettingsError(
            "webhook: the URL cannot be read: check its host and port, and percent-encode what is special in its user "
            "and password, as / to %2F"
        ) from None


def _checked(url: str) -> httpx.URL:
    parsed = read_url(url)
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise SettingsError("webhook: the URL must start with http:// or https:// and name a host")
    return parsed


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise SettingsError(f"webhook: header {name!r} holds characters that a header may not hold")
    return headers


def _told_by(url: httpx.URL) -> list[str]:
    """The parts of a URL that may be secret."""
    path = url.raw_path.decode("ascii")
    return [str(url), path if path != "/" else "", url.userinfo.decode("ascii"), url.password]


def _retry_after_s(value: str | None, now_s: float) -> float | None:
    """The header Retry-After, seconds or a date, as seconds from now; None where it says nothing."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_s
        except (ValueError, OverflowError):  # no date, or one that no calendar has
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
