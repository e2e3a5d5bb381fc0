"""How much work a table is by what manifest lists state, and how long one process takes for it."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from delegation.iceberg.avro.manifests import ManifestFile

# On one core, by CPU time: sorting and writing a path took 8 µs (`make bench BENCH=plan`: 86,000 entries a second with
# decoding), decoding compressed manifests 27 MB/s with 12 columns and 15 MB/s with 500. A busy Lambda may be slower.
SECONDS_PER_FILE: Final = 0.000_02
BYTES_PER_SECOND: Final = 15_000_000
# Assumed for a manifest without counts, which are optional in version 1 (Iceberg Table Spec, Manifest Lists).
UNCOUNTED_ENTRIES: Final = 100


class PlanningLimits(Protocol):
    """What one process reads at a time, and the most that a function plans; see the constants."""

    @property
    def read_threads(self) -> int: ...

    @property
    def read_seconds(self) -> float: ...

    @property
    def longest_planning_seconds(self) -> float: ...

    @property
    def most_read_ahead_bytes(self) -> int: ...


class InlineLimits(PlanningLimits, Protocol):
    """The most that a function does; `store_keys_per_second` is the rate of deletes."""

    @property
    def inline_max_files(self) -> int: ...

    @property
    def store_keys_per_second(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Size:
    """The `files` that manifests name, and what has to be read for them: `objects` of together so many `bytes`.

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
        lengths = [max(0, one.manifest_length or 0) for one in found]
        return cls(
            files=sum(UNCOUNTED_ENTRIES if one.entries is None else one.entries for one in found),
            objects=len(found) + lists,
            bytes=sum(lengths),
            held=sum(heapq.nlargest(threads, lengths)),
        )

    def planning_seconds(self, settings: PlanningLimits) -> float:
        """Return how long a process plans: the waits for objects, then decoding, sorting and writing."""
        waits = self.objects * settings.read_seconds / settings.read_threads
        return waits + self.bytes / BYTES_PER_SECOND + self.files * SECONDS_PER_FILE

    def seconds(self, settings: InlineLimits) -> float:
        """Return how long a process plans and deletes."""
        return self.planning_seconds(settings) + self.files / settings.store_keys_per_second

    def is_planned_in_a_function(self, settings: PlanningLimits) -> bool:
        """Return whether a Lambda function has the time and the memory to plan so much."""
        is_short = self.planning_seconds(settings) <= settings.longest_planning_seconds
        return is_short and self.held <= settings.most_read_ahead_bytes

    def fits_a_function(self, settings: InlineLimits) -> bool:
        """Return whether a Lambda function can plan so much, and delete it without handing it over."""
        return self.files <= settings.inline_max_files and self.is_planned_in_a_function(settings)
