"""`delegation estimate`: what the plan of a task costs, and the service in a month.

A month is a pure function of a workload and of prices. What one purge uses is the measured part of docs/costs.md; sizes
of logs and durations of short functions are assumed.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer
from pydantic import ValidationError
from rich.console import RenderableType

from delegation.cli.calls import Call, argument, command, defaulted, optional, switch
from delegation.cli.errors import CommandError, task_unknown
from delegation.cli.screens import LabelledLines, Rows, duration_text, size_text
from delegation.client.errors import NotFound
from delegation.metrics import METRICS as ALL_METRICS
from delegation.removal import choice
from delegation.removal.choice import Prices
from delegation.wire.responses import Estimate
from polaris_common.errors import counted

HOURS: Final = 730
"""Hours of a month in AWS' pricing calculator."""
MINUTES: Final = HOURS * 60
ZONES: Final = 2
ALARMS: Final = 28
"""Alarms of every deployment. The probe has one more, notifications three, the gateway two, a secret's rotation one."""
FRONT_ALARMS: Final = 3
"""Alarms of the load balancer of the private profile."""
_VALUES: Final[Mapping[str, int]] = {"operation": 1, "kind": 3, "code": 1}
"""Values of the dimensions while purges succeed; the kinds are the purge and the service's own two."""
METRICS: Final = sum(math.prod(_VALUES[name] for name in metric.by) for metric in ALL_METRICS.values())
"""CloudWatch counts each set of dimensions as a metric; each error code of a failure adds six."""
DASHBOARDS: Final = 2
ENDPOINTS: Final = 4
"""Interface endpoints of the private profile: secretsmanager, sqs, logs, execute-api."""
SECRETS: Final = 1
WRITE_UNITS: Final = 56
READ_CALLS: Final = {"inline": 17, "spark": 21}
"""DynamoDB calls of the background purge of a small table (docs/costs.md, "Whole tasks")."""
TRANSITIONS: Final = 9
"""States of an inline purge's execution, and its start; a Spark job has three more, and three for each heartbeat."""
HEARTBEAT_SECONDS: Final = 30
KEYS_PER_SECOND: Final = 3_500
FILES_PER_MANIFEST: Final = 5_000
FILES_PER_CHUNK: Final = 10_000
FILES_PER_DELETE: Final = 1_000
INVOCATIONS: Final = 11
"""Invocations of a background purge: three requests with the authorizer of each, the dispatcher, and four steps of its
execution.

The authorizer's answers are cached for up to five minutes, so callers with many tables have fewer.
"""
SHORT_GB_SECONDS: Final = 0.5
"""A short function's invocation: 512 MB for one second."""
POLLS: Final = 5 * 3 * MINUTES
"""Receives of the event source mapping of one queue: five pollers with a wait of 20 s."""
LOG_GB_PER_TASK: Final = 0.00003
LOG_GB_PER_MINUTE: Final = 0.000002
CALLS_PER_TASK: Final = 3
"""Requests to the API for one purge: the submission, and two for its status."""


class Architecture(StrEnum):
    """The processor of functions and Spark jobs (`delegation:architecture`)."""

    ARM64 = "arm64"
    X86_64 = "x86_64"


class MonthlyPrices(Prices):
    """All of `prices.json`: prices for a request, an hour, a month, a gigabyte."""

    lambda_request: float
    states_transition: float
    dynamodb_write_unit: float
    dynamodb_read_unit: float
    sqs_request: float
    api_request: float
    cloudwatch_metric_month: float
    cloudwatch_alarm_month: float
    cloudwatch_dashboard_month: float
    logs_gb: float
    kms_key_month: float
    secret_month: float
    vpc_endpoint_hour: float
    load_balancer_hour: float
    load_balancer_trust_store_hour: float
    waf_acl_month: float
    waf_rule_month: float
    lambda_gb_second_arm: float
    emr_vcpu_hour_arm: float
    emr_gb_hour_arm: float
    nat_gateway_hour: float
    kms_request: float
    xray_trace: float

    def of(self, processor: Architecture) -> "MonthlyPrices":
        if processor is Architecture.X86_64:
            return self
        return self.model_copy(
            update={
                "lambda_gb_second": self.lambda_gb_second_arm,
                "emr_vcpu_hour": self.emr_vcpu_hour_arm,
                "emr_gb_hour": self.emr_gb_hour_arm,
            }
        )


class NetworkChoice(StrEnum):
    """The two network profiles of docs/deployment.md."""

    PRIVATE = "private"
    REGIONAL = "regional"


class EngineName(StrEnum):
    INLINE = "inline"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Workload:
    """A month's work: how many tables are purged, with how many files each, by which engine."""

    tables: int
    files: int
    engine: EngineName = EngineName.INLINE
    network: NetworkChoice = NetworkChoice.PRIVATE
    processor: Architecture = Architecture.ARM64
    nat_gateways: int = 0


class Cost(NamedTuple):
    """One line of a month: the service, the item, its quantity, and its cost."""

    service: str
    what: str
    quantity: float
    cost: float


