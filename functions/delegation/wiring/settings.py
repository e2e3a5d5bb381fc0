"""What entry points read from their environment, once: small frozen models, composed per handler in `wiring`."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from pydantic import Field, field_validator

from delegation.environment import EnvironmentSettings
from delegation.tasks.life.policy import Policies

IDEMPOTENCY_LIFETIME: Final = timedelta(minutes=30)
"""How long an answer is kept after its task is terminal; advertised as PT30M (idempotency-key.txt, Discovery)."""


class _Properties(EnvironmentSettings):
    """`properties` is a JSON object of the proposal's property names and of our own."""

    properties: Mapping[str, str] = Field(alias="DELEGATION_PROPERTIES", default_factory=dict)

    @field_validator("properties", mode="before")
    @classmethod
    def _parsed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("is not a JSON object") from None


class TaskSettings(_Properties):
    """Where tasks are and how they are retried."""

    tasks_table: str = Field(alias="DELEGATION_TASKS_TABLE", min_length=1)

    def policies(self) -> Policies:
        """The policies; InvalidProperty names a property that is unknown or wrong, but for those of operations."""
        own = {name: value for name, value in self.properties.items() if not name.startswith("delegation.purge.")}
        return Policies.from_properties(own)


class BehaviorSettings(EnvironmentSettings):
    """Behaviors beside those of this package: `module:function`, several separated by commas (`tasks.work.plugins`)."""

    behaviors: tuple[str, ...] = Field(alias="DELEGATION_BEHAVIORS", default=())

    @field_validator("behaviors", mode="before")
    @classmethod
    def _parsed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


class QueueSettings(EnvironmentSettings):
    """Where dispatches go."""

    queue_url: str = Field(alias="DELEGATION_QUEUE_URL", min_length=1)


class IdempotencySettings(EnvironmentSettings):
    """Where idempotency records are."""

    idempotency_table: str = Field(alias="DELEGATION_IDEMPOTENCY_TABLE", min_length=1)


class RequestSettings(IdempotencySettings):
    """What accepting requests needs; the budget is in seconds."""

    realm: str = Field(alias="DELEGATION_REALM", min_length=1)
    synchronous_budget_seconds: float = Field(25, alias="DELEGATION_SYNCHRONOUS_BUDGET", gt=0, le=900)


class PurgeEnvironment(_Properties):
    """Where plans are, which tables are small, and what requests may choose."""

    plan_bucket: str = Field(alias="DELEGATION_PLAN_BUCKET", min_length=3)
    inline_max_files: int = Field(1_000, alias="DELEGATION_INLINE_MAX_FILES", ge=0)


class DispatcherSettings(EnvironmentSettings):
    """Which state machine runs tasks."""

    state_machine_arn: str = Field(alias="DELEGATION_STATE_MACHINE_ARN", min_length=1)


class JobSettings(EnvironmentSettings):
    """Which EMR Serverless application runs jobs."""

    application_id: str = Field(alias="DELEGATION_EMR_APPLICATION_ID", min_length=1)


class JobsStated(EnvironmentSettings):
    """Whether there is an EMR Serverless application, for who can do without."""

    application_id: str | None = Field(None, alias="DELEGATION_EMR_APPLICATION_ID")


class JobStartSettings(JobSettings):
    """What a job run is started with."""

    role_arn: str = Field(alias="DELEGATION_EMR_JOB_ROLE_ARN", min_length=1)
    entry_point: str = Field(alias="DELEGATION_EMR_ENTRY_POINT", min_length=1)
    spark_parameters: str = Field("", alias="DELEGATION_EMR_SPARK_PARAMETERS")


class ApiSettings(EnvironmentSettings):
    """How the API reports."""

    metrics_namespace: str = Field(alias="POWERTOOLS_METRICS_NAMESPACE", min_length=1, max_length=256)
    tracing: bool = Field(False, alias="DELEGATION_TRACING")
