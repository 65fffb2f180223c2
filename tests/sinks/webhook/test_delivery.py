"""One attempt: what is sent, and what each failure means. The receiver is a real server on loopback."""

import traceback
from collections.abc import Callable
from email.utils import formatdate

import httpcore
import httpx
import pytest

from schemas.errors import ReceiverError, SettingsError
from sinks.webhook.alertmanager import alerts_url
from sinks.webhook.delivery import Delivery, PageRefused, ReceiverAway
from sinks.webhook.receiver import Request
from sinks.webhook.signing import HEADER, BadSignature, verify
from tests.sinks.webhook.local_receiver import HANG, Answer, LocalReceiver

NOW_S = 1_767_322_985.0
REQUEST = Request(b'{"a": 1}', {"Content-Type": "application/json"})


def post(receiver: LocalReceiver, key: str = "id/1", timeout_s: float = 10.0) -> None:
    """Deliver to the receiver once."""
    with Delivery(receiver.url, timeout_s=timeout_s, now=lambda: NOW_S) as delivery:
        delivery.post(REQUEST, key)


def test_the_request_carries_body_key_and_type(receiver: LocalReceiver) -> None:
    post(receiver)
    (received,) = receiver.received
    assert (received.path, received.body) == ("/hook", REQUEST.body)
    assert received.key == "id/1"
    assert received.headers["content-type"] == "application/json"
    assert HEADER.lower() not in received.headers


def test_the_receiver_verifies_the_signature(receiver: LocalReceiver) -> None:
    with Delivery(receiver.url, secrets=["old", "new"], now=lambda: NOW_S) as delivery:
        delivery.post(REQUEST, "id/1")
    (received,) = receiver.received
    for secret in ("old", "new"):
        verify(received.headers[HEADER.lower()], received.body, [secret], NOW_S)
    with pytest.raises(BadSignature):
        verify(received.headers[HEADER.lower()], received.body + b" ", ["new"], NOW_S)


def test_configured_headers_are_sent(receiver: LocalReceiver) -> None:
    with Delivery(receiver.url, headers={"Authorization": "Bearer abc"}) as delivery:
        delivery.post(REQUEST, "id/1")
    assert receiver.received[0].headers["authorization"] == "Bearer abc"


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_success_is_a_delivery(receiver: LocalReceiver, status: int) -> None:
    receiver.answers.append(Answer(status))
    post(receiver)
    assert [received.key for received in receiver.received] == ["id/1"]


@pytest.mark.parametrize(
    ("status", "wholly"),
    [(408, True), (409, False), (429, True), (500, False), (502, True), (503, True), (504, True)],
)
def test_what_may_pass_is_tried_again(receiver: LocalReceiver, status: int, wholly: bool) -> None:
    receiver.answers.append(Answer(status, body=b"later"))
    with pytest.raises(ReceiverAway, match=rf"{status} to page id/1 \(later\)") as caught:
        post(receiver)
    assert caught.value.wholly is wholly
    assert caught.value.reason == f"http_{status}"


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_a_refusal_of_the_page_is_told_from_a_refusal_of_all_pages(receiver: LocalReceiver, status: int) -> None:
    receiver.answers.append(Answer(status, body=b"unknown field"))
    with pytest.raises(PageRefused, match=rf"{status} to page id/1 \(unknown field\)"):
        post(receiver)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_a_receiver_that_takes_no_pages_says_what_to_check(receiver: LocalReceiver, status: int) -> None:
    receiver.answers.append(Answer(status))
    with pytest.raises(ReceiverError, match="check the webhook's URL") as caught:
        post(receiver)
    assert type(caught.value) is ReceiverError


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(receiver: LocalReceiver, status: int) -> None:
    receiver.answers.append(Answer(status, {"Location": "/elsewhere"}))
    with pytest.raises(ReceiverError, match="final address"):
        post(receiver)
    assert [received.path for received in receiver.received] == ["/hook"]


