"""The choice of the engine that plans and deletes, and the forecast of a plan's execution: time at the store's delete
rate, requests and cost. The forecast uses the plan's counts and `prices.json`. It excludes the cost of planning and of
retries."""

import functools
import heapq
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from delegation.errors import RunHandedOver
from delegation.removal.chunks import Phase, Total, add_totals
from delegation.removal.index import RUN_RECORDS, Finding, PlanIndex
from delegation.storage.deleter import DeletePolicy
from polaris_common.errors import counted

if TYPE_CHECKING:
    from delegation.iceberg.avro.manifests import ManifestFile

EngineChoice = Literal["inline", "spark"]

INLINE_MAX_FILES: Final = 1_000_000
"""The maximum number of files deleted inline, unless an operator sets another. Defined only here.

S3 deletes 3,500 keys a second of one prefix, for either engine. This number takes five of a Lambda's fifteen minutes,
or ten at half that rate. Up to here the inline engine takes less CPU, memory and time than Spark, and its memory does
not grow (docs/costs.md, "Inline or Spark").
"""
LONGEST_PLANNING_SECONDS: Final = 300.0
"""The longest planning time in a function. An attempt that is handed over before its plan is made starts again."""
MOST_READ_AHEAD_BYTES: Final = 768 * 1024 * 1024
"""The maximum size of manifests that a function holds in memory at a time."""
READ_SECONDS: Final = 0.05
"""The time of one read from the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalSettings:
    """The operator's numbers; each operation adds its own.

    `vended` is false with the operator's credentials, which reach every file. Spark deletes more than
    `inline_max_files`. It also plans what would take a function more than `longest_planning_seconds` or more than
    `most_read_ahead_bytes` of memory at a time. A read takes `read_seconds`. If the table is loaded and compared before
    each lot, a lot has at least `lot_paths` files, and an attempt ends after `most_looks` lots in a row that did not
    start. `store_keys_per_second` is the delete rate assumed by forecasts (S3: that of one prefix partition).
    """

    chunk_paths: int = 10_000
    lot_paths: int = 1_000
    most_looks: int = 10
    run_records: int = RUN_RECORDS
    read_threads: int = 8
    read_seconds: float = READ_SECONDS
    longest_planning_seconds: float = LONGEST_PLANNING_SECONDS
    most_read_ahead_bytes: int = MOST_READ_AHEAD_BYTES
    max_file_bytes: int = 256 * 1024 * 1024
    vended: bool = True
    inline_max_files: int = INLINE_MAX_FILES
    has_spark: bool = True
    store_keys_per_second: float = 3_500.0
    delete: DeletePolicy = field(default_factory=DeletePolicy)

    def engine_for(self, files: int, *, needs_spark: bool = False) -> EngineChoice:
        """Return the engine for this many files. Without Spark they are deleted inline, in as many attempts as needed.
        With `needs_spark` the number does not matter."""
        return "spark" if self.has_spark and (needs_spark or files > self.inline_max_files) else "inline"


class HandedToSpark(RunHandedOver):
    """One process would take too long for the remaining files. The next attempt deletes them with Spark."""

    def __init__(self, task_id: str, files: int, *, does: str = "deletes the remaining files") -> None:
        super().__init__(task_id, f"the next attempt uses Spark and {does} ({counted(files, 'file')})")


# CPU time on one core: sorting and writing a path took 8 µs (`make bench BENCH=plan`: 86,000 entries a second with
# decoding), decoding compressed manifests 27 MB/s with 12 columns and 15 MB/s with 500. A busy Lambda may be slower.
SECONDS_PER_FILE: Final = 0.000_02
BYTES_PER_SECOND: Final = 15_000_000
# Assumed for a manifest without counts, which are optional in version 1 (Iceberg Table Spec, Manifest Lists).
UNCOUNTED_ENTRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Size:
    """The number of `files` that manifests name, and what must be read for them: `objects` with a total of `bytes`.
    `held` are the bytes in memory at a time."""

    files: int
    objects: int = 0
    bytes: int = 0
    held: int = 0

    @classmethod
    def of(cls, manifests: "Iterable[ManifestFile]", lists: int, *, threads: int) -> "Size":
        """Return the size of a table with these manifests and lists, if `threads` manifests are read ahead."""
        listed = list(manifests)
        lengths = [max(0, manifest.manifest_length or 0) for manifest in listed]
        return cls(
            files=sum(UNCOUNTED_ENTRIES if manifest.entries is None else manifest.entries for manifest in listed),
            objects=len(listed) + lists,
            bytes=sum(lengths),
            held=sum(heapq.nlargest(threads, lengths)),
        )

    def planning_seconds(self, settings: RemovalSettings) -> float:
        """Return the planning time of one process: waits for objects, then decoding, sorting and writing."""
        waits = self.objects * settings.read_seconds / settings.read_threads
        return waits + self.bytes / BYTES_PER_SECOND + self.files * SECONDS_PER_FILE

    def seconds(self, settings: RemovalSettings) -> float:
        """Return how long a process plans and deletes."""
        return self.planning_seconds(settings) + self.files / settings.store_keys_per_second

    def is_planned_in_a_function(self, settings: RemovalSettings) -> bool:
        """Return whether a Lambda function has the time and the memory for the planning."""
        is_short = self.planning_seconds(settings) <= settings.longest_planning_seconds
        return is_short and self.held <= settings.most_read_ahead_bytes

    def fits_a_function(self, settings: RemovalSettings) -> bool:
        """Return whether a Lambda function can plan this, and delete it without a hand-over."""
        return self.files <= settings.inline_max_files and self.is_planned_in_a_function(settings)


class Prices(BaseModel):
    """`prices.json`: prices per request, hour or second, and the assumed sizes of a job run and of a function."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    as_of: str
    region: str
    currency: str
    s3_write_request: float
    s3_read_request: float
    s3_gb_month: float
    emr_vcpu_hour: float
    emr_gb_hour: float
    lambda_gb_second: float
    emr_job_vcpu: float
    emr_job_gb: float
    emr_start_seconds: float
    lambda_gb: float


