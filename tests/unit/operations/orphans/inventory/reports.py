"""Writes S3 Inventory reports of a store in memory, as S3 does (Amazon S3 User Guide), and as it never would."""

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

from delegation.operations.orphans.context import OrphanContext, OrphanResult
from delegation.operations.orphans.phases import remove_orphan_files
from delegation.storage.memory import MemoryObjectStore
from delegation.worksets.attempt import PlanHead
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

COLUMNS = ("Bucket", "Key", "Size", "LastModifiedDate", "ETag", "StorageClass")
VERSIONS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag")
PLACE = "s3://reports/lake/"
_FOLDER = "lake/daily"

Row = Mapping[str, str]


def row(key: str, data: bytes, modified: int, **more: str) -> Row:
    """Return the row of an object."""
    return {
        "Bucket": "lake",
        "Key": quote_plus(key, safe="/"),
        "VersionId": "v",
        "IsLatest": "true",
        "IsDeleteMarker": "false",
        "Size": str(len(data)),
        "LastModifiedDate": datetime.fromtimestamp(modified, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "ETag": md5_of(data),
        "StorageClass": "STANDARD",
        **more,
    }


def packed(rows: Sequence[Row], columns: Sequence[str]) -> bytes:
    """Return rows as a file of a report."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([[one[name] for name in columns] for one in rows])
    return gzip.compress(out.getvalue().encode())


def md5_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def manifest_text(files: Sequence[Mapping[str, Any]], at_ms: int, /, **more: Any) -> bytes:
    """Return a manifest as S3 writes it."""
    return json.dumps(
        {
            "sourceBucket": "lake",
            "destinationBucket": "arn:aws:s3:::reports",
            "version": "2016-11-30",
            "creationTimestamp": str(at_ms),
            "fileFormat": "CSV",
            "fileSchema": ", ".join(COLUMNS),
            "files": list(files),
            **more,
        }
    ).encode()


@dataclass
class Depot(SweptTables):
    """A beach whose bucket S3 Inventory lists, in files of `per_file` rows, the last keys first.

    `rows` changes the rows, `manifest` the manifest and `files` the files after their MD5s were taken.
    """

    per_file: int = 4
    columns: Sequence[str] = COLUMNS
    rows: Callable[[list[Row]], list[Row]] = lambda rows: rows
    manifest: dict[str, Any] = field(default_factory=dict)
    files: Callable[[dict[str, bytes]], None] = lambda _files: None

    def report(self, *, prefix: str = "", late_ms: int = 0) -> str:
        """Write a report of what is in the bucket now, and return its manifest's URI."""
        present = sorted((key for bucket, key in self.lake.objects if bucket == "lake"), reverse=True)
        store = self.stored()
        rows = self.rows(
            [
                {**row(key, b"", modified, Size=str(size)), "ETag": etag.strip('"')}
                for key in present
                if key.startswith(prefix)
                for size, etag, modified in [_listed(store, key)]
            ]
        )
        at = self.lake.now_ms + late_ms
        name = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H-%MZ")
        files = {
            f"{_FOLDER}/data/{at}-{number:03d}.csv.gz": packed(rows[number : number + self.per_file], self.columns)
            for number in range(0, max(1, len(rows)), self.per_file)
        }
        named = [{"key": key, "size": len(data), "MD5checksum": md5_of(data)} for key, data in files.items()]
        manifest = manifest_text(named, at, **{"fileSchema": ", ".join(self.columns), **self.manifest})
        self.files(files)
        for key, data in files.items():
            self.lake.objects["reports", key] = data
        return self.write_manifest(f"{_FOLDER}/{name}", manifest)

    def write_manifest(self, folder: str, data: bytes) -> str:
        self.lake.objects["reports", f"{folder}/manifest.json"] = data
        self.lake.objects["reports", f"{folder}/manifest.checksum"] = md5_of(data).encode()
        return f"s3://reports/{folder}/manifest.json"

    def stored(self) -> MemoryObjectStore:
        store = MemoryObjectStore(clock=lambda: self.lake.now_ms / 1000)
        store.objects, store.modified = self.lake.objects, self.lake.modified
        return store

    def context(self, table: StoryTable, **more: Any) -> OrphanContext:
        from dataclasses import replace

        ctx = super().context(table, **more)
        return replace(ctx, reports=self.store)

    def remove(self, table: StoryTable, report: str, **more: Any) -> OrphanResult:
        """Remove what a report lists with a task of its own, in one attempt."""
        self.head = PlanHead()
        ctx = self.context(table, task_id=f"task{self.attempts}", inventory=report, inventories=(PLACE,), **more)
        return remove_orphan_files(ctx)

    def removed(self, before: set[str]) -> set[str]:
        return before - self.lake.uris()


def _listed(store: MemoryObjectStore, key: str) -> tuple[int, str, int]:
    [one] = [one for one in store.page("lake", key).objects if one.key == key]
    return one.size, one.etag, one.modified
