"""The environment variables of each function and Spark job, made from the resources of a deployment."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from delegation.environment import SETTINGS_OBJECT
from delegation.metrics import NAMESPACE, SERVICE
from delegation.removal.choice import INLINE_MAX_FILES
from delegation.removal.requests import FOREIGN_LOCATIONS
from infra.environment.functions import EVERY_FUNCTION, EXECUTOR_VARIABLES, SPARK_VARIABLES
from infra.package.parts import PYTHON_VERSION

VARIABLES: Final = {
    "realm": "DELEGATION_REALM",
    "tasks_table": "DELEGATION_TASKS_TABLE",
    "idempotency_table": "DELEGATION_IDEMPOTENCY_TABLE",
    "references_table": "DELEGATION_REFERENCES_TABLE",
    "tombstones_table": "DELEGATION_TOMBSTONES_TABLE",
    "gateway_base_path": "DELEGATION_GATEWAY_BASE_PATH",
    "gateway_timeout_seconds": "DELEGATION_GATEWAY_TIMEOUT_SECONDS",
    "gateway_namespace_separator": "DELEGATION_GATEWAY_NAMESPACE_SEPARATOR",
    "gateway_purge_requests": "DELEGATION_GATEWAY_PURGE_REQUESTS",
    "queue_url": "DELEGATION_QUEUE_URL",
    "notification_queue_url": "DELEGATION_NOTIFICATION_QUEUE_URL",
    "event_queue_url": "DELEGATION_EVENT_QUEUE_URL",
    "apart_queue_url": "DELEGATION_APART_QUEUE_URL",
    "event_bus": "DELEGATION_EVENT_BUS",
    "callback_keys_arn": "DELEGATION_CALLBACK_KEYS",
    "callback_authorities": "DELEGATION_CALLBACK_AUTHORITIES",
    "state_machine_arn": "DELEGATION_STATE_MACHINE_ARN",
    "plan_bucket": "DELEGATION_PLAN_BUCKET",
    "polaris_url": "DELEGATION_POLARIS_URL",
    "polaris_secret_arn": "DELEGATION_POLARIS_SECRET_ARN",
    "polaris_scope": "DELEGATION_POLARIS_SCOPE",
    "polaris_token_url": "DELEGATION_POLARIS_TOKEN_URL",
    "emr_application_id": "DELEGATION_EMR_APPLICATION_ID",
    "emr_former_application_ids": "DELEGATION_EMR_FORMER_APPLICATION_IDS",
    "emr_job_role_arn": "DELEGATION_EMR_JOB_ROLE_ARN",
    "emr_entry_point": "DELEGATION_EMR_ENTRY_POINT",
    "emr_spark_parameters": "DELEGATION_EMR_SPARK_PARAMETERS",
    "client_subject": "DELEGATION_CLIENT_SUBJECT",
    "client_issuer": "DELEGATION_CLIENT_ISSUER",
    "client_serials": "DELEGATION_CLIENT_SERIALS",
    "client_certificate_source": "DELEGATION_CLIENT_CERTIFICATE_SOURCE",
    "client_vpc_endpoints": "DELEGATION_CLIENT_VPC_ENDPOINTS",
    "client_crl": "DELEGATION_CLIENT_CRL",
    "client_ca": "DELEGATION_CLIENT_CA",
    "client_next_subject": "DELEGATION_CLIENT_NEXT_SUBJECT",
    "client_next_issuer": "DELEGATION_CLIENT_NEXT_ISSUER",
    "client_next_serials": "DELEGATION_CLIENT_NEXT_SERIALS",
    "revocation_lists": "DELEGATION_REVOCATION_LISTS",
    "revocation_outdated": "DELEGATION_REVOCATION_OUTDATED",
    "revocation_max_age_seconds": "DELEGATION_REVOCATION_MAX_AGE_SECONDS",
    "operator_subjects": "DELEGATION_OPERATOR_SUBJECTS",
    "operator_issuer": "DELEGATION_OPERATOR_ISSUER",
    "operator_next_issuer": "DELEGATION_OPERATOR_NEXT_ISSUER",
    "operator_client_ids": "DELEGATION_OPERATOR_CLIENT_IDS",
    "operator_scope": "DELEGATION_OPERATOR_SCOPE",
    "operators_may_submit": "DELEGATION_OPERATORS_MAY_SUBMIT",
    "polaris_may_manage": "DELEGATION_POLARIS_MAY_MANAGE",
    "token_issuer": "DELEGATION_TOKEN_ISSUER",
    "token_jwks_url": "DELEGATION_TOKEN_JWKS_URL",
    "token_public_key": "DELEGATION_TOKEN_PUBLIC_KEY",
    "token_next_public_key": "DELEGATION_TOKEN_NEXT_PUBLIC_KEY",
    "token_audience": "DELEGATION_TOKEN_AUDIENCE",
    "token_client_id": "DELEGATION_TOKEN_CLIENT_ID",
    "token_next_issuer": "DELEGATION_TOKEN_NEXT_ISSUER",
    "token_next_jwks_url": "DELEGATION_TOKEN_NEXT_JWKS_URL",
    "token_next_audience": "DELEGATION_TOKEN_NEXT_AUDIENCE",
    "token_next_client_id": "DELEGATION_TOKEN_NEXT_CLIENT_ID",
    "token_binding": "DELEGATION_TOKEN_BINDING",
    "token_scope": "DELEGATION_TOKEN_SCOPE",
    "properties": "DELEGATION_PROPERTIES",
    "behaviors": "DELEGATION_BEHAVIORS",
    "probe_url": "DELEGATION_PROBE_URL",
    "probe_address": "DELEGATION_PROBE_ADDRESS",
    "probe_secret_arn": "DELEGATION_PROBE_SECRET_ARN",
    "inline_max_files": "DELEGATION_INLINE_MAX_FILES",
    "spark": "DELEGATION_SPARK",
    "synchronous_budget_seconds": "DELEGATION_SYNCHRONOUS_BUDGET",
    "tracing": "DELEGATION_TRACING",
}
"""The variable of each field of `Resources`."""
PROPERTIES_VARIABLE: Final = VARIABLES["properties"]
MOVABLE: Final = frozenset(
    VARIABLES[name]
    for name in (
        "properties",
        "client_ca",
        "client_crl",
        "callback_authorities",
        "token_public_key",
        "token_next_public_key",
    )
)
"""The variables of any length, which a function can read from the object of SETTINGS_OBJECT instead; none is secret."""
LIMIT_BYTES: Final = 4096
"""AWS Lambda developer guide, "Lambda quotas": all variables of a function have at most 4 KB."""
_TOKEN: Final = re.compile(r"\$\{Token\[(?P<name>[^\]]+)\.\d+\]\}")
"""What the CDK writes for a value that is known at deployment, `${Token[AWS.AccountId.4]}`."""
_LENGTHS: Final = {"AWS.AccountId": 12, "AWS.Partition": 10, "AWS.Region": 14, "AWS.URLSuffix": 16}
_LONGEST: Final = 128
"""More than the names, ARNs and URLs that CloudFormation makes here: a generated name has at most 63 characters."""


class TooManyVariables(ValueError):
    """A function's variables have more than 4 KB, although all that can move is in the object of settings."""

    def __init__(self, function: str, size: int, longest: tuple[str, ...]) -> None:
        super().__init__(
            f"the variables of the function {function} have about {size:,} bytes and Lambda takes {LIMIT_BYTES:,}; "
            f"shorten the settings of the longest: {', '.join(longest)}"
        )


