import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from delegation.environment import EnvironmentSettings
from delegation.tasks.life.lanes import PREFIX, Caps
from delegation.tasks.life.policy import InvalidProperty, Policies

if TYPE_CHECKING:
    from delegation.gateway.drop.settings import DropSettings
    from delegation.idempotency.settings import KeySettings


class _Properties(EnvironmentSettings):
    """`properties` is a JSON object of property names and values (docs/workers.md)."""

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
    """Where tasks are stored, and the policies of retries and leases. `store` is `table` for the task table, named by
    `tasks_table`, or `persistence` for the two tables of the NoSQL persistence."""

    store: Literal["table", "persistence"] = Field("table", alias="DELEGATION_TASK_STORE")
    tasks_table: str = Field("", alias="DELEGATION_TASKS_TABLE")
    objects_table: str = Field("", alias="DELEGATION_OBJECTS_TABLE")
    persistence_references: str = Field("", alias="DELEGATION_PERSISTENCE_REFERENCES_TABLE")

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: Any) -> Any:
        """Validate each table, also an unset one, by the name of its variable."""
        aliases = (field.alias for field in cls.model_fields.values() if field.annotation is str and field.alias)
        return {**dict.fromkeys(aliases, ""), **values}

    @field_validator("tasks_table", "objects_table", "persistence_references", mode="after")
    @classmethod
    def _named(cls, value: str, info: ValidationInfo) -> str:
        store = "table" if info.field_name == "tasks_table" else "persistence"
        if not value and info.data.get("store") == store:
            raise PydanticCustomError("missing", "Field required")
        return value

    def policies(self) -> Policies:
        """Return the policies. Raises InvalidProperty, except for properties of operations and of keys."""
        from delegation.wiring.types import of_tasks  # noqa: PLC0415 - most processes have no policies

        return Policies.from_properties(of_tasks(self.properties))


class LimitSettings(_Properties):
    """The caps of a deployment, for a command that reads its task table."""

    def limits(self) -> Caps | None:
        """Return the caps of the properties, None without any. Raises InvalidProperty."""
        limited = {name: value for name, value in self.properties.items() if name.startswith(PREFIX)}
        return Caps.from_properties(limited, InvalidProperty) if self.properties else None


SWEEPS: Final = "delegation.wiring.persistent_tasks:sweeps"
"""The behavior that a store on the persistence adds, named like those of DELEGATION_BEHAVIORS."""


