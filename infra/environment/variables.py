"""The names of the environment variables, the room for them, and what moves into an object in S3 without room."""

import re
from collections.abc import Mapping
from typing import Final

from delegation.environment import SETTINGS_OBJECT

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
