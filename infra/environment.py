"""The one table of Lambda functions, and of the variables each of them and the Spark job get.

CDK and the local stack read it alike; a test compares the synthesised template with it. Nothing here needs Node,
AWS or the CDK: names and addresses come in as `Resources`, plain text or CDK tokens.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
"""The repository; cdk.json, functions/ and spark/ stand in it."""
PROPERTIES_KEY: Final = "delegation:properties"
SERVICE_NAME: Final = "polaris-delegation"
METRICS_NAMESPACE: Final = "PolarisDelegation"
"""Powertools' metrics stand in this namespace, with the dimension `service` = SERVICE_NAME."""
DISPATCH_FAILED_METRIC: Final = "DispatchFailed"
"""Counted by the sweeper when it gives a task up with DISPATCH_FAILED (DESIGN §4); an alarm watches it."""

_POLARIS: Final = ("realm", "polaris_url", "polaris_secret_arn", "polaris_scope", "polaris_token_url")
_TASKS: Final = ("tasks_table", "properties")
_KINDS: Final = (*_TASKS, "behaviors")
_PURGE: Final = (*_TASKS, *_POLARIS, "plan_bucket")


@dataclass(frozen=True, slots=True)
class Function:
    """One Lambda function: what runs, for how long, with which resources' variables.

    `variables` are names of fields of `Resources`. `max_attempts` is how often Lambda repeats an asynchronous call that
    failed; `reserved_concurrency` caps the copies that run at once, None for the account's pool.
    """

    name: str
    description: str
    timeout_seconds: int
    variables: tuple[str, ...]
    memory_mb: int = 512
    reserved_concurrency: int | None = None

    @property
    def module(self) -> str:
        """The module whose attribute `handler(event, context)` is the entry point."""
        return f"delegation.handlers.{self.name}"

    @property
    def handler(self) -> str:
        """The entry point as Lambda wants it."""
        return f"{self.module}.handler"


FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        Function(
            "api",
            "Accepts tasks and reports them; runs small purges itself (DESIGN §4)",
            30,
            (*_PURGE, "idempotency_table", "queue_url", "inline_max_files", "synchronous_budget_seconds", "tracing"),
            memory_mb=1769,  # one vCPU: it parses manifests while a caller waits
        ),
        Function(
            "authorizer",
            "Admits the one Polaris identity with a token of the right scope (DESIGN §6)",
            10,
            (
                "client_subject",
                "client_issuer",
                "client_serials",
                "client_certificate_source",
                "client_crl",
                "token_issuer",
                "token_jwks_url",
                "token_public_key",
                "token_audience",
                "token_scope",
            ),
        ),
        Function("dispatcher", "Starts one execution per dispatch message", 60, ("state_machine_arn",)),
        Function(
            "sweeper",
            "Every minute: presumes lost, dispatches what is due",
            60,
            (*_KINDS, "queue_url", "emr_application_id"),
        ),
        Function("acquire", "Makes the execution the holder of its task", 60, _KINDS),
        Function(
            "prepare",
            "Loads the table, counts its files, chooses the engine",
            60,
            (*_PURGE, "behaviors", "inline_max_files"),
            memory_mb=1769,
        ),
        Function(
            "run_inline",
            "Purges a small table; maintains the stores",
            900,
            (*_PURGE, "behaviors", "idempotency_table"),
            memory_mb=1769,
        ),
        Function(
            "start_job",
            "Starts the attempt's Spark job, after ending a former attempt's",
            60,
            (
                *_TASKS,
                "emr_application_id",
                "emr_job_role_arn",
                "emr_entry_point",
                "emr_spark_parameters",
            ),
        ),
        Function(
            "heartbeat",
            "Renews the lease of a job that moves, hands long runs to a new execution",
            60,
            (*_TASKS, "emr_application_id", "queue_url"),
        ),
        Function("complete", "Records how the attempt ended", 60, (*_TASKS, "emr_application_id")),
        Function(
            "make_due",
            "Makes a task due again after an execution went wrong",
            60,
            (*_TASKS, "emr_application_id"),
        ),
    )
}
"""Every function by name."""

SWEEP_MINUTES: Final = 1
DISPATCH_BATCH_SIZE: Final = 10
DISPATCH_MAX_CONCURRENCY: Final = 5
DISPATCH_VISIBILITY_SECONDS: Final = 6 * FUNCTIONS["dispatcher"].timeout_seconds
"""AWS Lambda developer guide, "Using Lambda with Amazon SQS": at least six times the function's time-out."""
DISPATCH_MAX_RECEIVES: Final = 5
"""After that a message goes to the dead-letter queue; the sweeper dispatches its task again regardless."""

SPARK_VARIABLES: Final = _PURGE
"""What the driver of the Spark job gets."""
EXECUTOR_VARIABLES: Final = (*_POLARIS, "plan_bucket")
"""What its executors get: they read, plan and delete. The driver tells them where the task is, which they only read."""

