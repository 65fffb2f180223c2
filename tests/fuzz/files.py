"""Targets: what a person or another process leaves as files.

Recordings of every format, models, settings, the agent's rings and what it keeps.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from diagnosis.irregularity.drift import Levels
from diagnosis.irregularity.features import AS_PUBLISHED
from diagnosis.irregularity.forest import ForestDetector, ForestSettings
from diagnosis.iterations import OperatorPattern
from offbeat import labels, models, options
from offbeat.secret_files import secret
from offbeat.settings import Settings
from offbeat.training import LABEL_COLUMNS, Log
from producers.importers.about import About, described
from producers.importers.files import Limits
from producers.importers.formats import FORMATS
from producers.importers.job_of_rows import JOB_FILE, read_job_file
from producers.importers.recording import load
from producers.live.description import describe
from producers.live.live_store import LiveStore
from producers.live.rank_log import RankLog
from producers.log_agent import LogAgent
from producers.segments import Segments
from producers.simulation import Fault, Kind, Scenario, SimulatedRun, simulate
from producers.spool import Spool
from schemas.catalogue import COMM_OPS, LOG_REQUESTS
from schemas.errors import InputError
from schemas.message import Message, decode, encode
from sinks.webhook.signing import sign, verify
from tests.diagnosis.irregularity.drawn_samples import drawn
from tests.fuzz.target import Target, Trial
from tests.producers.importers import kept_log, megatrace_log
from tests.producers.live.made import live_store, write_rank

PLENTY = 1 << 24
DATA = Path(__file__).parent.parent / "producers" / "importers" / "testdata"


@cache
def _run() -> SimulatedRun:
    return simulate(Scenario(5, tp=2, pp=1, dp=1, layers=1, microbatches=1, iterations=5))


def targets() -> Iterator[Target]:
    """Importers, files beside recordings, models, settings, and everything that a log agent reads."""
    yield Target("recording jsonl", partial(_recording, "rank0.jsonl", _jsonl))
    yield Target("recording jsonl.gz", partial(_recording, "rank0.jsonl.gz", lambda: list(map(_packed, _jsonl()))))
    yield Target("recording megatrace", partial(_recording, "rank_0.log", _megatrace))
    yield Target(
        "recording megatrace.gz", partial(_recording, "rank_0.log.gz", lambda: list(map(_packed, _megatrace())))
    )
    yield Target("recording parquet", partial(_recording, "rows.parquet", _parquet))
    yield Target("recording kept", partial(_recording, "0.frames", _kept_file))
    yield Target("recording kept iteration", weight=1, make=_kept_recording)
    yield Target("importer parquet", _parquet_reader)
    yield Target("job.json", _job_file)
    yield Target("labels", _labels)
    yield Target("model", _model)
    yield Target("model repacked", _model_content)
    yield Target("options", weight=6, make=_options)
    yield Target("settings", weight=6, make=_settings)
    yield Target("secret file", weight=6, make=_secret)
    yield Target("signature", weight=6, make=_signature)
    yield Target("ring", _ring)
    yield Target("registration", _registration)
    yield Target("kept segments", weight=1, make=_segments)
    yield Target("kept iterations", weight=1, make=_kept)
    yield Target("spool", _spool)
    yield Target("spool's mark", _mark)
    yield Target("spool's tally", _tally)


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def _jsonl() -> list[bytes]:
    rows = _run().table.to_pylist()
    full = [{name: value for name, value in row.items() if value is not None} for row in rows]
    bare = [
        {name: row[name] for name in ("rank", "op", "communicator", "call_ns", "peer") if name in row} for row in full
    ]
    made = [b"".join(json.dumps(row).encode() + b"\n" for row in each) for each in (full, bare)]
    return [*made, (DATA / "jsonl.good.jsonl").read_bytes()]


def _megatrace() -> list[bytes]:
    made = [
        "".join(f"{line}\n" for line in megatrace_log.lines(_run().table, variant)[0]).encode()
        for variant in megatrace_log.VARIANTS
    ]
    return [*made, (DATA / "megatrace.good.log").read_bytes()]


def _parquet() -> list[bytes]:
    what = About(job=_run().job.to_row(), iterations_source="given")
    seeds = []
    for table in (_run().table, described(_run().table, what)):
        for compression in ("zstd", "none"):
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression=compression)
            seeds.append(sink.getvalue().to_pybytes())
    return seeds


def _recording(name: str, seeds: Callable[[], list[bytes]], folder: Path) -> Trial:
    """A whole recording from one damaged file, with all that is inferred from its rows."""
    path = folder / "run" / name
    path.parent.mkdir()

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        load([path.parent])

    return Trial(seeds(), feed)


def _kept_file() -> list[bytes]:
    with TemporaryDirectory() as folder:
        kept_log.write(Path(folder), _run().table)
        return [path.read_bytes() for path in Path(folder).iterdir()]


def _kept_recording(folder: Path) -> Trial:
    """One iteration damaged before its checksum was made, beside one that is whole."""
    kept_log.write(folder / "made", _run().table)
    segments = Segments(folder / "made", PLENTY)
    payloads = [segments.read(frame) for frame in segments.frames]
    kept = folder / "kept"

    def feed(data: bytes) -> None:
        shutil.rmtree(kept, ignore_errors=True)
        damaged = Segments(kept, PLENTY)
        damaged.append(0, payloads[0])
        damaged.append(1, data)
        load([kept])

    return Trial(payloads[:2], feed)


def _parquet_reader(folder: Path) -> Trial:
    """The rows alone, in the partition of a damaged name."""

    def feed(data: bytes) -> None:
        name, _, content = data.partition(b"\n")
        inside = folder / "run" / name.decode(errors="replace").replace("/", "_").replace("\0", "_")[:60]
        inside.mkdir(parents=True, exist_ok=True)
        try:
            (inside / "rows.parquet").write_bytes(content)
            FORMATS["parquet"].read([inside / "rows.parquet"], Limits())
        finally:
            shutil.rmtree(folder / "run")

    return Trial([b"rank=0\n" + seed for seed in _parquet()], feed)


def _job_file(folder: Path) -> Trial:
    def feed(data: bytes) -> None:
        (folder / JOB_FILE).write_bytes(data)
        read_job_file(folder)

    row = _run().job.to_row()
    return Trial([json.dumps(row).encode(), json.dumps(row, indent=1).encode()], feed)


def _csv(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> bytes:
    lines = [names, *([str(row[name]) for name in names] for row in rows)]
    return "".join(f"{','.join(line)}\n" for line in lines).encode()


def _labels(folder: Path) -> Trial:
    """Labels beside a log that has been read."""
    slow = Fault(Kind.GPU_SLOW, 1, (11, 12), slowdown=2.0)
    run = simulate(Scenario(5, tp=2, pp=1, dp=1, layers=1, microbatches=1, iterations=14, faults=(slow,)))
    log = Log.of(run.job, run.table)
    rows = run.table.filter(pa.array(run.truth.abnormal)).select(LABEL_COLUMNS).to_pylist()[:6]
    told = [{**row, "abnormal": said} for row, said in zip(rows, (True, False, 1, 0, "yes", "no"), strict=True)]
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in told)
    tables = [_csv(told, names) for names in (LABEL_COLUMNS, [*LABEL_COLUMNS, "abnormal"])]

    def feed(data: bytes) -> None:
        path = folder / ("labels.jsonl" if data.lstrip().startswith(b"{") else "labels.csv")
        path.write_bytes(data)
        labels.taught(log, path)

    return Trial([lines, *tables], feed)


def _model(folder: Path) -> Trial:
    path = folder / "forest.skops"
    save_small_model(path)

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        use_model(path)

    return Trial([path.read_bytes()], feed)


def _model_content(folder: Path) -> Trial:
    """The parts of a model file damaged before they are packed, so that checksums fit."""
    path = folder / "forest.skops"
    save_small_model(path)
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    seeds = [name.encode() + b"\n" + content for name, content in parts.items()]

    def feed(data: bytes) -> None:
        name, _, content = data.partition(b"\n")
        with zipfile.ZipFile(path, "w") as packed:
            for known, own in parts.items():
                packed.writestr(known, content if known.encode() == name else own)
        use_model(path)

    return Trial(seeds, feed)


def save_small_model(path: Path) -> None:
    """A forest of a few trees."""
    samples, abnormal = drawn(200)
    detector = ForestDetector(ForestSettings(features=AS_PUBLISHED, trees=2)).fit(samples, abnormal)
    models.save(models.Model(replace(detector, levels=Levels.of(samples)), "drawn operators", {"f1": 0.9}), path)


def use_model(path: Path) -> None:
    """Load a model and judge a few operators with it, as it is and tuned."""
    detector, (samples, _) = models.load(str(path)).detector, drawn(3)
    detector.predict(samples)
    if detector.levels is not None:
        detector.tuned(Levels.of(samples)).predict(samples)


def _options(_: Path) -> Trial:
    def feed(data: bytes) -> None:
        kind, _, text = data.decode(errors="replace").partition(" ")
        match kind:
            case "layout":
                options.layout(text)
            case "scenario":
                options.scenario(text, [])
            case "fault":
                options.scenario("seed=1", [text])
            case _:
                _pattern(text)

    seeds = b"""layout tp=2,pp=4,dp=1
