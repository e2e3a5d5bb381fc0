"""Which partitions a compaction rewrites. Pure functions of their files.

Iceberg's planner decides again when it runs (BinPackRewriteFilePlanner and SizeBasedFileRewritePlanner of 1.12), so the
same files are candidates here, in the same groups. Of the partitions that it would rewrite, those without a gain are
left: two files of seven tenths of the target size would become two such files again, at every run. The gain is counted
as files removed and deletes folded. Each rewrite lowers the sum of both, so every sequence of rewrites ends. A delete
counts once for each data file that it applies to, because readers open it for each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Self

from delegation.iceberg.avro.entries import PartitionValues
from delegation.rewrites.terms import CompactionTerms

TARGET_PROPERTY: Final = "write.target-file-size-bytes"
DEFAULT_TARGET: Final = 512 * 1024 * 1024
_SMALL, _LARGE = 0.75, 1.8
DELETE_RATIO: Final = 0.3
"""A data file with this share of deleted rows is rewritten, whatever its size."""
GROUP_BYTES: Final = 100 * 1024**3
MOST_PARTITIONS: Final = 1_000
"""Partitions that one run rewrites, because their filter is a part of its plan. The next run takes others."""


class DataFile(NamedTuple):
    """A data file: the deletes that apply to it, and the rows deleted by deletes of this file alone."""

    size: int
    records: int
    deletes: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Iceberg's thresholds. A file is rewritten below `least` or above `most` bytes, or with at least `delete_files`
    deletes."""

    target: int
    least: int
    most: int
    min_input_files: int
    delete_files: int | None = None
    delete_ratio: float = DELETE_RATIO
    group_bytes: int = GROUP_BYTES

    @classmethod
    def of(cls, terms: CompactionTerms, properties: Mapping[str, str]) -> Self:
        """Return the thresholds for a table with these properties. An unreadable size becomes Iceberg's default."""
        text = properties.get(TARGET_PROPERTY, "")
        own = int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 19 else DEFAULT_TARGET
        target = terms.target_file_size_bytes or own or DEFAULT_TARGET
        return cls(
            target, int(target * _SMALL), int(target * _LARGE), terms.min_input_files, terms.delete_file_threshold
        )

    def has_enough_deletes(self, file: DataFile) -> bool:
        if self.delete_files is not None and file.deletes >= self.delete_files:
            return True
        return file.records > 0 and min(file.deleted, file.records) / file.records >= self.delete_ratio

    def is_candidate(self, file: DataFile) -> bool:
        return not self.least <= file.size <= self.most or self.has_enough_deletes(file)

    def is_rewritten(self, group: Sequence[DataFile]) -> bool:
        """Return whether the planner rewrites a group of candidates."""
        size = sum(file.size for file in group)
        if len(group) > 1 and (len(group) >= self.min_input_files or size > self.target):
            return True
        return size > self.most or any(map(self.has_enough_deletes, group))

    def files_after(self, size: int) -> int:
        """Return the number of files that a group becomes."""
        if size < self.target:
            return 1
        less, rest = divmod(size, self.target)
        if not rest:
            return less
        largest = int(self.target + (self.most - self.target) * 0.5)
        is_spread = rest <= self.least and size // less < min(1.1 * self.target, float(largest))
        return less if is_spread else less + 1

    def groups(self, candidates: Iterable[DataFile]) -> Iterator[list[DataFile]]:
        """Yield the groups that the planner rewrites. It fills one after the other, in scan order."""
        group: list[DataFile] = []
        size = 0
        for file in candidates:
            if group and size + file.size > self.group_bytes:
                if self.is_rewritten(group):
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.size
        if group and self.is_rewritten(group):
            yield group


class Partition(NamedTuple):
    """A partition of the table's current spec."""

    spec_id: int
    values: PartitionValues


