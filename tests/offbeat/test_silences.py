"""`offbeat silences`: what is added is listed and heeded, and ends."""

import json
import time

import pytest

from offbeat.paging import following
from offbeat.setting_groups import KafkaSettings
from producers.publisher import Publisher
from schemas.catalogue import SILENCES
from sinks.webhook.silences import Silence
from streams.bus import Bus
from streams.follower import Follower
from tests.offbeat.command_line import offbeat, refusal


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing would be silenced: give a --job or a --device, or both"),
        (("--job", "a", "--hours", 0), "--hours 0: give more than 0 and at most 2160"),
        (("--job", "a", "--hours", 1e9), "--hours 1e+09: give more than 0 and at most 2160"),
        (("--job", "a", "--hours", "nan"), "--hours nan: give more than 0 and at most 2160"),
    ],
)
def test_what_cannot_be_silenced_is_one_line(arguments: tuple[object, ...], said: str) -> None:
    assert refusal(offbeat("silences", "add", *arguments)) == said


@pytest.mark.parametrize(
    ("device", "refused"),
    [
        ("host7", True),
        ("host7/3", True),
        ("gpus:host7/3", True),
        ("Gpu:host7/3", True),
        ("gpu:host7/3", False),
        ("nv*:host7", False),
        ("*:host7/*", False),
        ("*host7*", False),
        ("?pu:host7/3", False),
    ],
)
def test_a_device_that_no_name_of_ours_is_like_is_refused_unless_forced(
    device: str, *, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offbeat.commands.silences._WITHIN_S", 0.1)  # no broker is there to wait for
    adding = ("silences", "add", "--device", device, "--bootstrap", "127.0.0.1:1")
    said = f"--device {device} is the name of no device that Offbeat names itself, so that nothing may be silenced: "
    told = offbeat(*adding).stderr
    assert told.startswith(f"{said}these begin with their kind, gpu:, nic:, ") == refused
    assert ("127.0.0.1:1" in told) == (not refused)
    forced = offbeat(*adding, "--force").stderr
    assert "127.0.0.1:1" in forced
    assert said not in forced


@pytest.mark.kafka
def test_a_silence_is_added_heeded_listed_and_ended(kafka: str) -> None:
    settings = {"OFFBEAT_KAFKA__BOOTSTRAP_SERVERS": kafka}
    assert offbeat("topics", "apply", settings=settings).exit_code == 0
    with following(KafkaSettings(bootstrap_servers=kafka)) as lasting:
        before = len(list(lasting(time.time_ns())))
        added = offbeat(
            "silences", "add", "--device", "*:host7/*", "--hours", 2, "--reason", "NIC swap", settings=settings
        )
        assert added.exit_code == 0, added.output
        name, _, rest = added.stdout.partition(" until ")
        assert rest.endswith(": device *:host7/* (NIC swap)\n")
        json_of_job = json.loads(offbeat("silences", "add", "--job", "llama", "--json", settings=settings).stdout)
        assert (json_of_job["job"], json_of_job["device"], json_of_job["reason"]) == ("llama", None, "")
        assert json_of_job["until_ns"] - json_of_job["made_ns"] == 4 * 3600 * 10**9

        deadline = time.monotonic() + 60
        while len(found := list(lasting(time.time_ns()))) < before + 2:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
    past = Silence("past", 1, 0, job="past")
    publisher = Publisher({"bootstrap.servers": kafka}, "test")
    publisher.send(past.to_message())
    publisher.flush()
    another = offbeat("silences", "add", "--job", "b", "--hours", 0.001, settings=settings)
    assert another.exit_code == 0
    with Follower(Bus(kafka), SILENCES.name) as follower:
        records = [(record.key, record.value is None) for record in follower.catch_up()]
    assert records[-3:] == [("past", False), (another.stdout[:8], False), ("past", True)]
    assert added.stdout in offbeat("silences", "list", settings=settings).stdout
    listed = json.loads(offbeat("silences", "list", "--json", settings=settings).stdout)
    assert {name, json_of_job["id"]} <= {silence["id"] for silence in listed}
    for silence in (name, json_of_job["id"]):
        assert offbeat("silences", "end", silence, settings=settings).stdout == f"{silence} has ended\n"
    left = json.loads(offbeat("silences", "list", "--json", settings=settings).stdout)
    assert not {name, json_of_job["id"]} & {silence["id"] for silence in left}
    assert refusal(offbeat("silences", "end", name, settings=settings)).startswith(f"no silence {name!r} lasts")