def monthly(work: Workload, prices: MonthlyPrices) -> list[Cost]:
    """Return the lines of a month: what every deployment costs, then what the purges add."""
    of_processor = prices.of(work.processor)
    return [*_standing(work, of_processor), *_purges(work, of_processor)]


def total(lines: list[Cost]) -> float:
    return sum(line.cost for line in lines)


def _standing(work: Workload, prices: MonthlyPrices) -> Iterator[Cost]:
    yield _line("CloudWatch", "custom metrics", METRICS, prices.cloudwatch_metric_month)
    alarms = ALARMS + (FRONT_ALARMS if work.network is NetworkChoice.PRIVATE else 0)
    yield _line("CloudWatch", "alarms", alarms, prices.cloudwatch_alarm_month)
    yield _line("CloudWatch", "dashboards", DASHBOARDS, prices.cloudwatch_dashboard_month)
    yield _line("KMS", "customer managed key", 1, prices.kms_key_month)
    yield _line("Secrets Manager", "secrets", SECRETS, prices.secret_month)
    yield _line("Lambda", "sweeper, GB-seconds", MINUTES * SHORT_GB_SECONDS, prices.lambda_gb_second)
    yield _line("DynamoDB", "sweeper, read units", MINUTES * 8, prices.dynamodb_read_unit)
    yield _line("X-Ray", "traces of the sweeper", MINUTES, prices.xray_trace)
    yield _line("SQS", "polls of the dispatch queue", POLLS, prices.sqs_request)
    if work.network is NetworkChoice.PRIVATE:
        hours = ENDPOINTS * ZONES * HOURS
        yield _line("VPC", "interface endpoints, hours in two zones", hours, prices.vpc_endpoint_hour)
        if work.nat_gateways:
            yield _line("VPC", "NAT gateways, hours", work.nat_gateways * HOURS, prices.nat_gateway_hour)
        yield _line("Load balancer", "hours", HOURS, prices.load_balancer_hour)
        yield _line("Load balancer", "trust store, hours", HOURS, prices.load_balancer_trust_store_hour)
    else:
        yield _line("WAF", "web ACL", 1, prices.waf_acl_month)
        yield _line("WAF", "rule", 1, prices.waf_rule_month)


def _purges(work: Workload, prices: MonthlyPrices) -> Iterator[Cost]:
    tables, spark = work.tables, work.engine is EngineName.SPARK
    seconds = work.files / KEYS_PER_SECOND + (prices.emr_start_seconds if spark else 1)
    heartbeats = math.ceil(seconds / HEARTBEAT_SECONDS) if spark else 0
    transitions = TRANSITIONS + (3 + 3 * heartbeats if spark else 0)
    manifests, chunks = _parts(work.files, FILES_PER_MANIFEST), _parts(work.files, FILES_PER_CHUNK)
    short = INVOCATIONS - 1 + heartbeats  # all but the run itself
    run = 0.0 if spark else seconds * prices.lambda_gb
    yield _line("API Gateway", "requests", tables * CALLS_PER_TASK, prices.api_request)
    yield _line("Lambda", "requests", tables * (short + 1), prices.lambda_request)
    yield _line("Lambda", "GB-seconds", tables * (short * SHORT_GB_SECONDS + run), prices.lambda_gb_second)
    yield _line("Step Functions", "state transitions", tables * transitions, prices.states_transition)
    yield _line("DynamoDB", "write units", tables * WRITE_UNITS, prices.dynamodb_write_unit)
    yield _line("DynamoDB", "read units", tables * READ_CALLS[work.engine], prices.dynamodb_read_unit)
    yield _line("SQS", "requests", tables * 3, prices.sqs_request)
    writes = _parts(work.files, FILES_PER_DELETE) + 2 * chunks + 3
    yield _line("S3", "DeleteObjects and PUT; DELETE of one key is free", tables * writes, prices.s3_write_request)
    yield _line("S3", "GET", tables * (manifests + chunks + 10), prices.s3_read_request)
    # With bucket keys S3 calls KMS far less often than once per object.
    yield _line("KMS", "requests, at most", tables * (3 * chunks + 13), prices.kms_request)
    yield _line("X-Ray", "traces", tables * (CALLS_PER_TASK + 1), prices.xray_trace)
    yield _line("CloudWatch", "logs, GB", tables * LOG_GB_PER_TASK + MINUTES * LOG_GB_PER_MINUTE, prices.logs_gb)
    if spark:
        hours = tables * seconds / 3_600
        yield _line("EMR Serverless", "vCPU-hours", hours * prices.emr_job_vcpu, prices.emr_vcpu_hour)
        yield _line("EMR Serverless", "GB-hours", hours * prices.emr_job_gb, prices.emr_gb_hour)


def _parts(files: int, size: int) -> int:
    return max(math.ceil(files / size), 1)


def _line(service: str, what: str, quantity: float, price: float) -> Cost:
    return Cost(service, what, quantity, quantity * price)


BUNDLED = Path(choice.__file__).parent / "prices.json"


