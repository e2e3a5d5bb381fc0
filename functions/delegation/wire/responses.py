"""The answers of delegation-service.txt's appendix; members of a newer service are kept by a client, never refused."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """An answer; what it holds beside the declared members is kept. Errors never quote it."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)


class TaskAccepted(Answer):
    """202: the task is stored (delegation-service.txt §10.1)."""

    delegation_task_id: str
    status: Literal["QUEUED"]
    status_query_url: str


class ExecutionResult(Answer):
    """What a purge deleted."""

    files_deleted: int = Field(ge=0)
    bytes_deleted: int = Field(ge=0)


class TaskSuccessResponse(Answer):
    """200 of the synchronous endpoint."""

    delegation_task_id: str
    status: Literal["COMPLETED_SUCCESS"]
    message: str | None = None
    execution_result: ExecutionResult | None = None


class ErrorResponse(BaseModel):
    """Every error; `status` is there only when a task failed for good."""

    model_config = ConfigDict(frozen=True)

    error_code: str
    message: str
    details: str | None = None
    delegation_task_id: str | None = None
    status: Literal["FAILED_TERMINAL"] | None = None


def render(model: BaseModel) -> bytes:
    """A response's body: compact UTF-8 JSON in the order of the fields, absent ones left out."""
    return model.model_dump_json(exclude_none=True).encode()


def render_json(value: Mapping[str, Any]) -> bytes:
    """The same for a JSON object that has no model of its own: nothing is left out."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
