"""The table of Lambda functions: their size, their time, and the names in `Resources` that each gets as variables."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from delegation.gateway.drop.settings import DropSettings
from delegation.idempotency.settings import KeySettings
from delegation.tasks.life.policy import require_known_types
from delegation.upkeep.rules.limits import UpkeepLimits, UpkeepSettings
from delegation.wiring.types import TYPES, policies_of
from infra.environment.context import ROOT

STATE_MACHINE_DEFINITION: Final = ROOT / "functions" / "delegation" / "handlers" / "purge.asl.json"

_POLARIS: Final = ("realm", "polaris_url", "polaris_secret_arn", "polaris_scope", "polaris_token_url")
_TASKS: Final = ("tasks_table", "properties")
_ENDS: Final = ("notification_queue_url", "event_queue_url")
"""What a function needs that may end tasks, so that it sends what their ends announce."""
_SPARK: Final = ("emr_application_id", "emr_former_application_ids")
_KINDS: Final = (*_TASKS, "behaviors")
_STATES: Final = {
    **dict.fromkeys(("acquire", "start_job", "heartbeat", "complete", "make_due"), "steps"),
    **dict.fromkeys(("prepare", "run_inline"), "attempts"),
}
"""The module of `delegation.handlers` that defines the function of a state of the machine, under the state's name."""
_PURGE: Final = (*_TASKS, *_POLARIS, "plan_bucket", "references_table")
_DROPS: Final = ("tombstones_table",)
"""What a process needs that purges for the gateway, or restores; absent without one."""
_FRONT: Final = (
    *_PURGE,
    *_ENDS,
    *_DROPS,
    "idempotency_table",
    "queue_url",
    "inline_max_files",
    "spark",
    "synchronous_budget_seconds",
)
"""What a function needs that callers reach: it accepts tasks at most once, and purges small tables while they wait."""


@dataclass(frozen=True, slots=True)
class Function:
    """One Lambda function.

    `variables` are the names in `Resources` that it gets. `reserved_concurrency` limits the instances that run at
    once; None uses the account's unreserved concurrency. `disk_mb` is its space in /tmp.
    """

    name: str
    description: str
    timeout_seconds: int
    variables: tuple[str, ...]
    memory_mb: int = 512
    disk_mb: int = 512
    reserved_concurrency: int | None = None

    @property
    def module(self) -> str:
        return f"delegation.handlers.{_STATES.get(self.name, self.name)}"

    @property
    def handler(self) -> str:
        """The handler's name in the form that Lambda takes."""
        return f"{self.module}.{self.name if self.name in _STATES else 'handler'}"


FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        Function(
            "api",
            "Accepts and reports tasks; purges small tables synchronously",
            30,
            (*_FRONT, "tracing"),
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
                "polaris_may_manage",
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
            (*_KINDS, *_ENDS, "apart_queue_url", "queue_url", *_SPARK),
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
            (*_PURGE, *_ENDS, *_DROPS, "behaviors", "inline_max_files", "spark", "idempotency_table"),
            memory_mb=1769,
            disk_mb=2048,  # the sorted runs of a plan with as many files as are purged inline
        ),
        Function(
            "start_job",
            "Ends a former attempt's Spark job, then starts this attempt's",
            60,
            (
                *_KINDS,
                *_SPARK,
                "emr_job_role_arn",
                "emr_entry_point",
                "emr_spark_parameters",
                "emr_jars",
                "plan_bucket",
            ),
        ),
        Function(
            "heartbeat",
            "Renews the lease while the job makes progress; hands long jobs to a new execution",
            60,
            (*_KINDS, *_ENDS, *_SPARK, "queue_url"),
        ),
        Function("complete", "Records how the attempt ended", 60, (*_KINDS, *_ENDS, *_SPARK, "queue_url")),
        Function(
            "make_due",
            "Makes a task due again after its execution failed",
            60,
            (*_KINDS, *_ENDS, *_SPARK),
        ),
        Function(
            "notifier",
            "Delivers events and callbacks when tasks end",
            60,
            (*_TASKS, "event_bus", "callback_keys_arn", "callback_authorities"),
        ),
    )
}
"""Every function of the service by name."""
GATEWAY: Final = Function(
    "gateway",
    "Handles drops with purge and mutations with a key in front of the catalog",
    30,
    (
        *_FRONT,
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
)
"""The rotation function of the secret, only where the settings rotate it."""
PROBE: Final = Function(
    "probe_front",
    "Requests the service's health through its endpoint, as callers do, once a minute",
    30,
    ("probe_url", "probe_address", "probe_secret_arn"),
)
"""The probe of the front, only where the settings give it a certificate."""
EVERY_FUNCTION: Final = {**FUNCTIONS, GATEWAY.name: GATEWAY, ROTATION.name: ROTATION, PROBE.name: PROBE}
"""All of them by name."""
NOTIFYING: Final = frozenset({"notifier"})
"""The functions of a deployment whose properties have ends of tasks notified; others lack them."""


def deployed_functions(properties: Mapping[str, str]) -> dict[str, Function]:
    """Return the functions of a deployment with these properties; raises InvalidProperty."""
    absent = frozenset() if notifies(properties) else NOTIFYING
    return {name: function for name, function in FUNCTIONS.items() if name not in absent}


def check_properties(properties: Mapping[str, str], added_types: Collection[str] = ()) -> None:
    """Read all properties as functions would, which report a wrong one only in their logs; raises InvalidProperty."""
    policies_of(properties)
    KeySettings.from_properties(properties)
    DropSettings.from_properties(properties)
    UpkeepLimits.from_properties(properties)
    UpkeepSettings.from_properties(properties)
    require_known_types(properties, TYPES.keys() | {*added_types})


def notifies(properties: Mapping[str, str]) -> bool:
    """Return whether ends of tasks are notified; raises InvalidProperty."""
    return policies_of(properties).notifications.is_on


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


def placeholder(function_name: str) -> str:
    """Return the name in STATE_MACHINE_DEFINITION for a function's ARN, `RunInlineFunctionArn` for `run_inline`."""
    return "".join(part.title() for part in function_name.split("_")) + "FunctionArn"