def prices_of(path: Path | None) -> MonthlyPrices:
    """Return the prices of a file, by default those of this release. Raises CommandError (PRICE_LIST_REFUSED)."""
    try:
        return MonthlyPrices.model_validate(document_of(path or BUNDLED))
    except ValidationError as error:
        names = ", ".join(".".join(map(str, each["loc"])) for each in error.errors(include_input=False))
        raise CommandError(
            f"{path} lacks prices: {names}",
            "Copy the price file of this release, and change its prices.",
            code="PRICE_LIST_REFUSED",
        ) from None


def document_of(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Raises CommandError (PRICE_LIST_REFUSED)."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(
            f"{path} cannot be read: {type(error).__name__}", "Name a JSON file.", code="PRICE_LIST_REFUSED"
        ) from None
    if not isinstance(document, dict):
        raise CommandError(f"{path} is not a JSON object", "Name a price file.", code="PRICE_LIST_REFUSED")
    return document


def place_of(prices: Prices) -> dict[str, Any]:
    return {"prices_region": prices.region, "prices_as_of": prices.as_of, "currency": prices.currency}


def quantity_text(quantity: float) -> str:
    """Return a quantity without decimals, a small one with two significant digits, zero as nothing."""
    if not quantity:
        return ""
    return f"{quantity:,.0f}" if quantity >= 10 or quantity == int(quantity) else f"{quantity:.2g}"


def monthly_screens(work: Workload, prices: MonthlyPrices, lines: list[Cost]) -> Iterator[RenderableType]:
    table = Rows("service", "of", "in a month", prices.currency, right={"in a month", prices.currency})
    for line in [*lines, Cost("total", "", 0, total(lines))]:
        table.add(line.service, line.what, quantity_text(line.quantity), f"{line.cost:,.2f}")
    yield (
        f"A month in which {counted(work.tables, 'table')} of {counted(work.files, 'file')} each "
        f"{'is' if work.tables == 1 else 'are'} purged: {work.engine} engine, {work.network} network, "
        f"{work.processor}."
    )
    yield ""
    yield table
    yield f"Prices of {prices.region}, {prices.as_of}, before free tiers; data transfer and storage are not included."


@command()
def estimate_command(
    call: Call,
    task_id: str | None = argument("TASK_ID", "The task's id.", default=None),
    *,
    of_a_month: bool = switch("--monthly", "Show what the service costs in a month."),
    tables: int = defaulted("--tables", "With --monthly: purged tables per month.", 100, min=0),
    files: int = defaulted("--files", "With --monthly: files per table.", 10_000, min=0),
    engine: EngineName = defaulted("--engine", "With --monthly: the engine.", EngineName.INLINE),
    network: NetworkChoice = defaulted("--network", "With --monthly: the network profile.", NetworkChoice.PRIVATE),
    architecture: Architecture = defaulted(
        "--architecture", "With --monthly: the processor of functions and jobs.", Architecture.ARM64
    ),
    nat_gateways: int = defaulted(
        "--nat-gateways", "With --monthly: the NAT gateways of the private network.", 0, min=0
    ),
    prices: Path | None = optional("--prices", "With --monthly: a price file.", "FILE"),
) -> None:
    """Show what a task's plan deletes, how long it takes and what it costs.

    With --monthly, show what the service costs in a month.
    """
    if of_a_month == (task_id is not None):
        raise typer.BadParameter("give a task's id, or --monthly", param_hint="TASK_ID")
    if task_id is None:
        work = Workload(tables, files, engine, network, architecture, nat_gateways)
        known = prices_of(prices)
        lines = monthly(work, known)
        document = {"total": round(total(lines), 2), **place_of(known), "lines": [line._asdict() for line in lines]}
        call.output.result(document, monthly_screens(work, known, lines))
        return
    try:
        estimate = call.connection.operator_client().estimate(task_id)
    except NotFound as error:
        if error.error_code == "TASK_NOT_FOUND":
            raise task_unknown(task_id) from error
        raise
    call.output.result(estimate.model_dump(mode="json"), lambda: estimate_screen(estimate))


def estimate_screen(estimate: Estimate) -> LabelledLines:
    kinds = ", ".join(f"{total.files:,} {kind}" for kind, total in estimate.by_type.items())
    kept = f"; {estimate.files_kept:,} are kept" if estimate.files_kept else ""
    rows = {
        "task": f"{estimate.task_id}, {estimate.task_status}",
        "files": f"{estimate.files:,}, {size_text(estimate.bytes)}{kept}",
        "of these": kinds,
        "time": f"about {duration_text(estimate.seconds)} with the {estimate.engine} engine, "
        f"at {estimate.keys_per_second:,.0f} keys a second",
        "left": f"{counted(estimate.files_left, 'file')}, about {duration_text(estimate.seconds_left)}",
        "cost": f"about {estimate.cost:.2f} {estimate.currency} "
        f"(prices of {estimate.prices_region}, {estimate.prices_as_of})",
    }
    return LabelledLines([(name, value) for name, value in rows.items() if value])
