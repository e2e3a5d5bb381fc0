"""The table of Lambda functions, and the environment variables of each function and of the Spark job.

CDK and the local stack both read it; a test compares the synthesized template with it. Nothing here needs Node, AWS or
the CDK: names and addresses are passed in as `Resources`, either plain text or CDK tokens.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from delegation.environment import SETTINGS_OBJECT
from delegation.metrics import NAMESPACE, SERVICE
from delegation.operations.purge.behavior.limits import policies_of
from delegation.operations.purge.options import INLINE_MAX_FILES
from infra.variables import MOVABLE, PROPERTIES_VARIABLE, VARIABLES

ROOT: Final = Path(__file__).resolve().parent.parent
"""The repository: the directory of cdk.json, functions/ and spark/."""
PROPERTIES_KEY: Final = "delegation:properties"
SERVICE_NAME: Final = SERVICE
METRICS_NAMESPACE: Final = NAMESPACE
"""The CloudWatch namespace of the metrics; their dimension is `service`, the `service_name` of Resources."""
STATE_MACHINE_DEFINITION: Final = ROOT / "functions" / "delegation" / "handlers" / "purge.asl.json"

_POLARIS: Final = ("realm", "polaris_url", "polaris_secret_arn", "polaris_scope", "polaris_token_url")
_TASKS: Final = ("tasks_table", "properties")
_ENDS: Final = ("notification_queue_url",)
"""What a function needs that may end tasks, so that it sends what their ends owe."""
_KINDS: Final = (*_TASKS, "behaviors")
_PURGE: Final = (*_TASKS, *_POLARIS, "plan_bucket", "references_table")
_DROPS: Final = ("tombstones_table",)
"""What a process needs that purges for the gateway, or restores; absent without one."""


@dataclass(frozen=True, slots=True)
class Function:
    """One Lambda function.

    `variables` names the fields of `Resources` that it gets. `reserved_concurrency` limits the instances that run at
    once; None uses the account's unreserved concurrency. `disk_mb` is its space in /tmp. `package` has its module.
    """

    name: str
    description: str
    timeout_seconds: int
    variables: tuple[str, ...]
    memory_mb: int = 512
    disk_mb: int = 512
    reserved_concurrency: int | None = None
    package: str = "delegation.handlers"

    @property
    def module(self) -> str:
        """The module that defines `handler(event, context)`."""
        return f"{self.package}.{self.name}"

    @property
    def handler(self) -> str:
        """The handler's name in the form that Lambda takes."""
        return f"{self.module}.handler"


FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        Function(
            "api",
            "Accepts and reports tasks; purges small tables synchronously",
            30,
            (
                *_PURGE,
                *_ENDS,
                *_DROPS,
                "idempotency_table",
                "queue_url",
                "inline_max_files",
                "spark",
                "synchronous_budget_seconds",
                "tracing",
            ),
            memory_mb=1769,  # one vCPU: it parses manifests while a caller waits
        ),
        Function(
            "authorizer",
            "Admits the identity of Polaris if its token has the required scope",
            10,
            (
                "client_subject",
                "client_issuer",
                "client_serials",
                "client_certificate_source",
                "client_vpc_endpoints",
                "client_crl",
                "client_ca",
                "client_next_subject",
                "client_next_issuer",
                "client_next_serials",
                "revocation_lists",
                "revocation_outdated",
                "revocation_max_age_seconds",
                "operator_subjects",
                "operator_issuer",
                "operator_next_issuer",
                "operator_client_ids",
                "operator_scope",
                "operators_may_submit",
                "token_issuer",
                "token_jwks_url",
                "token_public_key",
                "token_next_public_key",
                "token_audience",
                "token_client_id",
                "token_next_issuer",
                "token_next_jwks_url",
                "token_next_audience",
                "token_next_client_id",
                "token_binding",
                "token_scope",
            ),
        ),
        Function(
            "dispatcher",
            "Starts one execution per dispatch message, and admits tasks that wait",
            60,
            (*_KINDS, "state_machine_arn"),
        ),
        Function(
            "sweeper",
            "Ends lost attempts and dispatches due tasks, every minute",
            60,
            (*_KINDS, *_ENDS, "queue_url", "emr_application_id"),
        ),
        Function("acquire", "Acquires the task's lease for the execution", 60, (*_KINDS, *_ENDS)),
        Function(
            "prepare",
            "Loads the table, counts its files, chooses the engine",
            60,
            (*_PURGE, *_ENDS, *_DROPS, "behaviors", "inline_max_files", "spark"),
            memory_mb=1769,
        ),
        Function(
            "run_inline",
            "Purges a table that needs no Spark, or maintains the task and idempotency tables",
            900,
            (*_PURGE, *_ENDS, *_DROPS, "behaviors", "idempotency_table"),
            memory_mb=1769,
            disk_mb=2048,  # the sorted runs of a plan with as many files as are purged inline
        ),
        Function(
            "start_job",
            "Ends a former attempt's Spark job, then starts this attempt's",
            60,
            (
                *_KINDS,
                "emr_application_id",
                "emr_job_role_arn",
                "emr_entry_point",
                "emr_spark_parameters",
                "plan_bucket",
            ),
        ),
        Function(
            "heartbeat",
            "Renews the lease while the job makes progress; hands long jobs to a new execution",
            60,
            (*_KINDS, *_ENDS, "emr_application_id", "queue_url"),
        ),
        Function("complete", "Records how the attempt ended", 60, (*_KINDS, *_ENDS, "emr_application_id", "queue_url")),
        Function(
            "make_due",
            "Makes a task due again after its execution failed",
            60,
            (*_KINDS, *_ENDS, "emr_application_id"),
        ),
        Function(
            "notifier",
            "Delivers the events and callbacks that ends of tasks owe",
            60,
            (*_TASKS, "event_bus", "callback_keys_arn", "callback_authorities"),
        ),
    )
}
"""Every function of the service by name."""
GATEWAY: Final = Function(
    "gateway",
    "Answers for the catalog: drops with purge, and mutations with a key",
    30,
    (
        *_PURGE,
        *_ENDS,
        *_DROPS,
        "idempotency_table",
        "queue_url",
        "inline_max_files",
        "spark",
        "synchronous_budget_seconds",
        "gateway_base_path",
        "gateway_timeout_seconds",
        "gateway_namespace_separator",
        "gateway_purge_requests",
        "token_issuer",
        "token_jwks_url",
        "token_public_key",
        "token_audience",
        "tracing",
    ),
    memory_mb=1769,  # one vCPU: callers wait for it
)
"""The function in front of the catalog, in a stack of its own; `polaris_url` is the address beside the rule."""
ROTATION: Final = Function(
    "rotate_secret",
    "Rotates the secret of the service's principal in Polaris",
    60,
    _POLARIS,
    package="delegation.handlers.rotation",
)
"""The rotation function of the secret, only where the settings rotate it."""
_EVERY: Final = {**FUNCTIONS, GATEWAY.name: GATEWAY, ROTATION.name: ROTATION}
NOTIFYING: Final = frozenset({"notifier"})
"""The functions of a deployment whose properties have ends of tasks owe notifications; others lack them."""


def deployed_functions(properties: Mapping[str, str]) -> dict[str, Function]:
    """Return the functions of a deployment with these properties; raises InvalidProperty."""
    absent = frozenset() if notifies(properties) else NOTIFYING
    return {name: function for name, function in FUNCTIONS.items() if name not in absent}


def notifies(properties: Mapping[str, str]) -> bool:
    """Return whether ends of tasks owe notifications; raises InvalidProperty."""
    return policies_of(properties)[0].notifications.is_on


