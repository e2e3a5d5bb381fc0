"""A table in a real S3 server, and attempts at purging it with the inline engine, of which one is killed.

    python -m tests.s3_servers.purges STATE.json DELETED

purges as `Purges.attempt` does, and kills its own process with SIGKILL once that many files are deleted.
"""

import concurrent.futures
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegation.iceberg.metadata import decode_metadata
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import TableMetadataMissing
from delegation.polaris.model import LoadedTable
from delegation.removal.attempt import MemoryAttempt, PlanHead, PlanSegment
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.base import ObjectNotFound
from delegation.storage.credentials import S3Credential
from delegation.storage.deleter import DeletePolicy
from delegation.storage.locations import parse
from delegation.storage.s3 import S3ObjectStore, S3Timeouts
from delegation.storage.s3_plans import S3PlanStore
from tests.faults.hostile.world import world
from tests.paths import ROOT
from tests.s3_servers.servers import RealServer

IDENTIFIER = TableIdentifier("cat", ("ns",), "doomed")
PLANS = "plans"
_METADATA_BYTES = 1_000_000
# rclone has refused one of several calls at a time with 500, and has not answered some (docs/s3-servers.md).
_TRIES = 5
_TIMEOUTS = S3Timeouts(read=20.0)


@dataclass(frozen=True)
class Planted:
    """What was put into a server: the table's own objects and all others, as (bucket, key)."""

    own: frozenset[tuple[str, str]]
    others: frozenset[tuple[str, str]]
    metadata_location: str
    table_uuid: str


def plant(server: RealServer, *, more: int = 0, without: tuple[str, ...] = ()) -> Planted:
    """Put a table `doomed`, with `more` files than a small one, and its neighbours into new buckets.

    Other tables and objects of no table lie beside it, except those with a key of `without`.
    """
    lake, own = world(more=more)
    client = server.client(tries=_TRIES)
    objects = {where: data for where, data in lake.objects.items() if where[1] not in without}
    for bucket in sorted({bucket for bucket, _ in objects} | {PLANS}):
        client.create_bucket(Bucket=bucket)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        puts = [pool.submit(client.put_object, Bucket=b, Key=k, Body=data) for (b, k), data in objects.items()]
        for put in puts:
            put.result()
    mine = frozenset((one.bucket, one.key) for one in map(parse, own))
    uuid = str(lake.metadata("doomed")["table-uuid"])
    return Planted(mine, frozenset(objects) - mine, lake.pointers["doomed"], uuid)


def clear(server: RealServer) -> None:
    """Remove every object and bucket."""
    client = server.client(tries=_TRIES)
    for bucket, key in sorted(stored(server, plans=True), reverse=True):
        client.delete_object(Bucket=bucket, Key=key)
    for one in client.list_buckets()["Buckets"]:
        client.delete_bucket(Bucket=one["Name"])


def stored(server: RealServer, *, plans: bool = False) -> frozenset[tuple[str, str]]:
    """Return what the server lists, as (bucket, key); `plans` are the service's own."""
    client = server.client(tries=_TRIES)
    found: set[tuple[str, str]] = set()
    for bucket in (one["Name"] for one in client.list_buckets()["Buckets"]):
        if bucket != PLANS or plans:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                found.update((bucket, one["Key"]) for one in page.get("Contents", []))
    return frozenset(found)


class StoredHead(PlanHead):
    """The published segments in a file, so that they outlive a killed process as a task does."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        if file.exists():
            self._segments = tuple(PlanSegment(*one) for one in json.loads(file.read_text()))

    def append(
        self, segment: PlanSegment, *, seen: tuple[PlanSegment, ...], files_planned: int
    ) -> tuple[PlanSegment, ...]:
        segments = super().append(segment, seen=seen, files_planned=files_planned)
        self._file.write_text(json.dumps([[one.id, one.sha256] for one in segments]))
        return segments


@dataclass(frozen=True)
class ServedTable:
    """The table as a catalog would load it from the server."""

    server: RealServer
    metadata_location: str

    def load(self) -> LoadedTable:
        try:
            data = S3ObjectStore(settings=self.server.settings).read(
                parse(self.metadata_location), limit=_METADATA_BYTES
            )
        except ObjectNotFound as error:
            raise TableMetadataMissing(str(error), status=400) from error
        metadata = dict(decode_metadata(self.metadata_location, data))
        credential = S3Credential(str(metadata["location"]), "key", "secret", "token", None)
        return LoadedTable(IDENTIFIER, self.metadata_location, metadata, {}, (credential,))


@dataclass(frozen=True)
class Purges:
    """Attempts at one table's purge; their state is in a file of `folder`."""

    server: RealServer
    metadata_location: str
    table_uuid: str
    folder: Path

    def attempt(
        self, number: int = 1, *, batch: int = 1000, watch: Callable[[MemoryAttempt], None] | None = None
    ) -> PurgeResult:
        """Purge in this process, `batch` files a call; `watch` is called before each batch."""
        attempt = MemoryAttempt("task", number, head=StoredHead(self.folder / "head.json"))
        if watch is not None:
            attempt.on_checkpoint = lambda: watch(attempt)
        policy = DeletePolicy(batch=batch, threads=1 if watch else 4, pause=0.0, longest_pause=0.0)
        settings = PurgeSettings(chunk_paths=10 if watch else 1000, read_threads=2, delete=policy)
        return purge_table(
            PurgeContext(
                attempt=attempt,
                identifier=IDENTIFIER,
                table_uuid=self.table_uuid,
                tables=ServedTable(self.server, self.metadata_location),
                store=S3ObjectStore(settings=self.server.settings, timeouts=_TIMEOUTS),
                plans=S3PlanStore(self.server.client(tries=_TRIES), PLANS),
                settings=settings,
            )
        )

    def attempt_that_is_killed(self, deleted: int) -> int:
        """Run the first attempt in a process that is killed after so many deletes; return its exit status."""
        state = self.folder / "state.json"
        state.write_text(json.dumps({**dataclasses.asdict(self), "folder": str(self.folder)}))
        command = [sys.executable, "-m", "tests.s3_servers.purges", str(state), str(deleted)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "functions"), str(ROOT)))}
        return subprocess.run(command, env=env, check=False, cwd=ROOT).returncode


def main(state: Path, deleted: int) -> None:
    """Purge as the state says until this process kills itself."""
    given: dict[str, Any] = json.loads(state.read_text())
    purges = Purges(**{**given, "server": RealServer(**given["server"]), "folder": Path(given["folder"])})

    def watch(attempt: MemoryAttempt) -> None:
        if attempt.deleting and attempt.reported.files_deleted >= deleted:
            os.kill(os.getpid(), signal.SIGKILL)

    purges.attempt(batch=3, watch=watch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
