"""What the delegation service answers, as a caller sees it. Members of a newer service are kept, never refused."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from delegation.tasks.model import TERMINAL, Status
from delegation.tasks.policy import parse_duration

KEY_SUPPORTED = "idempotency-key-supported"
KEY_LIFETIME = "idempotency-key-lifetime"


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)


class ServiceConfig(_Answer):
    """`GET /v1/config`: the Iceberg REST protocol's CatalogConfig with the proposal's two properties."""

    properties: Mapping[str, Any] | None = None
    endpoints: tuple[str, ...] = ()

    @property
    def same_key_window(self) -> timedelta | None:
        """How long a key may be sent again, None when same-key retries must not be made.

        Both properties have to be there and valid (idempotency-key.txt, Discovery, "Client behavior").
        """
        properties = self.properties or {}
        lifetime = properties.get(KEY_LIFETIME)
        if properties.get(KEY_SUPPORTED) != "true" or not isinstance(lifetime, str) or not lifetime.startswith("P"):
            return None
        try:
            return parse_duration(lifetime)
        except ValueError:
            return None


class ExecutionResult(_Answer):
    """What a purge deleted."""

    files_deleted: int = 0
    bytes_deleted: int = 0


class TaskOutcome(_Answer):
    """200 of the synchronous endpoint."""

    delegation_task_id: str
    status: Literal["COMPLETED_SUCCESS"]
    message: str | None = None
    execution_result: ExecutionResult = Field(default_factory=ExecutionResult)


class TaskAccepted(_Answer):
    """202 of the asynchronous endpoint."""

    delegation_task_id: str
    status: Literal["QUEUED"]
    status_query_url: str


class TaskView(_Answer):
    """The record of a task, flat, under the names of delegation-service.txt §7 and DESIGN §2; timestamps are UTC."""

    task_id: str
    version: int
    revision: int = 0
    task_type: str
    task_payload: str = ""
    status: str
    received_timestamp: AwareDatetime | None = None
    last_status_change_ts: AwareDatetime | None = None
    attempt_count: int = 0
    next_scheduled_run_ts: AwareDatetime | None = None
    result_summary: str | None = None
    error_code: str | None = None
    engine: str | None = None
    files_planned: int | None = None
    files_deleted: int = 0
    files_failed: int = 0
    bytes_deleted: int = 0
    files_per_second: int | None = None
    eta_ts: AwareDatetime | None = None

    @property
    def is_terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.status == Status.SUCCESS

    @property
    def table(self) -> str | None:
        """The dotted name of the table that the payload names, None when it names none (another behavior's task)."""
        match _object(self.task_payload):
            case {
                "operation_parameters": {
                    "table_identity": {
                        "catalog_name": str(catalog),
                        "namespace_levels": [*levels],
                        "table_name": str(name),
                    }
                }
            }:
                return ".".join([catalog, *(str(level) for level in levels), name])
            case _:
                return None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The view of a record as `Task.public()` gives it."""
        return cls.model_validate(record)


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