def size_of(variables: Mapping[str, str]) -> int:
    """Return how many bytes variables have at most, with an upper bound for values known only at deployment."""
    return sum(len(name) + len(_known(value).encode()) for name, value in variables.items())


def fitted(function: str, variables: Mapping[str, str], settings_object: str) -> dict[str, str]:
    """Return the variables of a function, the movable ones replaced by the object's URL where they have no room.

    Raises TooManyVariables.
    """
    if size_of(variables) <= LIMIT_BYTES:
        return dict(variables)
    kept = {name: value for name, value in variables.items() if name not in MOVABLE}
    kept[SETTINGS_OBJECT] = settings_object
    if (size := size_of(kept)) > LIMIT_BYTES:
        longest = sorted(kept, key=lambda name: -len(_known(kept[name])))[:3]
        raise TooManyVariables(function, size, tuple(longest))
    return kept


def _known(value: str) -> str:
    return _TOKEN.sub(lambda found: "x" * _LENGTHS.get(found["name"], _LONGEST), value)


SERVICE_NAME: Final = SERVICE
METRICS_NAMESPACE: Final = NAMESPACE
"""The CloudWatch namespace of the metrics; their dimension is `service`, the `service_name` of Resources."""

_SERVICE_VARIABLE: Final = "POWERTOOLS_SERVICE_NAME"
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
    - `emr_former_application_ids`: the applications whose job runs may not have ended, separated by commas.
    - `client_serials`, `revocation_lists` (URLs), `client_vpc_endpoints`, `operator_client_ids`: separated by commas;
      `operator_subjects`: names separated by semicolons. `client_crl`: a revocation list in PEM, `client_ca`: the
      certificates of the authorities that sign such lists (all variables share 4 KB).
    - `properties`: those of the Delegation Service proposal, "Task Retry".
    - `spark`: `off` where Spark jobs would not reach Polaris, so that purges which need them are refused.
    - `behaviors`: additional behaviors as `module` or `module:function`, separated by commas.
    - `notification_queue_url`, `event_queue_url`, `apart_queue_url`: the queues of callbacks, of events, and for
      receivers that are set apart; `callback_keys_arn`: the reference of the keys that sign
      callbacks; `callback_authorities`: the certificate authorities of their receivers in PEM.
    - `probe_url`, `probe_address`, `probe_secret_arn`: the API's base, the host to connect to instead of its own, and
      the probe's certificate.
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
    event_queue_url: str | None = None
    apart_queue_url: str | None = None
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
    emr_former_application_ids: str | None = None
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
    polaris_may_manage: bool = False
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
    probe_url: str | None = None
    probe_address: str | None = None
    probe_secret_arn: str | None = None
    inline_max_files: int = INLINE_MAX_FILES
    spark: str = "on"
    synchronous_budget_seconds: int = 25
    tracing: bool = False