SWEEP_MINUTES: Final = 1
DISPATCH_BATCH_SIZE: Final = 10
DISPATCH_MAX_CONCURRENCY: Final = 5
DISPATCH_VISIBILITY_SECONDS: Final = 6 * FUNCTIONS["dispatcher"].timeout_seconds
"""AWS Lambda developer guide, "Using Lambda with Amazon SQS": at least six times the function's time-out."""
NOTIFICATION_BATCH_SIZE: Final = 5
"""As many slow receivers as fit into the notifier's time-out, each taking all of its ten seconds."""
NOTIFICATION_VISIBILITY_SECONDS: Final = 6 * FUNCTIONS["notifier"].timeout_seconds
DISPATCH_MAX_RECEIVES: Final = 5
"""A message goes to the dead-letter queue after that; the sweeper dispatches its task again regardless."""

SPARK_VARIABLES: Final = (*_PURGE, *_DROPS)
"""The variables of the Spark job's driver."""
EXECUTOR_VARIABLES: Final = (*_POLARIS, "plan_bucket")
"""The variables of its executors, which read, plan and delete; the driver passes them the name of the task table."""

_POWERTOOLS: Final = {
    "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
    "POWERTOOLS_LOG_LEVEL": "INFO",
}


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources and settings of one deployment; a field that is None yields no variable.

    - `settings_object`: the URL of an object with the MOVABLE variables; Spark jobs read their properties from it.
    - `service_name`: the name of this stage's service in metrics, logs and traces.
    - `emr_spark_parameters`: Spark settings (sizes, archives); `environment("start_job", …)` adds the job's variables.
    - `client_serials`, `revocation_lists` (URLs), `client_vpc_endpoints`, `operator_client_ids`: separated by commas;
      `operator_subjects`: names separated by semicolons. `client_crl`: a revocation list in PEM, `client_ca`: the
      certificates of the authorities that sign such lists (all variables share 4 KB).
    - `properties`: those of the Delegation Service proposal, "Task Retry".
    - `spark`: `off` where Spark jobs would not reach Polaris, so that purges which need them are refused.
    - `behaviors`: additional behaviors as `module` or `module:function`, separated by commas.
    - `notification_queue_url`: the queue of notifications; `callback_keys_arn`: the reference of the keys that sign
      callbacks; `callback_authorities`: the certificate authorities of their receivers in PEM.
    - `tombstones_table`: the table of the gateway's drops, None without a gateway; `gateway_base_path`: the catalog's
      base in the paths of requests to the gateway; the other `gateway_*`: see GatewayDeploymentSettings.
    """

    service_name: str = SERVICE_NAME
    settings_object: str | None = None
    realm: str | None = None
    tasks_table: str | None = None
    idempotency_table: str | None = None
    references_table: str | None = None
    tombstones_table: str | None = None
    gateway_base_path: str = "/api/catalog"
    gateway_timeout_seconds: int | None = None
    gateway_namespace_separator: str | None = None
    gateway_purge_requests: str | None = None
    queue_url: str | None = None
    notification_queue_url: str | None = None
    event_bus: str = "default"
    callback_keys_arn: str | None = None
    callback_authorities: str | None = None
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
    client_vpc_endpoints: str | None = None
    client_crl: str | None = None
    client_ca: str | None = None
    client_next_subject: str | None = None
    client_next_issuer: str | None = None
    client_next_serials: str | None = None
    revocation_lists: str | None = None
    revocation_outdated: str | None = None
    revocation_max_age_seconds: int | None = None
    operator_subjects: str | None = None
    operator_issuer: str | None = None
    operator_next_issuer: str | None = None
    operator_client_ids: str | None = None
    operator_scope: str = "manage_tasks"
    operators_may_submit: bool = False
    token_issuer: str | None = None
    token_jwks_url: str | None = None
    token_public_key: str | None = None
    token_next_public_key: str | None = None
    token_audience: str | None = None
    token_client_id: str | None = None
    token_next_issuer: str | None = None
    token_next_jwks_url: str | None = None
    token_next_audience: str | None = None
    token_next_client_id: str | None = None
    token_binding: str | None = None
    token_scope: str = "execute_tasks"  # noqa: S105 - the name of a scope
    properties: Mapping[str, str] = field(default_factory=dict)
    behaviors: str | None = None
    inline_max_files: int = INLINE_MAX_FILES
    spark: str = "on"
    synchronous_budget_seconds: int = 25
    tracing: bool = False


def environment(function_name: str, resources: Resources) -> dict[str, str]:
    """Return the variables that a function needs, and no others; raise KeyError for an unknown function."""
    starts_jobs = "emr_spark_parameters" in _EVERY[function_name].variables
    # The job has the purges' properties in its parameters; the 4 KB of variables have no room for both.
    own = replace(resources, properties=_of_tasks(resources.properties)) if starts_jobs else resources
    variables = _variables(_EVERY[function_name].variables, own)
    if starts_jobs:
        variables[VARIABLES["emr_spark_parameters"]] = spark_parameters(resources)
    return {**variables, **_powertools(resources)}


def spark_environment(resources: Resources, *, executor: bool = False) -> dict[str, str]:
    """Return the variables of the Spark job's driver, or of its executors."""
    if executor:
        return _variables(EXECUTOR_VARIABLES, resources)  # only the driver writes logs and metrics
    variables = {**_variables(SPARK_VARIABLES, resources), **_powertools(resources)}
    if resources.settings_object is None:
        return variables
    # JSON would have to survive EMR's own parsing of `sparkSubmitParameters`.
    del variables[PROPERTIES_VARIABLE]
    return {**variables, SETTINGS_OBJECT: resources.settings_object}