class BehaviorSettings(EnvironmentSettings):
    """Added behaviors as `module` or `module:function`, separated by commas (docs/workers.md)."""

    behaviors: tuple[str, ...] = Field(alias="DELEGATION_BEHAVIORS", default=())

    @field_validator("behaviors", mode="before")
    @classmethod
    def _parsed(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


class QueueSettings(EnvironmentSettings):
    queue_url: str = Field(alias="DELEGATION_QUEUE_URL", min_length=1)


class NotificationQueueSettings(EnvironmentSettings):
    """The queues of notifications, if any: of callbacks, of events, and for receivers set apart."""

    queue_url: str | None = Field(None, alias="DELEGATION_NOTIFICATION_QUEUE_URL", min_length=1)
    events_url: str | None = Field(None, alias="DELEGATION_EVENT_QUEUE_URL", min_length=1)
    apart_url: str | None = Field(None, alias="DELEGATION_APART_QUEUE_URL", min_length=1)


class NotifierSettings(EnvironmentSettings):
    """What delivers notifications: the event bus, the reference of callbacks' keys, and a PEM of authorities.
    `callback_loopback`: receivers may be on this machine, like those of the local stack."""

    event_bus: str = Field("default", alias="DELEGATION_EVENT_BUS", min_length=1)
    callback_keys: str = Field("", alias="DELEGATION_CALLBACK_KEYS")
    callback_authorities: str | None = Field(None, alias="DELEGATION_CALLBACK_AUTHORITIES")
    callback_loopback: bool = Field(False, alias="DELEGATION_CALLBACK_LOOPBACK")


class IdempotencySettings(_Properties):
    """The table of idempotency records, and how keys are treated."""

    idempotency_table: str = Field(alias="DELEGATION_IDEMPOTENCY_TABLE", min_length=1)

    def keys(self) -> "KeySettings":
        """Return how keys are treated (`polaris.idempotency.*`). Raises InvalidProperty."""
        from delegation.idempotency.settings import KeySettings  # noqa: PLC0415 - most processes know no keys

        return KeySettings.from_properties(self.properties)


class RequestSettings(IdempotencySettings):
    realm: str = Field(alias="DELEGATION_REALM", min_length=1)
    synchronous_budget_seconds: float = Field(25, alias="DELEGATION_SYNCHRONOUS_BUDGET", gt=0, le=900)


class TombstoneEnvironment(EnvironmentSettings):
    tombstones_table: str | None = Field(None, alias="DELEGATION_TOMBSTONES_TABLE", min_length=1)


class RequiredTombstoneEnvironment(EnvironmentSettings):
    """The table of tombstones, for a process that requires one."""

    tombstones_table: str = Field(alias="DELEGATION_TOMBSTONES_TABLE", min_length=1)


class DropEnvironment(_Properties):
    """How drops with purge are done; a caller that waits for the purge is answered after `budget_seconds`."""

    budget_seconds: float = Field(25, alias="DELEGATION_SYNCHRONOUS_BUDGET", gt=0, le=900)

    def settings(self) -> "DropSettings":
        """Return the settings `delegation.drop.*`. Raises InvalidProperty."""
        from delegation.gateway.drop.settings import DropSettings  # noqa: PLC0415 - most processes drop no tables

        return DropSettings.from_properties(self.properties)


class ReferenceEnvironment(EnvironmentSettings):
    references_table: str = Field(alias="DELEGATION_REFERENCES_TABLE", min_length=1)


class PurgeEnvironment(_Properties):
    """The settings of purges; without `inline_max_files` the limit of the inline engine is INLINE_MAX_FILES."""

    plan_bucket: str = Field(alias="DELEGATION_PLAN_BUCKET", min_length=3)
    inline_max_files: int | None = Field(None, alias="DELEGATION_INLINE_MAX_FILES", ge=0)
    spark: Literal["on", "off"] = Field("on", alias="DELEGATION_SPARK")


class ResultSettings(EnvironmentSettings):
    """The bucket for results too large for the task table, if there is one."""

    record_bucket: str | None = Field(None, alias="DELEGATION_PLAN_BUCKET", min_length=3)


class DispatcherSettings(EnvironmentSettings):
    """The state machine that runs tasks."""

    state_machine_arn: str = Field(alias="DELEGATION_STATE_MACHINE_ARN", min_length=1)


class JobSettings(EnvironmentSettings):
    """The EMR Serverless application, and former ones whose job runs may not have ended, separated by commas."""

    application_id: str = Field(alias="DELEGATION_EMR_APPLICATION_ID", min_length=1)
    former_application_ids: str = Field("", alias="DELEGATION_EMR_FORMER_APPLICATION_IDS")

    @property
    def former(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.former_application_ids.split(",") if name.strip())


class OptionalJobSettings(EnvironmentSettings):
    """The EMR Serverless application of a process that can do without one, and the jars of its own Spark session."""

    application_id: str | None = Field(None, alias="DELEGATION_EMR_APPLICATION_ID")
    jars: str = Field("", alias="DELEGATION_EMR_JARS")


class JobStartSettings(JobSettings):
    """The settings for starting job runs; each run may write only to its own folders of `record_bucket`."""

    role_arn: str = Field(alias="DELEGATION_EMR_JOB_ROLE_ARN", min_length=1)
    entry_point: str = Field(alias="DELEGATION_EMR_ENTRY_POINT", min_length=1)
    spark_parameters: str = Field("", alias="DELEGATION_EMR_SPARK_PARAMETERS")
    jars: str = Field("", alias="DELEGATION_EMR_JARS")
    record_bucket: str | None = Field(None, alias="DELEGATION_PLAN_BUCKET", min_length=3)


class ApiSettings(EnvironmentSettings):
    metrics_namespace: str = Field(alias="POWERTOOLS_METRICS_NAMESPACE", min_length=1, max_length=256)
    tracing: bool = Field(False, alias="DELEGATION_TRACING")