_POWERTOOLS: Final = {
    "POWERTOOLS_SERVICE_NAME": SERVICE_NAME,
    "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
    "POWERTOOLS_LOG_LEVEL": "INFO",
}
_NAMES: Final = {
    "realm": "DELEGATION_REALM",
    "tasks_table": "DELEGATION_TASKS_TABLE",
    "idempotency_table": "DELEGATION_IDEMPOTENCY_TABLE",
    "queue_url": "DELEGATION_QUEUE_URL",
    "state_machine_arn": "DELEGATION_STATE_MACHINE_ARN",
    "plan_bucket": "DELEGATION_PLAN_BUCKET",
    "polaris_url": "DELEGATION_POLARIS_URL",
    "polaris_secret_arn": "DELEGATION_POLARIS_SECRET_ARN",
    "polaris_scope": "DELEGATION_POLARIS_SCOPE",
    "polaris_token_url": "DELEGATION_POLARIS_TOKEN_URL",
    "emr_application_id": "DELEGATION_EMR_APPLICATION_ID",
    "emr_job_role_arn": "DELEGATION_EMR_JOB_ROLE_ARN",
    "emr_entry_point": "DELEGATION_EMR_ENTRY_POINT",
    "emr_spark_parameters": "DELEGATION_EMR_SPARK_PARAMETERS",
    "client_subject": "DELEGATION_CLIENT_SUBJECT",
    "client_issuer": "DELEGATION_CLIENT_ISSUER",
    "client_serials": "DELEGATION_CLIENT_SERIALS",
    "client_certificate_source": "DELEGATION_CLIENT_CERTIFICATE_SOURCE",
    "client_crl": "DELEGATION_CLIENT_CRL",
    "token_issuer": "DELEGATION_TOKEN_ISSUER",
    "token_jwks_url": "DELEGATION_TOKEN_JWKS_URL",
    "token_public_key": "DELEGATION_TOKEN_PUBLIC_KEY",
    "token_audience": "DELEGATION_TOKEN_AUDIENCE",
    "token_scope": "DELEGATION_TOKEN_SCOPE",
    "properties": "DELEGATION_PROPERTIES",
    "behaviors": "DELEGATION_BEHAVIORS",
    "inline_max_files": "DELEGATION_INLINE_MAX_FILES",
    "synchronous_budget_seconds": "DELEGATION_SYNCHRONOUS_BUDGET",
    "tracing": "DELEGATION_TRACING",
}


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one deployment consists of; every field that is None gives no variable.

    `emr_spark_parameters` is what the operator wants of Spark (sizes, archives); the job's own variables are added to
    it by `environment("start_job", …)`. `client_serials` is a comma-separated list, `client_crl` a revocation
    list in PEM (small: variables hold 4 KB). `properties` are the proposal's
    (delegation-service.txt, "Task Retry"). `behaviors` names added ones as `module:function`, separated by commas.
    """

    realm: str | None = None
    tasks_table: str | None = None
    idempotency_table: str | None = None
    queue_url: str | None = None
    state_machine_arn: str | None = None
    plan_bucket: str | None = None
    polaris_url: str | None = None
    polaris_secret_arn: str | None = None
    polaris_scope: str | None = None
    polaris_token_url: str | None = None
    emr_application_id: str | None = None
    emr_job_role_arn: str | None = None
    emr_entry_point: str | None = None
    emr_spark_parameters: str = ""
    client_subject: str | None = None
    client_issuer: str | None = None
    client_serials: str | None = None
    client_certificate_source: str = "apigateway"
    client_crl: str | None = None
    token_issuer: str | None = None
    token_jwks_url: str | None = None
    token_public_key: str | None = None
    token_audience: str | None = None
    token_scope: str = "execute_tasks"  # noqa: S105 - the name of a scope
    properties: Mapping[str, str] = field(default_factory=dict)
    behaviors: str | None = None
    inline_max_files: int = 1000
    synchronous_budget_seconds: int = 25
    tracing: bool = False


def environment(function_name: str, resources: Resources) -> dict[str, str]:
    """The variables of one function: those it needs and no others; KeyError for an unknown function."""
    variables = _variables(FUNCTIONS[function_name].variables, resources)
    if "emr_spark_parameters" in FUNCTIONS[function_name].variables:
        variables[_NAMES["emr_spark_parameters"]] = spark_parameters(resources)
    return {**variables, **_POWERTOOLS}


def spark_environment(resources: Resources, *, executor: bool = False) -> dict[str, str]:
    """The variables of the Spark job: of its driver, or of each executor."""
    if executor:
        return _variables(EXECUTOR_VARIABLES, resources)  # the driver logs and counts
    return {**_variables(SPARK_VARIABLES, resources), **_POWERTOOLS}


def spark_parameters(resources: Resources) -> str:
    """`sparkSubmitParameters` of every job: the operator's, then the job's variables; split as a shell would.

    EMR Serverless user guide, "Spark jobs": variables of the driver are `spark.emr-serverless.driverEnv.NAME`, those of
    executors Spark's own `spark.executorEnv.NAME`.
    """
    driver = {f"spark.emr-serverless.driverEnv.{k}": v for k, v in spark_environment(resources).items()}
    executor = {f"spark.executorEnv.{k}": v for k, v in spark_environment(resources, executor=True).items()}
    settings = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in {**driver, **executor}.items()]
    return " ".join([part for part in (resources.emr_spark_parameters,) if part] + settings)


def default_context(path: Path = ROOT / "cdk.json") -> dict[str, Any]:
    """The settings of cdk.json: what the CDK app starts from, and where the local stack takes its defaults."""
    context: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["context"]
    return context


def default_properties(path: Path = ROOT / "cdk.json") -> dict[str, str]:
    """The proposal's properties as cdk.json sets them."""
    return {name: str(value) for name, value in default_context(path)[PROPERTIES_KEY].items()}


def _variables(fields: tuple[str, ...], resources: Resources) -> dict[str, str]:
    values = {name: getattr(resources, name) for name in fields}
    return {_NAMES[name]: _text(value) for name, value in values.items() if value is not None and value != ""}


def _text(value: str | int | Mapping[str, str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))
    return str(value)
