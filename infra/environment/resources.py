"""The environment variables of each function and Spark job, made from the resources of a deployment."""

import json
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from delegation.environment import SETTINGS_OBJECT
from delegation.metrics import NAMESPACE, SERVICE
from delegation.removal.choice import INLINE_MAX_FILES
from delegation.removal.requests import FOREIGN_LOCATIONS
from infra.environment.functions import EVERY_FUNCTION, EXECUTOR_VARIABLES, SPARK_VARIABLES
from infra.package.parts import PYTHON_VERSION

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
            f"the variables of the function {function} have about {size:,} bytes, but Lambda allows {LIMIT_BYTES:,}. "
            f"Shorten the settings of the longest variables: {', '.join(longest)}"
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
    return _TOKEN.sub(lambda match: "x" * _LENGTHS.get(match["name"], _LONGEST), value)


SERVICE_NAME: Final = SERVICE
METRICS_NAMESPACE: Final = NAMESPACE
"""The CloudWatch namespace of the metrics; their dimension is `service`, the `service_name` of Resources."""

_SERVICE_VARIABLE: Final = "POWERTOOLS_SERVICE_NAME"
_POWERTOOLS: Final = {
    "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
    "POWERTOOLS_LOG_LEVEL": "INFO",
}


_SHORTER: Final = {"callback_keys_arn": "CALLBACK_KEYS", "synchronous_budget_seconds": "SYNCHRONOUS_BUDGET"}
VARIABLES: Final = {
    name: f"DELEGATION_{_SHORTER.get(name, name.upper())}"
    for function in EVERY_FUNCTION.values()
    for name in function.variables
}
"""The variable of each name in `Resources`, `DELEGATION_QUEUE_URL` of `queue_url`."""
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


_DEFAULTS: Final[Mapping[str, Any]] = {
    "service_name": SERVICE_NAME,
    "gateway_base_path": "/api/catalog",
    "event_bus": "default",
    "client_certificate_source": "apigateway",
    "operator_scope": "manage_tasks",
    "operators_may_submit": False,
    "polaris_may_manage": False,
    "token_scope": "execute_tasks",
    "properties": MappingProxyType({}),
    "inline_max_files": INLINE_MAX_FILES,
    "spark": "on",
    "synchronous_budget_seconds": 25,
    "tracing": False,
}


class Resources(dict[str, Any]):
    """The resources and settings of one deployment by name; one that is None or absent yields no variable.

    - `service_name`: the service's name in metrics and logs.
    - `settings_object`: the URL of an object with the MOVABLE variables; Spark jobs read their properties from it.
    - `emr_spark_parameters`: Spark settings (sizes, archives); `environment("start_job", …)` adds the job's variables.
    - Lists are separated by commas, `operator_subjects` by semicolons; all variables of a function share 4 KB.
    - `spark`: `off` where Spark jobs would not reach Polaris, so that purges which need them are refused.
    - `probe_address`: the host to connect to instead of that of `probe_url`.
    - `gateway_base_path`: the catalog's base in the paths of requests to the gateway.
    - The others: the settings of their names (docs/settings.md), and names of resources, None where there are none.
    """

    def __init__(self, **values: Any) -> None:
        """Take values for the defaults; raises TypeError for a name that no function has."""
        if unknown := values.keys() - VARIABLES.keys() - {"service_name", "settings_object"}:
            raise TypeError(f"no function has {', '.join(sorted(unknown))}")
        super().__init__({**_DEFAULTS, **values})

    def replaced(self, **values: Any) -> "Resources":
        return Resources(**{**self, **values})


def environment(function_name: str, resources: Resources) -> dict[str, str]:
    """Return the variables that a function needs, and no others; raise KeyError for an unknown function."""
    starts_jobs = "emr_spark_parameters" in EVERY_FUNCTION[function_name].variables
    # The job has the purges' properties in its parameters; the 4 KB of variables have no room for both.
    own = resources.replaced(properties=_of_tasks(resources["properties"])) if starts_jobs else resources
    variables = _variables(EVERY_FUNCTION[function_name].variables, own)
    if starts_jobs:
        variables[VARIABLES["emr_spark_parameters"]] = spark_parameters(resources)
    return {**variables, _SERVICE_VARIABLE: resources["service_name"], **_POWERTOOLS}


def spark_environment(resources: Resources, *, executor: bool = False) -> dict[str, str]:
    """Return the variables of the Spark job's driver, or of its executors."""
    if executor:
        return _variables(EXECUTOR_VARIABLES, resources)  # only the driver writes logs and metrics
    # Namespace and level are the defaults in the code; the 4 KB of the variables of `start_job` have no room for them.
    variables = {**_variables(SPARK_VARIABLES, resources), _SERVICE_VARIABLE: resources["service_name"]}
    if (stored := resources.get("settings_object")) is None:
        return variables
    # JSON would have to survive EMR's own parsing of `sparkSubmitParameters`.
    del variables[PROPERTIES_VARIABLE]
    return {**variables, SETTINGS_OBJECT: stored}


def stored_settings(resources: Resources) -> dict[str, str]:
    """Return the MOVABLE variables of a deployment, for the object of SETTINGS_OBJECT."""
    named = tuple(name for name, variable in VARIABLES.items() if variable in MOVABLE)
    return _variables(named, resources)


def spark_parameters(resources: Resources) -> str:
    """Return `sparkSubmitParameters` of every job, as shell words: the operator's settings, then the job's variables.

    EMR Serverless user guide, "Spark jobs": `spark.emr-serverless.driverEnv.NAME` sets a variable of the driver,
    Spark's `spark.executorEnv.NAME` one of the executors.
    """
    driver = {f"spark.emr-serverless.driverEnv.{k}": v for k, v in spark_environment(resources).items()}
    executor = {f"spark.executorEnv.{k}": v for k, v in spark_environment(resources, executor=True).items()}
    settings = [f"--conf {shlex.quote(f'{name}={value}')}" for name, value in {**driver, **executor}.items()]
    return " ".join([part for part in (resources.get("emr_spark_parameters"),) if part] + settings)


def _of_tasks(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are neither of purges, nor of drops, nor of upkeep, nor of foreign locations."""
    others = ("delegation.purge.", "delegation.drop.", "delegation.upkeep.", FOREIGN_LOCATIONS)
    return {name: value for name, value in properties.items() if not name.startswith(others)}


def _variables(names: tuple[str, ...], resources: Resources) -> dict[str, str]:
    values = {name: resources.get(name) for name in names}
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