def environment(function_name: str, resources: Resources) -> dict[str, str]:
    """Return the variables that a function needs, and no others; raise KeyError for an unknown function."""
    starts_jobs = "emr_spark_parameters" in EVERY_FUNCTION[function_name].variables
    # The job has the purges' properties in its parameters; the 4 KB of variables have no room for both.
    own = replace(resources, properties=_of_tasks(resources.properties)) if starts_jobs else resources
    variables = _variables(EVERY_FUNCTION[function_name].variables, own)
    if starts_jobs:
        variables[VARIABLES["emr_spark_parameters"]] = spark_parameters(resources)
    return {**variables, **_powertools(resources)}


def spark_environment(resources: Resources, *, executor: bool = False) -> dict[str, str]:
    """Return the variables of the Spark job's driver, or of its executors."""
    if executor:
        return _variables(EXECUTOR_VARIABLES, resources)  # only the driver writes logs and metrics
    # Namespace and level are the defaults in the code; the 4 KB of the variables of `start_job` have no room for them.
    variables = {**_variables(SPARK_VARIABLES, resources), _SERVICE_VARIABLE: resources.service_name}
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


def _powertools(resources: Resources) -> dict[str, str]:
    """Return the variables of logs, metrics and traces."""
    return {_SERVICE_VARIABLE: resources.service_name, **_POWERTOOLS}


def _of_tasks(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are neither of purges, nor of drops, nor of upkeep, nor of foreign locations."""
    others = ("delegation.purge.", "delegation.drop.", "delegation.upkeep.", FOREIGN_LOCATIONS)
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


PYTHON: Final = f"/usr/bin/python{PYTHON_VERSION}"
"""The interpreter in EMR's image; without a name the driver would run the image's default, an older Python."""
_UNPACKED: Final = "package"
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1"
"""Python works on the rows and the JVM only passes them on: what its optimizing compiler takes, it never gives back."""


def packaged_job(archive_url: str) -> str:
    """Return `sparkSubmitParameters` of a job whose driver and executors import what an archive has.

    They unpack the archive; no task has a speculative copy. The URL must end as Spark unpacks archives: `.tgz`, `.zip`.
    """
    settings = {
        "spark.archives": f"{archive_url}#{_UNPACKED}",
        "spark.emr-serverless.driverEnv.PYTHONPATH": f"./{_UNPACKED}",
        "spark.executorEnv.PYTHONPATH": f"./{_UNPACKED}",
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": PYTHON,
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": PYTHON,
        "spark.executorEnv.PYSPARK_PYTHON": PYTHON,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.speculation": "false",
    }
    return " ".join(f"--conf {name}={value}" for name, value in settings.items())


DIMENSION: Final = "service"
"""The only dimension of every metric, from POWERTOOLS_SERVICE_NAME."""


def service_name(stage: str) -> str:
    """Return the service's name in metrics, logs, traces and API Gateway, such as `polaris-delegation-prod`."""
    return f"{SERVICE_NAME}-{stage}"


def resource_name(stage: str, part: str) -> str:
    """Return the name of an alarm, a dashboard, a query or a machine, such as `polaris-delegation-prod-purge`."""
    return f"{service_name(stage)}-{part}"


def metric_dimensions(stage: str) -> dict[str, str]:
    """Return the dimensions by which CloudWatch finds the metrics of one stage."""
    return {DIMENSION: service_name(stage)}
