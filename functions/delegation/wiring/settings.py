"""What entry points read from their environment, once: small frozen models, composed per handler in `wiring`."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from delegation.tasks.life.policy import Policies

_ENVIRONMENT: Final = SettingsConfigDict(frozen=True, env_ignore_empty=True, populate_by_name=True, extra="ignore")
IDEMPOTENCY_LIFETIME: Final = timedelta(minutes=30)
"""How long an answer is kept after its task is terminal; advertised as PT30M (idempotency-key.txt, Discovery)."""


OPERATIONS: Final = "delegation.purge."
"""Begins the names of properties that an operation reads."""


class _Properties(BaseSettings):
    """`properties` is a JSON object of the proposal's property names and of our own."""

    model_config = _ENVIRONMENT

    properties: Annotated[Mapping[str, str], NoDecode] = Field(alias="DELEGATION_PROPERTIES", default_factory=dict)

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
        own = {name: value for name, value in self.properties.items() if not name.startswith(OPERATIONS)}
        return Policies.from_properties(own)


class BehaviorSettings(BaseSettings):
    """Behaviors beside those of this package: `module:function`, several separated by commas (`tasks.work.plugins`)."""

    model_config = _ENVIRONMENT

    behaviors: Annotated[tuple[str, ...], NoDecode] = Field(alias="DELEGATION_BEHAVIORS", default=())

    @field_validator("behaviors", mode="before")
    @classmethod
    def _parsed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


class QueueSettings(BaseSettings):
    """Where dispatches go."""

    model_config = _ENVIRONMENT

    queue_url: str = Field(alias="DELEGATION_QUEUE_URL", min_length=1)


class IdempotencySettings(BaseSettings):
    """Where idempotency records are."""

    model_config = _ENVIRONMENT

    idempotency_table: str = Field(alias="DELEGATION_IDEMPOTENCY_TABLE", min_length=1)


class RequestSettings(IdempotencySettings):
    """What accepting requests needs; the budget is in seconds."""

    realm: str = Field(alias="DELEGATION_REALM", min_length=1)
    synchronous_budget_seconds: float = Field(25, alias="DELEGATION_SYNCHRONOUS_BUDGET", gt=0, le=900)


class PurgeEnvironment(_Properties):
    """Where plans are, which tables are small, and what requests may choose."""

    plan_bucket: str = Field(alias="DELEGATION_PLAN_BUCKET", min_length=1)
    inline_max_files: int = Field(1_000, alias="DELEGATION_INLINE_MAX_FILES", ge=0)


class DispatcherSettings(BaseSettings):
    """Which state machine runs tasks."""

    model_config = _ENVIRONMENT

    state_machine_arn: str = Field(alias="DELEGATION_STATE_MACHINE_ARN", min_length=1)


class JobSettings(BaseSettings):
    """Which EMR Serverless application runs jobs."""

    model_config = _ENVIRONMENT

    application_id: str = Field(alias="DELEGATION_EMR_APPLICATION_ID", min_length=1)


class JobsStated(BaseSettings):
    """Whether there is an EMR Serverless application, for who can do without."""

    model_config = _ENVIRONMENT

    application_id: str | None = Field(None, alias="DELEGATION_EMR_APPLICATION_ID")


class JobStartSettings(JobSettings):
    """What a job run is started with."""

    role_arn: str = Field(alias="DELEGATION_EMR_JOB_ROLE_ARN", min_length=1)
    entry_point: str = Field(alias="DELEGATION_EMR_ENTRY_POINT", min_length=1)
    spark_parameters: str = Field("", alias="DELEGATION_EMR_SPARK_PARAMETERS")