@pytest.mark.parametrize("location", ["http://host:port/", "http://h/\x7f", "//", "https://user:1@[::1", "http:a/b"])
def test_a_redirect_to_what_is_no_url_is_no_crash(receiver: LocalReceiver, location: str) -> None:
    receiver.answers.append(Answer(308, {"Location": location}))
    with pytest.raises(ReceiverError) as caught:
        post(receiver)
    assert str(caught.value).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("17", 17.0),
        ("0", 0.0),
        ("-5", 0.0),
        (formatdate(NOW_S + 90, usegmt=True), 90.0),
        (formatdate(NOW_S - 90, usegmt=True), 0.0),
        ("Sat, 02 Jan 2026 02:03:35 -0100", 30.0),
        ("soon", None),
        ("Sat, 02 Jan 99999999999999 02:03:35 GMT", None),
        ("Sat, 02 Jan 2026 02:03:35 -99999999999999", None),
        ("Mon, 01 Jan 0001 00:00:00 +0100", 0.0),
        ("nan", None),
        ("inf", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(receiver: LocalReceiver, value: str, seconds: float | None) -> None:
    receiver.answers.append(Answer(429, {"Retry-After": value}))
    with pytest.raises(ReceiverAway) as caught:
        post(receiver)
    assert caught.value.retry_after_s == seconds


def test_nobody_there(receiver: LocalReceiver) -> None:
    receiver.away()
    with pytest.raises(ReceiverAway, match="ConnectError") as caught:
        post(receiver)
    assert caught.value.wholly


def test_no_answer(receiver: LocalReceiver) -> None:
    receiver.answers.append(HANG)
    with pytest.raises(ReceiverAway, match="ReadTimeout") as caught:
        post(receiver, timeout_s=0.1)
    assert caught.value.wholly
    assert receiver.keys == ["id/1"]


def test_an_answer_that_never_ends_is_not_read_to_its_end(receiver: LocalReceiver) -> None:
    receiver.answers.append(Answer(500, body=b"<html>" + b"x" * 100_000, endless=True))
    with pytest.raises(ReceiverAway, match=r"\(<html>x{194}\)$"):
        post(receiver, timeout_s=10.0)


def test_an_answer_that_is_no_http_is_quoted_in_short() -> None:
    """And without the secret that it repeats."""
    transport = httpx.HTTPTransport()
    no_http = b"SSH-2.0-hush\x1b[2J" + b"x" * 50_000 + b"\r\n\r\n"
    transport._pool = httpcore.ConnectionPool(network_backend=httpcore.MockBackend([no_http]))
    with (
        Delivery("http://host/", hidden=["hush"], transport=transport) as delivery,
        pytest.raises(ReceiverAway) as caught,
    ):
        delivery.post(REQUEST, "id/1")
    said = str(caught.value)
    assert said.startswith("http://host: RemoteProtocolError: ")
    assert "SSH-2.0" in said
    assert "hush" not in said
    assert said.isprintable()
    assert len(said) < 300


def test_what_may_be_secret_in_the_url_is_not_told(receiver: LocalReceiver) -> None:
    receiver.answers.append(Answer(404))
    url = receiver.url.replace("http://", "http://user:hunter2@") + "/T0KEN?key=s3cret"
    with Delivery(url) as delivery, pytest.raises(ReceiverError) as caught:
        delivery.post(REQUEST, "id/1")
    assert receiver.received[0].path == "/hook/T0KEN?key=s3cret"
    assert "127.0.0.1" in str(caught.value)
    for secret in ("hunter2", "T0KEN", "s3cret"):
        assert secret not in str(caught.value)


def test_what_is_secret_is_not_told_though_the_receiver_repeats_it(receiver: LocalReceiver) -> None:
    url = receiver.url + "/T0KEN?key=s3cret"
    echoed = f"POST {url} Bearer hunter2: unknown R0UTINGKEY; /hook/T0KEN?key=s3cret"
    receiver.answers.append(Answer(400, body=echoed.encode()))
    with (
        Delivery(url, headers={"Authorization": "Bearer hunter2"}, hidden=["R0UTINGKEY"]) as delivery,
        pytest.raises(PageRefused, match=r"POST \*\*\*") as caught,
    ):
        delivery.post(REQUEST, "id/1")
    for secret in ("hunter2", "T0KEN", "s3cret", "R0UTINGKEY"):
        assert secret not in str(caught.value)


def test_an_answer_that_blames_the_set_up_refuses_all_pages(receiver: LocalReceiver) -> None:
    receiver.answers.append(Answer(400, body=b"Unknown KEY"))
    with Delivery(receiver.url) as delivery, pytest.raises(ReceiverError, match="check the webhook's URL") as caught:
        delivery.post(Request(b"{}", blames_settings=("unknown key",)), "id/1")
    assert type(caught.value) is ReceiverError


@pytest.mark.parametrize("url", ["", "hook", "ftp://host/hook", "http://", "http://[::1", "http://host:port/"])
def test_a_url_that_is_none_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(SettingsError, match="webhook: the URL"):
        Delivery(url)


@pytest.mark.parametrize("read", [Delivery, alerts_url])
def test_a_password_that_is_taken_for_a_port_is_not_told(read: Callable[[str], object]) -> None:
    url = "https://user:s3cr3t/x"
    with pytest.raises(SettingsError, match="the URL cannot be read: check its host and port") as caught:
        read(url)
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("read", [Delivery, alerts_url])
@pytest.mark.parametrize("rest", ["12/34@host/x", "12?34@host", "12#34@host", "12@host/a@b"])
def test_a_password_that_begins_like_a_port_is_not_told(read: Callable[[str], object], rest: str) -> None:
    with pytest.raises(SettingsError, match="an @ behind its host") as caught:
        read(f"https://user:{rest}")
    assert not any(part in str(caught.value) for part in ("12", "34"))
    assert caught.value.__context__ is None


def test_a_password_of_digits_is_no_port() -> None:
    with Delivery("https://user:8443@host/%40team?to=a%40b") as delivery:
        assert delivery.place == "https://host"


def test_the_address_of_an_alertmanager_keeps_what_is_percent_encoded() -> None:
    assert alerts_url("http://host/%40a%2Fb/?q=1") == "http://host/%40a%2Fb/api/v2/alerts?q=1"
    assert alerts_url("http://host/api/v2/alerts") == "http://host/api/v2/alerts"


def test_an_empty_secret_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match="secret is empty"):
        Delivery("http://127.0.0.1/", secrets=[""])


@pytest.mark.parametrize(("name", "value"), [("X-A", "b\r\nX-C: d"), ("X A", "b"), ("X-A", "ä"), ("", "b")])
def test_a_header_that_cannot_be_sent_is_a_wrong_setting(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match="header"):
        Delivery("http://127.0.0.1/", headers={name: value})
