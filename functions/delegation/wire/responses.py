"""The answers of the API (Delegation Service proposal, Appendix)."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field

from delegation.timestamps import parse_duration

COMPONENT: Final = "x-component"
"""The member that gives a schema its own named component in the document (infra.api_schemas)."""


def described(**keywords: Any) -> Any:
    """Return an annotation that adds JSON Schema keywords, such as the pattern that a validator checks in Python."""
    return Field(json_schema_extra=keywords)


def component(name: str, description: str, **keywords: Any) -> Any:
    """Return an annotation that makes the type's schema a named component of the document."""
    return Field(description=description, json_schema_extra={COMPONENT: name, **keywords})


UUID_PATTERN: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
TaskId = Annotated[str, component("TaskId", "The id of a task.", format="uuid", pattern=UUID_PATTERN)]
Count = Annotated[int, Field(ge=0), described(format="int64")]
"""A number of files or bytes; it may exceed 32 bits."""


class Answer(BaseModel):
    """Base of answers. A client keeps the unknown members of a newer service. Errors never quote an answer.

    Validators are built when an answer is first made: a cold start of the API needs few of the models.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True, defer_build=True)


class TaskAccepted(Answer):
    """The task is stored (Delegation Service proposal, Asynchronous Task Submission & Status Endpoints)."""

    delegation_task_id: TaskId
    status: Literal["QUEUED"]
    status_query_url: Annotated[str, described(format="uri-reference")]


class KeptFiles(Answer):
    """How many files a purge kept for one reason."""

    code: str = Field(description="The code of the guard, such as PATHS_OUTSIDE_TABLE.")
    count: Count


class ExecutionResult(Answer):
    """The totals of a purge, and why it kept files of the table."""

    files_deleted: Count
    bytes_deleted: Count
    files_kept: Count = Field(default=0, description="The number of the table's files that were not deleted.")
    findings: tuple[KeptFiles, ...] = Field(
        default=(), description="Why files were kept, and what else the guards found."
    )


class TaskSuccessResponse(Answer):
    """The synchronous task succeeded (Delegation Service proposal, Appendix)."""

    delegation_task_id: TaskId
    status: Literal["COMPLETED_SUCCESS"]
    message: str | None = None
    execution_result: ExecutionResult | None = None


ERROR_PAGE: Final = "/delegation-service/api/docs"
"""The page that describes the error codes."""


class Dependency(Answer):
    """A dependency of the service. `error_code` is the code of its failure."""

    name: str
    ok: bool
    error_code: str | None = None


class MaintenanceSettings(Answer):
    """The limits of a deployment's policies. `error_code` is set if the policy file cannot be read."""

    properties: Mapping[str, str] = Field(description="The service's settings that policies and simulations obey.")
    policy_file: tuple[str, ...] | None = Field(
        default=None, description="The catalogs in the deployment's policy file; null without a file."
    )
    error_code: str | None = None


class Health(Answer):
    """Whether the service works. Without a token, the answer has only `status`."""

    status: Literal["up", "down"]
    version: str | None = Field(
        default=None,
        description="The release. This member and those below are present only if the request has a token.",
    )
    realm: str | None = None
    dependencies: tuple[Dependency, ...] = ()
    paused: tuple[Mapping[str, Any], ...] = Field(
        default=(), description="What operators paused, as `GET /v1/pause` shows it. The paused tasks do not run."
    )
    maintenance: MaintenanceSettings | None = None


class Receipt(Answer):
    """The receipt of a purge. docs/architecture/purging.md describes its other members."""

    format: int
    task_id: TaskId
    status: str


class FileTotal(Answer):
    """The number of files of a type, and their bytes according to the table's metadata."""

    files: Count
    bytes: Count


class PlannedFinding(Answer):
    """What a guard found during planning, with a few paths. After a dry run has ended, the paths are absent."""

    code: str
    count: Count
    sample: tuple[str, ...] = ()


class TaskPlace(Answer):
    """What a task waits for before its next attempt may start: a place among the running tasks.

    The tasks of a lane start in turn. Lanes start in turn by priority.
    """

    task_id: TaskId
    waits: bool = Field(description="Whether the task waits for a place. If not, the other members are null or empty.")
    lane: str | None = Field(default=None, description="The lane of the task, in words.")
    place: int | None = Field(
        default=None,
        ge=1,
        description="The position in the lane; 1 is next. Null until the next attempt is due, and beyond 1,000.",
    )
    reasons: tuple[str, ...] = Field(default=(), description="What keeps the next task of the lane from starting.")


