"""What a silence covers, and how it travels."""

import pytest

from schemas.errors import SettingsError, WrongSchema
from schemas.message import Message
from sinks.webhook.silences import Silence, Silences, ended
from tests.sinks.webhook.incidents import incident

UNTIL_NS = 2_000


def silence(job: str | None = None, device: str | None = None, name: str = "s") -> Silence:
    return Silence(name, UNTIL_NS, 1_000, job, device, "swap ordered")


@pytest.mark.parametrize(
    ("job", "device", "covered"),
    [
        ("llama", None, True),
        ("llam?", None, True),
        ("llama-*", None, False),
        (None, "gpu:host0/2", True),
        (None, "*:host0/*", True),
        (None, "gpu:host0/3", False),
        (None, "GPU:host0/2", False),
        ("llama", "gpu:host0/2", True),
        ("other", "gpu:host0/2", False),
        ("llama", "gpu:host0/3", False),
    ],
)
def test_a_silence_covers_a_job_a_device_or_a_device_in_a_job(
    job: str | None, device: str | None, covered: bool
) -> None:
    assert silence(job, device).covers("llama", incident()) is covered


def test_brackets_are_a_name_s_own() -> None:
    assert silence(job="run[3]").covers("run[3]", incident())
    assert not silence(job="run[3]").covers("run3", incident())
    assert silence(job="run[[*]").covers("run[[4]", incident())


@pytest.mark.parametrize("device", ["gpu:host7/2", "nic:host7/mlx5_0", "cpu:host7", "nvlink:host7"])
def test_a_whole_host_is_silenced_with_what_is_no_part_of_it(device: str) -> None:
    of_it = incident(devices=[{"device": device, "kind": device.partition(":")[0], "downside_nics": 0}])
    assert silence(device="*:host7/*").covers("llama", of_it)
    assert not silence(device="*:host/*").covers("llama", of_it)
    assert not silence(device="*:host77/*").covers("llama", of_it)


def test_an_incident_is_covered_only_where_all_its_devices_are() -> None:
    two = [{"device": f"gpu:host0/{number}", "kind": "gpu", "downside_nics": 0} for number in (2, 3)]
    assert not silence(device="gpu:host0/2").covers("llama", incident(devices=two))
    assert silence(device="gpu:host0/?").covers("llama", incident(devices=two))
    assert not silence(device="*").covers("llama", incident(devices=[]))


def test_nobody_silences_everything() -> None:
    with pytest.raises(SettingsError, match="needs a job or a device"):
        silence()


def test_a_silence_lasts_until_its_time_or_its_end() -> None:
    known = Silences()
    known.take([silence("a", name="x").to_message(), silence(device="d", name="y").to_message()])
    assert known.lasting(UNTIL_NS - 1) == [silence("a", name="x"), silence(device="d", name="y")]
    assert known.lasting(UNTIL_NS) == known.over(UNTIL_NS - 1) == []
    assert known.over(UNTIL_NS) == [silence("a", name="x"), silence(device="d", name="y")]
    known.take([ended("x")])
    assert known.lasting(0) == [silence(device="d", name="y")]
    assert ended("x").key == silence("a", name="x").to_message().key


def test_a_record_that_cannot_be_read_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    known = Silences()
    good = silence("a").to_message()
    known.take([Message(good.topic, "s", b"junk", good.headers, offset=7), good])
    assert known.lasting(0) == [silence("a")]
    assert "control.silences partition 0 offset 7: " in caplog.text


def test_a_record_without_a_job_or_a_device_is_refused() -> None:
    from schemas.catalogue import SILENCES
    from schemas.message import encode

    row = {"id": "s", "job": None, "device": None, "until_ns": 1, "reason": "", "made_ns": 0}
    with pytest.raises(WrongSchema, match="needs a job or a device"):
        Silence.from_message(encode(SILENCES, SILENCES.from_rows([row]), job="*"))
    with pytest.raises(WrongSchema, match="expected one silence"):
        Silence.from_message(encode(SILENCES, SILENCES.from_rows([]), job="*"))
