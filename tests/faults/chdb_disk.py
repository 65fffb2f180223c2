"""A full disk under chDB: its sink ends with its offsets held, and loses nothing once there is room again."""

from sinks.clickhouse.chdb import ChdbStore
from tests.faults.site import Site
from tests.faults.small_disk import NoSmallDisk, SmallDisk, small_disk
from tests.integration.outcome import Stored, in_process
from tests.integration.roles import KINDS, Kind, Role
from tests.offbeat.command_line import run_offbeat

_MEGABYTES = 192
_PREFIX = "chdb"


def fill_chdb_disk(site: Site) -> None:
    """Store a job in chDB as well, on a disk that is full for a while."""
    try:
        with small_disk(site.folder / "chdb", _MEGABYTES) as disk:
            store, reads = disk.folder / "store", KINDS["store"].reads
            chosen = {"OFFBEAT_STORE__ENGINE": "chdb", "OFFBEAT_STORE__PATH": str(store)}
            settings = {**site.pipeline.settings, **chosen, "OFFBEAT_WORKER__GROUP_PREFIX": _PREFIX}
            migrated = run_offbeat("store", "migrate", settings=settings)
            site.expect(migrated.returncode == 0, f"chDB was not migrated: {migrated.stderr}")
            group = f"{_PREFIX}.store"
            site.pipeline.begin_at_the_ends(group, reads)
            environment = {**site.pipeline.environment, **settings}
            with Role(Kind(("sink",), reads), environment, site.folder / "chdb-sink") as sink:
                recorded = site.recording()
                with site.diagnosing(recorded):
                    site.amid()
                    with site.outage("that the disk is full", lambda: int(_ended(sink, disk))):
                        disk.fill()
                    code, said = sink.wait(), sink.last_words()
                    site.expect(code == 2, f"the sink ended with {code}: {said}")
                    disk.make_room()
                    sink.start()
                site.pipeline.awaited(lambda: site.pipeline.lag_of(group, reads) == 0, "commit of chDB's sink")
                sink.stop()
            opened = ChdbStore(store)
            try:
                stored = Stored.of(opened, recorded.job)
            finally:
                opened.close()
            site.tally.differences += stored.differences(in_process(recorded, site.reference))
    except NoSmallDisk as reason:
        site.tally.skipped.append(str(reason))


def _ended(sink: Role, disk: SmallDisk) -> bool:
    """Take what room merges have made, and look whether the sink could bear it."""
    disk.fill()
    return not sink.running