def stored_settings(resources: Resources) -> dict[str, str]:
    """Return the MOVABLE variables of a deployment, for the object of SETTINGS_OBJECT."""
    named = tuple(field for field, variable in VARIABLES.items() if variable in MOVABLE)
    return _variables(named, resources)


def spark_parameters(resources: Resources) -> str:
    """Return `sparkSubmitParameters` of every job, as shell words: the operator's settings, then the job's variables.

    EMR Serverless user guide, "Spark jobs": `spark.emr-serverless.driverEnv.NAME` sets a variable of the driver,
    Spark's `spark.executorEnv.NAME` one of the executors.
    """
    driver = {f"spark.emr-serverless.driverEnv.{k}": v for k, v in spark_environment(resources).items()}
    executor = {f"spark.executorEnv.{k}": v for k, v in spark_environment(resources, executor=True).items()}
    settings = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in {**driver, **executor}.items()]
    return " ".join([part for part in (resources.emr_spark_parameters,) if part] + settings)


def default_context(path: Path = ROOT / "cdk.json") -> dict[str, Any]:
    """Return the context of cdk.json: the settings of the CDK app, and the defaults of the local stack."""
    context: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["context"]
    return context


def default_properties(path: Path = ROOT / "cdk.json") -> dict[str, str]:
    """Return the service's properties as cdk.json sets them."""
    return {name: str(value) for name, value in default_context(path)[PROPERTIES_KEY].items()}


def placeholder(function_name: str) -> str:
    """Return the name in STATE_MACHINE_DEFINITION for a function's ARN, `RunInlineFunctionArn` for `run_inline`."""
    return "".join(part.title() for part in function_name.split("_")) + "FunctionArn"


def _powertools(resources: Resources) -> dict[str, str]:
    """Return the variables of logs, metrics and traces."""
    return {"POWERTOOLS_SERVICE_NAME": resources.service_name, **_POWERTOOLS}


def _of_tasks(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are neither of purges nor of drops."""
    others = ("delegation.purge.", "delegation.drop.")
    return {name: value for name, value in properties.items() if not name.startswith(others)}


def _variables(fields: tuple[str, ...], resources: Resources) -> dict[str, str]:
    values = {name: getattr(resources, name) for name in fields}
    return {VARIABLES[name]: _text(value) for name, value in values.items() if value is not None and value != ""}


def _text(value: str | int | Mapping[str, str]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))
    return str(value)