class Estimate(Answer):
    """What the execution of a task's plan deletes, how long it takes, and what it costs.

    `seconds` and `cost` cover the whole plan, without planning and retries. Prices are of `prices_region` on the day
    `prices_as_of`.
    """

    task_id: TaskId
    task_status: str
    engine: Literal["inline", "spark"]
    files: Count
    bytes: Count
    by_type: Mapping[str, FileTotal]
    files_kept: Count
    findings: tuple[PlannedFinding, ...]
    keys_per_second: float = Field(ge=0, description="The assumed number of deletes per second.")
    seconds: float = Field(ge=0)
    delete_requests: Count
    other_requests: Count
    emr_vcpu_hours: float = Field(ge=0)
    emr_gb_hours: float = Field(ge=0)
    lambda_gb_seconds: float = Field(ge=0)
    cost: float = Field(ge=0)
    currency: str
    prices_as_of: str
    prices_region: str
    files_left: Count = Field(description="The number of planned files that are not yet deleted.")
    seconds_left: float = Field(
        ge=0,
        description="The time for the remaining files, at the measured rate of a running purge, else the assumed rate.",
    )


class ErrorResponse(BaseModel):
    """An error answer (Delegation Service proposal, Appendix), with the `type` of RFC 9457."""

    model_config = ConfigDict(frozen=True)

    error_code: str = Field(description="The error's machine-readable code.", examples=["CREDENTIAL_VENDING_FAILED"])
    message: str = Field(
        description="What happened, and what to do. For a bad request, it starts with the invalid field."
    )
    details: str | None = None
    delegation_task_id: TaskId | None = None
    status: Literal["FAILED_TERMINAL"] | None = Field(
        default=None, description="Present only if the task has failed permanently."
    )
    retryable: bool | None = Field(
        default=None,
        description="True if the same request may succeed later. False with 502 if an operator must act first.",
    )
    partly_deleted: Literal[True] | None = Field(
        default=None,
        description="Present only if the task failed after its first delete, so the table has lost files. Send the "
        "request again to finish the purge. Do not drop the table before then.",
    )

    @computed_field(  # type: ignore[prop-decorator]
        description="The code's entry on the page of error codes (RFC 9457).",
        examples=[f"{ERROR_PAGE}#CREDENTIAL_VENDING_FAILED"],
        json_schema_extra={"format": "uri-reference"},
    )
    @property
    def type(self) -> str:
        """The code's line on the page of errors (RFC 9457, Section 3.1.1), relative to the service's address."""
        return f"{ERROR_PAGE}#{self.error_code}"


def render(model: BaseModel) -> bytes:
    """Return a response's body: compact UTF-8 JSON in field order, without fields that are None."""
    return model.model_dump_json(exclude_none=True).encode()


def render_json(value: Mapping[str, Any]) -> bytes:
    """Return the same for a JSON object without a model, with every member."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


KEY_SUPPORTED = "idempotency-key-supported"
KEY_LIFETIME = "idempotency-key-lifetime"


_DURATION: Final = {"type": "string", "format": "duration", "examples": ["PT30M"]}


class ServiceConfig(Answer):
    """CatalogConfig (Iceberg REST Catalog API), with the two properties of the Idempotency-Key proposal.

    Idempotency is advertised twice: in `properties` as the proposal has it, and at the top level for Iceberg clients.
    """

    model_config = ConfigDict(json_schema_extra={"required": ["defaults", "overrides", "properties", "endpoints"]})

    properties: Annotated[
        Mapping[str, Any] | None,
        described(
            required=[KEY_SUPPORTED],
            properties={KEY_SUPPORTED: {"type": "string", "enum": ["true", "false"]}, KEY_LIFETIME: _DURATION},
        ),
    ] = None
    endpoints: tuple[str, ...] = ()

    @property
    def same_key_window(self) -> timedelta | None:
        """How long a request may be retried with its key, None if not at all (Idempotency-Key proposal, Discovery)."""
        properties = self.properties or {}
        lifetime = properties.get(KEY_LIFETIME)
        if properties.get(KEY_SUPPORTED) != "true" or not isinstance(lifetime, str) or not lifetime.startswith("P"):
            return None
        try:
            return parse_duration(lifetime)
        except ValueError:
            return None
