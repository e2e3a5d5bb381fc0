"""The answers of the API (Delegation Service proposal, Appendix)."""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field


class Answer(BaseModel):
    """Base of answers; a client keeps the unknown members of a newer service. Errors never quote it."""

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)


class TaskAccepted(Answer):
    """202 (Delegation Service proposal, Asynchronous Task Submission & Status Endpoints)."""

    delegation_task_id: str
    status: Literal["QUEUED"]
    status_query_url: str


class KeptFiles(Answer):
    """How many files a purge kept for one reason; `code` is that of the guard."""

    code: str
    count: int = Field(ge=0)


class ExecutionResult(Answer):
    """The totals of a purge, and why it kept files that the table reaches."""

    files_deleted: int = Field(ge=0)
    bytes_deleted: int = Field(ge=0)
    files_kept: int = Field(default=0, ge=0)
    findings: tuple[KeptFiles, ...] = ()


class TaskSuccessResponse(Answer):
    """200 of the synchronous endpoint."""

    delegation_task_id: str
    status: Literal["COMPLETED_SUCCESS"]
    message: str | None = None
    execution_result: ExecutionResult | None = None


ERROR_PAGE: Final = "/delegation-service/api/docs"
"""The page that describes the error codes."""


class Dependency(Answer):
    """A part of the service that it depends on; `error_code` is the code of its failure."""

    name: str
    ok: bool
    error_code: str | None = None


class Health(Answer):
    """Whether the service works; without a token only `status`."""

    status: Literal["up", "down"]
    version: str | None = None
    realm: str | None = None
    dependencies: tuple[Dependency, ...] = ()


class Receipt(Answer):
    """The receipt of a purge; its other members are as stored."""

    format: int
    task_id: str
    status: str


class ErrorResponse(BaseModel):
    """An error; `status` is set only when the task's failure is terminal.

    `retryable` is set with 502 and 503: whether the same request may succeed later without an operator's help.
    `partly_deleted` is set, to true, only when the task failed after its first delete: the table is not whole.
    """

    model_config = ConfigDict(frozen=True)

    error_code: str
    message: str
    details: str | None = None
    delegation_task_id: str | None = None
    status: Literal["FAILED_TERMINAL"] | None = None
    retryable: bool | None = None
    partly_deleted: Literal[True] | None = None

    @computed_field  # type: ignore[prop-decorator]
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
