"""Estimates a rewrite before it starts: what it reads and writes, how much storage is held twice, and what that costs.

The rates are assumed for Parquet on EMR Serverless; the receipt of a run states the actual use. The start of a session
is not part of a table's cost, because many tables share it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from delegation.removal.choice import Prices, prices
from delegation.rewrites.choose import PartitionsChoice, Work
from delegation.rewrites.files import TableFiles
from delegation.rewrites.manifests import ManifestsChoice, ManifestWork
from polaris_common.errors import counted

BYTES_PER_VCPU_SECOND: Final = 10_000_000
"""Compressed bytes that one vCPU reads, decodes, encodes and writes."""
SECONDS_PER_FILE: Final = 0.05
SECONDS_PER_GROUP: Final = 1.0
"""Planning a group and committing it."""
SECONDS_PER_TABLE: Final = 5.0
_READS_PER_FILE: Final = 3
_BYTES_PER_READ: Final = 8 * 1024 * 1024
_BYTES_PER_WRITE: Final = 32 * 1024 * 1024
HELD: Final = timedelta(days=5)
"""How long an expiry keeps the former files, unless the table sets another age."""
_MONTH: Final = timedelta(days=30)
_GIB: Final = 1024**3
_HOUR: Final = 3_600


class Use(NamedTuple):
    """The use of some work: vCPU seconds, requests, and money without the storage that is held twice."""

    vcpu_seconds: float
    reads: int
    writes: int
    cost: float


def use_of(work: Work, *, delete_bytes: int = 0, listed: Prices | None = None) -> Use:
    """Return the use of a compaction. `delete_bytes` is the size of one delete."""
    deletes = work.deletes * delete_bytes
    seconds = (work.bytes + deletes) / BYTES_PER_VCPU_SECOND
    seconds += (work.files + work.files_after + work.deletes) * SECONDS_PER_FILE + work.groups * SECONDS_PER_GROUP
    reads = (work.files + work.deletes) * _READS_PER_FILE + work.bytes // _BYTES_PER_READ
    writes = work.files_after + work.bytes // _BYTES_PER_WRITE
    return _use(seconds, reads, writes, listed or prices())


def use_of_manifests(work: ManifestWork, *, listed: Prices | None = None) -> Use:
    seconds = work.bytes / BYTES_PER_VCPU_SECOND + (work.manifests + work.manifests_after) * SECONDS_PER_FILE
    return _use(seconds + SECONDS_PER_GROUP, work.manifests, work.manifests_after, listed or prices())


def _use(seconds: float, reads: int, writes: int, listed: Prices) -> Use:
    hours = seconds / _HOUR
    memory = hours * listed.emr_job_gb / listed.emr_job_vcpu
    money = hours * listed.emr_vcpu_hour + memory * listed.emr_gb_hour
    return Use(seconds, reads, writes, money + reads * listed.s3_read_request + writes * listed.s3_write_request)


class RewriteEstimate(BaseModel):
    """What a rewrite would do and cost. `bytes_held_twice` are the former files, which expiry deletes later;
    `storage_cost` is their cost until then. `left` counts partitions or specs that are left, by reason."""

    model_config = ConfigDict(frozen=True)

    format: int = 1
    partitions: int = 0
    groups: int = 0
    files: int = 0
    files_after: int = 0
    deletes_folded: int = 0
    manifests: int = 0
    manifests_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_held_twice: int = 0
    vcpu_hours: float = 0.0
    requests: int = 0
    cost: float = 0.0
    storage_cost: float = 0.0
    gain: float = 0.0
    left: Mapping[str, int] = {}
    currency: str = ""
    prices_as_of: str = ""
    prices_region: str = ""

    @property
    def gain_per_cost(self) -> float:
        """Files or manifests removed plus deletes folded, for one unit of currency."""
        return self.gain / self.total_cost if self.total_cost else 0.0

    @property
    def total_cost(self) -> float:
        return self.cost + self.storage_cost

    def text(self) -> str:
        """Return the estimate as one readable line."""
        what = (
            f"{counted(self.files, 'file')} become {self.files_after:,}, "
            f"{counted(self.deletes_folded, 'delete')} applied"
            if self.files
            else f"{counted(self.manifests, 'manifest')} become {self.manifests_after:,}"
        )
        return (
            f"{what}; {self.bytes_read / _GIB:.2f} GiB read, {self.bytes_written / _GIB:.2f} GiB written, "
            f"{self.bytes_held_twice / _GIB:.2f} GiB stored twice until expiry; {self.vcpu_hours:.2f} vCPU-hours, "
            f"about {self.total_cost:.4f} {self.currency} ({self.prices_region} prices of {self.prices_as_of})"
        )


def cost_of(work: Work, files: TableFiles | None = None, *, held: timedelta = HELD) -> float:
    """Return the cost of a part of a table's work, with the storage that is held twice."""
    return use_of(work, delete_bytes=_delete_bytes(files)).cost + _storage(work.bytes, held, prices())


def cost_of_manifests(work: ManifestWork, *, held: timedelta = HELD) -> float:
    """Return the cost for the manifests of one spec, with the storage that is held twice."""
    return use_of_manifests(work).cost + _storage(work.bytes, held, prices())


def estimate(choice: PartitionsChoice, files: TableFiles, *, held: timedelta = HELD) -> RewriteEstimate:
    """Return what a compaction would do. `held` is how long an expiry keeps the former files."""
    listed, work, of_one = prices(), choice.work, _delete_bytes(files)
    use = use_of(work, delete_bytes=of_one, listed=listed)
    table = _use(SECONDS_PER_TABLE, len(files.manifests), 0, listed)
    return RewriteEstimate(
        partitions=len(choice.chosen),
        groups=work.groups,
        files=work.files,
        files_after=work.files_after,
        deletes_folded=work.deletes - work.deletes_after,
        bytes_read=work.bytes + work.deletes * of_one,
        bytes_written=work.bytes,
        bytes_held_twice=work.bytes,
        storage_cost=_storage(work.bytes, held, listed),
        gain=work.gain,
        left={str(why): count for why, count in choice.left.items()},
        **_money([use, table] if work.groups else [], listed),
    )


def estimate_manifests(choice: ManifestsChoice, *, held: timedelta = HELD) -> RewriteEstimate:
    listed, work = prices(), choice.work
    use = use_of_manifests(work, listed=listed)
    left: dict[str, int] = {}
    for why in choice.left.values():
        left[str(why)] = left.get(str(why), 0) + 1
    return RewriteEstimate(
        manifests=work.manifests,
        manifests_after=work.manifests_after,
        bytes_read=work.bytes,
        bytes_written=work.bytes,
        bytes_held_twice=work.bytes,
        storage_cost=_storage(work.bytes, held, listed),
        gain=work.gain,
        left=left,
        **_money([use, _use(SECONDS_PER_TABLE, 0, 0, listed)] if choice.chosen else [], listed),
    )


def _delete_bytes(files: TableFiles | None) -> int:
    return files.delete_bytes // files.delete_files if files is not None and files.delete_files else 0


def _storage(size: int, held: timedelta, listed: Prices) -> float:
    return size / _GIB * listed.s3_gb_month * (held / _MONTH)


def _money(uses: Sequence[Use], listed: Prices) -> dict[str, Any]:
    return {
        "vcpu_hours": sum(use.vcpu_seconds for use in uses) / _HOUR,
        "requests": sum(use.reads + use.writes for use in uses),
        "cost": sum(use.cost for use in uses),
        "currency": listed.currency,
        "prices_as_of": listed.as_of,
        "prices_region": listed.region,
    }