scenario seed=7,tp=4,pp=2,dp=2,iterations=60,noise=default,omit=labels+ends,hosts_per_pod=2
fault kind=gpu_slow,rank=5,iterations=20-40+50,slowdown=1.4
pattern op=all_reduce,bytes=4"""
    return Trial(seeds.split(b"\n"), feed)


def _pattern(text: str) -> None:
    """As ``load`` reads it: what cannot be is a ``ValueError``."""
    try:
        OperatorPattern.parse(text)
    except ValueError as error:
        raise InputError(str(error)) from error


def _settings(_: Path) -> Trial:
    given = """MONITOR__DELTA=1.2
SEARCH__LOCATE__SEARCH=algorithm_1
INCIDENTS__CONFIRMATIONS=2
KAFKA__SECURITY_PROTOCOL=SASL_SSL
KAFKA__SASL_MECHANISM=SCRAM-SHA-256
KAFKA__USERNAME=a
KAFKA__PASSWORD=b
STORE__PORT=9000
WEBHOOK__PAGES_PER_JOB=5
LIVE__KEEP_BYTES=4294967296
PIVOTS=4
PUBLISH_ALL=true"""

    def feed(data: bytes) -> None:
        lines = (line.partition("=") for line in data.decode(errors="replace").replace("\0", "?").split("\n"))
        own = {f"OFFBEAT_{name}": value for name, _, value in lines}
        text = {name: value.encode(errors="replace").decode() for name, value in own.items()}
        with mock.patch.dict(os.environ, text, clear=True):
            Settings.load()

    return Trial([given.encode()], feed)


def _secret(folder: Path) -> Trial:
    path = folder / "password"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        secret(path, "OFFBEAT_KAFKA__PASSWORD_FILE")

    return Trial([b"hunter2\n", "pässword".encode()], feed)


def _signature(_: Path) -> Trial:
    body = b"{}"

    def feed(data: bytes) -> None:
        verify(data.decode(errors="replace"), body, ["old", "new"], 1000.0)

    return Trial([sign(body, ["old", "new"], 1000.0).encode()], feed)


def _rank(folder: Path) -> Path:
    """What a training process has left."""
    rows = [row for row in _run().table.to_pylist() if row["rank"] == 0]
    presence = write_rank(folder / "rings", _run().job, 0, rows[: len(rows) // 2])
    presence.leave()
    return presence.folder


def _ring(folder: Path) -> Trial:
    process = _rank(folder)
    path = process / "ring-0"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        rank_log = RankLog(process)
        for _look in range(3):
            rank_log.look()
            oldest = rank_log.oldest_open
            if oldest is not None:
                [rows] = rank_log.rows(oldest).combine_chunks().to_batches() or [None]
                if rows is not None:  # or all readers of the topic would bury them
                    decode(encode(COMM_OPS, rows, job="j"), COMM_OPS)
                rank_log.release(oldest)
        assert rank_log.appended >= 0

    return Trial([path.read_bytes()], feed, ())


def _registration(folder: Path) -> Trial:
    process = _rank(folder)
    path = process / "registration.json"
    seeds = [path.read_bytes()]
    path.write_text(path.read_text().replace('"layout": {}', '"layout": {"tp": 2, "pp": 1, "dp": 1}'))
    seeds.append(path.read_bytes())

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        describe([RankLog(process)])

    return Trial(seeds, feed, (OSError, ValueError))


def _frames(folder: Path) -> tuple[Segments, list[bytes]]:
    """The iterations that an agent has kept."""
    store = live_store(_run().job, _run().table, folder)
    while store.advance():
        pass
    segments = Segments(folder / "kept", PLENTY)
    return segments, [segments.read(frame) for frame in segments.frames]


def _segments(folder: Path) -> Trial:
    """The file of kept iterations, damaged: what is whole is found again, and asked for."""
    _frames(folder / "made")
    [made] = (folder / "made" / "kept").iterdir()
    kept = folder / "kept"

    def feed(data: bytes) -> None:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        (kept / made.name).write_bytes(data)
        _ask(kept)

    return Trial([made.read_bytes()], feed)


def _kept(folder: Path) -> Trial:
    """One iteration damaged before its checksum was made: what another version could have written."""
    _, payloads = _frames(folder / "made")
    kept = folder / "kept"

    def feed(data: bytes) -> None:
        shutil.rmtree(kept, ignore_errors=True)
        segments = Segments(kept, PLENTY)
        for number, payload in enumerate((payloads[0], data, payloads[2])):
            segments.append(number, payload)
        _ask(kept)

    return Trial(payloads[:3], feed)


def _ask(kept: Path) -> None:
    """An agent that starts over what is kept, and is asked for all of it."""
    store = LiveStore(_run().job, _run().job.ranks, Segments(kept, PLENTY))
    agent = LogAgent(store, "h0", ())
    row = {"request_id": "r", "ranks": list(store.ranks), "iteration_from": 0, "iteration_to": 2, "deadline_ns": 1}
    rows = [{**row, "what": "rows"}, {**row, "what": "statistics"}]
    asked = encode(LOG_REQUESTS, LOG_REQUESTS.from_rows(rows), job=_run().job.job)
    list(agent.process(replace(asked, offset=0)))


def _spool(folder: Path) -> Trial:
    """A message that waits, damaged before its checksum was made; the others must go on."""
    waits = folder / "spool"
    messages = [Message("t", f"key {number}", b"value", {"job": "j"}) for number in range(3)]
    spool = Spool(folder / "made", PLENTY)
    for message in messages:
        spool.append(message)
    segments = Segments(folder / "made", PLENTY)
    payloads = [segments.read(frame) for frame in segments.frames]

    def feed(data: bytes) -> None:
        shutil.rmtree(waits, ignore_errors=True)
        kept = Segments(waits, PLENTY)
        for number, payload in enumerate((payloads[0], data, payloads[2])):
            kept.append(number, payload)
        found = Spool(waits, PLENTY).waiting(9)[0]
        assert [found[0], found[-1]] == [messages[0], messages[2]]

    return Trial(payloads, feed)


def _mark(folder: Path) -> Trial:
    """How far the spool was delivered, damaged; nothing is sent that is no message."""
    spool = Spool(folder, PLENTY)
    for number in range(3):
        spool.append(Message("t", f"key {number}", b"value"))
    spool.delivered(0)
    saved = {path: path.read_bytes() for path in folder.iterdir()}
    mark = folder / "delivered"

    def feed(data: bytes) -> None:
        for path, content in saved.items():
            path.write_bytes(content)
        mark.write_bytes(data)
        found = Spool(folder, PLENTY).waiting(9)[0]
        assert all(message.value == b"value" for message in found)

    return Trial([mark.read_bytes()], feed)


def _tally(folder: Path) -> Trial:
    """How much the spool dropped, damaged; it goes on, and counts."""
    bound = 16 * 1000
    spool = Spool(folder / "made", bound)
    for number in range(60):
        spool.append(Message("t", f"key {number}", bytes(400)))
    tally, damaged = folder / "made" / "dropped", folder / "damaged" / "dropped"
    damaged.parent.mkdir()

    def feed(data: bytes) -> None:
        damaged.write_bytes(data)
        found = Spool(damaged.parent, bound)
        assert all(count > 0 for count in (*found.dropped.values(), *found.untold.values()))

    return Trial([tally.read_bytes()], feed)