@dataclass(slots=True)
class PartitionFiles:
    """The files of one partition. `candidates` are those that the planner selects. `newest_ms` is the time of the
    newest commit that wrote or removed a file, None if its snapshot is gone. `lasting` counts position deletes that
    apply to new files too, because the current snapshot added them. `former` files are of former specs; Iceberg
    rewrites them together with the partition whose values are all null."""

    partition: Partition
    files: int = 0
    bytes: int = 0
    candidates: list[DataFile] = field(default_factory=list)
    newest_ms: int | None = None
    lasting: int = 0
    former: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What a rewrite reads, writes and gains. `deletes` counts a delete once for each file that it applies to."""

    files: int = 0
    bytes: int = 0
    files_after: int = 0
    deletes: int = 0
    deletes_after: int = 0
    groups: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.files + other.files,
            self.bytes + other.bytes,
            self.files_after + other.files_after,
            self.deletes + other.deletes,
            self.deletes_after + other.deletes_after,
            self.groups + other.groups,
        )

    @property
    def gain(self) -> int:
        """Files removed plus deletes folded."""
        return self.files - self.files_after + self.deletes - self.deletes_after


class Left(StrEnum):
    """Why a partition that Iceberg's planner would rewrite is left alone."""

    HOT = "newest commit younger than cold-after"
    NO_GAIN = "neither fewer files nor fewer deletes after a rewrite"
    BENEFIT = "fewer files removed per unit of currency than min-benefit"
    NO_FILTER = "no filter selects exactly one partition"
    NEXT_RUN = "more partitions than one run rewrites"


@dataclass(frozen=True, slots=True)
class ChosenPartition:
    partition: Partition
    work: Work
    has_former: bool = False


@dataclass(frozen=True, slots=True)
class PartitionsChoice:
    """The chosen partitions, the highest gain for its cost first, and the number of others by reason. `is_whole` if the
    planner would find the same without a filter."""

    chosen: tuple[ChosenPartition, ...] = ()
    left: Mapping[Left, int] = field(default_factory=dict)
    is_whole: bool = True

    @property
    def work(self) -> Work:
        return sum((partition.work for partition in self.chosen), Work())


def work_of(files: PartitionFiles, thresholds: Thresholds, *, partitions: int = 1) -> Work:
    """Return what Iceberg's planner would do in a partition. Files of former specs are written into the table's
    `partitions`, at least one file into each."""
    total = Work()
    for group in thresholds.groups(files.candidates):
        size = sum(file.size for file in group)
        after = thresholds.files_after(size)
        if files.former:
            after = max(after, partitions)
        deletes = sum(file.deletes for file in group)
        total += Work(len(group), size, after, deletes, after * files.lasting, 1)
    return total


def choose(
    partitions: Iterable[PartitionFiles],
    thresholds: Thresholds,
    *,
    cold_before_ms: int,
    cost: Callable[[Work], float],
    min_benefit: float = 0.0,
    has_filter: Callable[[Partition], bool] = lambda _partition: True,
    most: int = MOST_PARTITIONS,
) -> PartitionsChoice:
    """Return what is rewritten. `cost` returns the price of a partition's work, `has_filter` whether an expression
    selects exactly that partition. A partition with a commit at or after `cold_before_ms` is left to its writers."""
    listed = list(partitions)
    left: dict[Left, int] = {}
    chosen: list[ChosenPartition] = []
    for files in listed:
        work = work_of(files, thresholds, partitions=len(listed))
        if not work.groups:
            continue
        why = _why_left(files, work, cold_before_ms, cost(work) * min_benefit)
        if why is not None:
            left[why] = left.get(why, 0) + 1
        else:
            chosen.append(ChosenPartition(files.partition, work, has_former=files.former > 0))
    # Without a filter the planner would also rewrite the partitions that are left.
    if left or len(chosen) > most:
        unselected = [choice for choice in chosen if choice.has_former or not has_filter(choice.partition)]
        if unselected:
            left[Left.NO_FILTER] = len(unselected)
            chosen = [choice for choice in chosen if not choice.has_former and has_filter(choice.partition)]
    chosen.sort(key=lambda choice: -choice.work.gain / max(cost(choice.work), _LEAST_COST))
    if len(chosen) > most:
        left[Left.NEXT_RUN] = len(chosen) - most
        chosen = chosen[:most]
    return PartitionsChoice(tuple(chosen), left, is_whole=not left)


_LEAST_COST: Final = 1e-12


def _why_left(files: PartitionFiles, work: Work, cold_before_ms: int, least_gain: float) -> Left | None:
    if files.newest_ms is not None and files.newest_ms >= cold_before_ms:
        return Left.HOT
    if work.gain <= 0:
        return Left.NO_GAIN
    return Left.BENEFIT if work.gain < least_gain else None
