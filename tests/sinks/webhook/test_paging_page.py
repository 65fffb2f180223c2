"""The receiver that docs/paging.md shows takes what is sent, and nothing else."""

import re
import threading
from collections.abc import Callable, Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.errors import ReceiverError
from sinks.webhook.alertmanager_webhook import AlertmanagerWebhook
from sinks.webhook.delivery import Delivery
from sinks.webhook.signing import HEADER, sign
from tests.sinks.webhook.incidents import page

TEXT = (Path(__file__).parents[3] / "docs" / "paging.md").read_text("utf-8")
BODY = '{"text": "größer"}'.encode()
NOW = 1_700_000_000.0


@pytest.fixture
def shown() -> dict[str, Any]:
    """What the example defines."""
    [source] = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(source, "receiver.py", "exec"), namespace)
    namespace["Receiver"].secrets = ["new", "old"]
    return namespace


@pytest.fixture
def genuine(shown: dict[str, Any]) -> Callable[..., bool]:
    function: Callable[..., bool] = shown["genuine"]
    return function


@pytest.mark.parametrize("secrets", [["new"], ["old"], ["new", "old"]])
def test_what_is_signed_with_a_known_secret_is_genuine(genuine: Callable[..., bool], secrets: list[str]) -> None:
    assert genuine(sign(BODY, secrets, NOW), BODY, ["new", "old"], NOW + 299)


def test_anything_else_is_not(genuine: Callable[..., bool]) -> None:
    signed = sign(BODY, ["new"], NOW)
    assert not genuine(signed, BODY + b" ", ["new"], NOW)
    assert not genuine(signed, BODY, ["other"], NOW)
    assert not genuine(signed, BODY, ["new"], NOW + 302)
    assert not genuine(signed.replace("t=1", "t=2"), BODY, ["new"], NOW)
    for header in ("", "t=", "v1=abc", signed.partition(",")[0], f"t=1,{signed}", "t=²,v1=é"):
        assert not genuine(header, BODY, ["new"], NOW)


@pytest.fixture
def url(shown: dict[str, Any]) -> Iterator[str]:
    shown["Receiver"].log_message = lambda *_: None
    with HTTPServer(("127.0.0.1", 0), shown["Receiver"]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join(60)


def test_the_receiver_takes_a_page_once(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    request = AlertmanagerWebhook().request(page(), 0)
    with Delivery(url, secrets=["old"]) as delivery:
        delivery.post(request, page().idempotency_key)
        delivery.post(request, page().idempotency_key)
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("firing ")


def test_the_receiver_takes_no_page_of_others(url: str) -> None:
    with Delivery(url, secrets=["guessed"]) as delivery, pytest.raises(ReceiverError, match="answered 401"):
        delivery.post(AlertmanagerWebhook().request(page(), 0), page().idempotency_key)
    assert httpx.post(url, content=b"{}").status_code == 401


def test_the_headers_shown_are_those_that_are_sent() -> None:
    for header in (HEADER, "Idempotency-Key"):
        assert f"| `{header}` |" in TEXT
