"""The forecast of a plan's execution: time at the store's delete rate, requests, cost.

It is made from the plan's counts and from `prices.json`. The cost of planning and of retries is not part of it.
"""

import functools
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from delegation.storage.deleter import DeletePolicy
from delegation.worksets.chunks import Phase, Total, add_totals
from delegation.worksets.engines.choice import EngineChoice
from delegation.worksets.index import Finding, PlanIndex
from polaris_common.errors import counted


class ForecastSettings(Protocol):
    """The operator's numbers that a forecast assumes.

    `store_keys_per_second` is the store's rate of deletes (S3: that of one prefix partition).
    """

    @property
    def delete(self) -> DeletePolicy: ...

    @property
    def store_keys_per_second(self) -> float: ...

    @property
    def inline_max_files(self) -> int: ...


class Prices(BaseModel):
    """`prices.json`: prices per request, hour or second, and the assumed size of a job run and of a function."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    as_of: str
    region: str
    currency: str
    s3_write_request: float
    s3_read_request: float
    emr_vcpu_hour: float
    emr_gb_hour: float
    lambda_gb_second: float
    emr_job_vcpu: float
    emr_job_gb: float
    emr_start_seconds: float
    lambda_gb: float


class Forecast(BaseModel):
    """The forecast of a plan's execution; bytes are as the table's metadata states them, times are in seconds."""

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
        """Return it as JSON without sample paths, to bound a task's record; `estimate.json` has them."""
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
    return Prices.model_validate_json(resources.files("delegation.worksets").joinpath("prices.json").read_bytes())


def forecast(
    indexes: Sequence[PlanIndex], findings: Sequence[Finding], settings: ForecastSettings, *, engine: EngineChoice
) -> Forecast:
    """Return how long the plan's deletes take with `engine` and what they cost."""
    listed = prices()
    chunks = [chunk for index in indexes for chunk in index.chunks if chunk.kind is not Phase.KEPT]
    files = sum(chunk.count for chunk in chunks)
    deletes = sum(math.ceil(chunk.count / settings.delete.batch) for chunk in chunks)
    # Each chunk is read once and marked once; a segment's index, list of marks and receipt are the rest.
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
    """Return the content of `estimate.json`, which is stored beside the plan."""
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
