"""A table of many snapshots, each of which replaced all files of the one before: metadata and manifests."""

import json
from typing import Any

from tests.bench.loads.big_table import BUCKET, TABLE, BigTable
from tests.unit.iceberg.manifest_files import LISTED, list_schema, written

HOUR_MS = 3_600_000
_FIRST_MS = 1_763_700_000_000


class OverwrittenTable(BigTable):
    """Snapshot n reads manifest n alone: an expiry that keeps the last one deletes all files of the others."""

    @property
    def last_ms(self) -> int:
        """When the last snapshot was made."""
        return _FIRST_MS + (self.manifests - 1) * HOUR_MS

    @property
    def kept(self) -> int:
        """The number of objects that the last snapshot needs, without metadata.json: data, a manifest and a list."""
        return self.entries // self.manifests + 2

    def write(self) -> "OverwrittenTable":
        """Write the objects; the same table has the same bytes."""
        super().write()
        folder = self.folder / TABLE / "metadata"
        (folder / "snap-1.avro").unlink()
        each = self.entries // self.manifests
        counts = {"added_files_count": each, "existing_files_count": 0, "deleted_files_count": 0}
        for number in range(self.manifests):
            name = f"{number:05d}-m0.avro"
            length = (folder / name).stat().st_size
            entry = {
                "manifest_path": f"s3://{BUCKET}/{TABLE}/metadata/{name}",
                "manifest_length": length,
                "partition_spec_id": 0,
                "content": 0,
                "partitions": None,
                "sequence_number": number + 1,
                "min_sequence_number": number + 1,
                "added_snapshot_id": number + 1,
            }
            (folder / f"snap-{number + 1}.avro").write_bytes(
                written(list_schema(2), [LISTED | entry | counts], "deflate")
            )
        path = self.folder / self.metadata_key
        path.write_text(json.dumps(self._history(json.loads(path.read_text()))))
        return self

    def _history(self, metadata: dict[str, Any]) -> dict[str, Any]:
        snapshots = []
        summary = {"operation": "overwrite", "total-records": "0", "total-data-files": str(self.kept - 2)}
        for number in range(1, self.manifests + 1):
            snapshot = {
                "snapshot-id": number,
                "sequence-number": number,
                "timestamp-ms": _FIRST_MS + (number - 1) * HOUR_MS,
                "schema-id": 0,
                "summary": summary,
                "manifest-list": f"s3://{BUCKET}/{TABLE}/metadata/snap-{number}.avro",
            }
            snapshots.append(snapshot | ({"parent-snapshot-id": number - 1} if number > 1 else {}))
        return metadata | {
            "last-sequence-number": self.manifests,
            "last-updated-ms": self.last_ms,
            "current-snapshot-id": self.manifests,
            "refs": {"main": {"snapshot-id": self.manifests, "type": "branch"}},
            "snapshots": snapshots,
            "snapshot-log": [
                {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in snapshots
            ],
        }