class Forecast(BaseModel):
    """The forecast of a plan's execution. Bytes are those in the table's metadata, times are in seconds."""

    model_config = ConfigDict(frozen=True)

    format: int = 1
    engine: EngineChoice
    files: int
    bytes: int
    by_type: Mapping[str, Total]
    files_kept: int
    findings: tuple[Finding, ...]
    keys_per_second: float
    seconds: float
    delete_requests: int
    other_requests: int
    emr_vcpu_hours: float
    emr_gb_hours: float
    lambda_gb_seconds: float
    cost: float
    currency: str
    prices_as_of: str
    prices_region: str

    def without_samples(self) -> str:
        """Return it as JSON without sample paths, to limit the size of a task's record; `estimate.json` has them."""
        findings = tuple(finding.model_copy(update={"sample": ()}) for finding in self.findings)
        return self.model_copy(update={"findings": findings}).model_dump_json()

    def text(self) -> str:
        """Return the forecast as one readable line."""
        return (
            f"about {_duration(self.seconds)} and {_money(self.cost)} {self.currency} "
            f"({counted(self.delete_requests + self.other_requests, 'request')}, "
            f"{self.emr_vcpu_hours:.1f} EMR vCPU-hours; "
            f"{self.prices_region} prices of {self.prices_as_of})"
        )


@functools.cache
def prices() -> Prices:
    """Read `prices.json`."""
    return Prices.model_validate_json(resources.files("delegation.removal").joinpath("prices.json").read_bytes())


def forecast(
    indexes: Sequence[PlanIndex], findings: Sequence[Finding], settings: RemovalSettings, *, engine: EngineChoice
) -> Forecast:
    """Return the time and cost of the plan's deletes with `engine`."""
    listed = prices()
    chunks = [chunk for index in indexes for chunk in index.chunks if chunk.kind is not Phase.KEPT]
    files = sum(chunk.count for chunk in chunks)
    deletes = sum(math.ceil(chunk.count / settings.delete.batch) for chunk in chunks)
    # Each chunk is read once and marked once. The rest are a segment's index, list of marks and receipt.
    reads, writes = len(chunks) + 3 * len(indexes), len(chunks) + 2 * len(indexes)
    deleting = files / settings.store_keys_per_second
    used = _spark_use(deleting, listed) if engine == "spark" else _lambda_use(deleting, listed)
    requests = (deletes + writes) * listed.s3_write_request + reads * listed.s3_read_request
    return Forecast(
        engine=engine,
        files=files,
        bytes=sum(chunk.bytes for chunk in chunks),
        by_type=by_type(indexes),
        files_kept=sum(index.files_kept for index in indexes),
        findings=tuple(findings),
        keys_per_second=settings.store_keys_per_second,
        seconds=round(used.seconds, 1),
        delete_requests=deletes,
        other_requests=reads + writes,
        emr_vcpu_hours=round(used.vcpu_hours, 3),
        emr_gb_hours=round(used.gb_hours, 3),
        lambda_gb_seconds=round(used.lambda_gb_seconds, 1),
        cost=round(requests + used.cost, 4),
        currency=listed.currency,
        prices_as_of=listed.as_of,
        prices_region=listed.region,
    )


class _EngineUse(NamedTuple):
    seconds: float
    cost: float
    vcpu_hours: float = 0.0
    gb_hours: float = 0.0
    lambda_gb_seconds: float = 0.0


def _spark_use(deleting: float, listed: Prices) -> _EngineUse:
    seconds = deleting + listed.emr_start_seconds
    hours = seconds / 3_600
    vcpu_hours, gb_hours = hours * listed.emr_job_vcpu, hours * listed.emr_job_gb
    return _EngineUse(seconds, vcpu_hours * listed.emr_vcpu_hour + gb_hours * listed.emr_gb_hour, vcpu_hours, gb_hours)


def _lambda_use(seconds: float, listed: Prices) -> _EngineUse:
    gb_seconds = seconds * listed.lambda_gb
    return _EngineUse(seconds, gb_seconds * listed.lambda_gb_second, lambda_gb_seconds=gb_seconds)


def document(stored: Forecast) -> bytes:
    """Return the content of `estimate.json`, stored beside the plan."""
    return (json.dumps(stored.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n").encode()


def _money(amount: float) -> str:
    return "less than 0.01" if amount < 0.01 else f"{amount:.2f}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def by_type(indexes: Sequence[PlanIndex]) -> dict[str, Total]:
    """Return the totals by file type over all segments."""
    totals: dict[str, Total] = {}
    for index in indexes:
        add_totals(totals, index.counts)
    return dict(sorted(totals.items()))
