"""How large a purge is by what manifest lists state, and how long one process takes for it."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delegation.iceberg.avro.manifests import ManifestFile
from delegation.operations.purge.settings import PurgeSettings

# On one core, by CPU time: sorting and writing a path took 8 µs (`make bench BENCH=plan`: 86,000 entries a second with
# decoding), decoding compressed manifests 27 MB/s with 12 columns and 15 MB/s with 500. A busy Lambda may be slower.
SECONDS_PER_FILE: Final = 0.000_02
BYTES_PER_SECOND: Final = 15_000_000
# Assumed for a manifest without counts, which are optional in version 1 (Iceberg Table Spec, Manifest Lists).
UNCOUNTED_ENTRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Size:
    """The `files` to delete, and what has to be read to plan that: `objects` of together so many `bytes`.

    `held` are the bytes of the objects that are in memory at a time.
    """

    files: int
    objects: int = 0
    bytes: int = 0
    held: int = 0

    @classmethod
    def of(cls, manifests: Iterable[ManifestFile], lists: int, *, threads: int) -> "Size":
        """Return the size of a table with these manifests and so many lists, if `threads` manifests are read ahead."""
        found = list(manifests)
        lengths = [one.manifest_length or 0 for one in found]
        return cls(
            files=sum(UNCOUNTED_ENTRIES if one.entries is None else one.entries for one in found),
            objects=len(found) + lists,
            bytes=sum(lengths),
            held=sum(heapq.nlargest(threads, lengths)),
        )

    def planning_seconds(self, settings: PurgeSettings) -> float:
        """Return how long a process plans: the waits for objects, then decoding, sorting and writing."""
        waits = self.objects * settings.read_seconds / settings.read_threads
        return waits + self.bytes / BYTES_PER_SECOND + self.files * SECONDS_PER_FILE

    def seconds(self, settings: PurgeSettings) -> float:
        """Return how long a process plans and deletes."""
        return self.planning_seconds(settings) + self.files / settings.store_keys_per_second

    def fits_a_function(self, settings: PurgeSettings) -> bool:
        """Return whether a Lambda function can purge so much: its deletes may be handed over, its planning may not."""
        return (
            self.files <= settings.inline_max_files
            and self.planning_seconds(settings) <= settings.longest_planning_seconds
            and self.held <= settings.most_read_ahead_bytes
        )
