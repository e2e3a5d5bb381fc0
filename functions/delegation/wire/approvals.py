"""What operators send to approve a plan that waits for a person."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from delegation.wire.requests import TableUuid

PLAN_PATTERN: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]{1,9}/[0-9a-f]{1,64}$"


class PlanApproval(BaseModel):
    """Which plan is approved; it is executed as it was made, without what is needed by then."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    plan: Annotated[str, StringConstraints(pattern=PLAN_PATTERN)] = Field(
        description="The id of the plan with which the task ended.",
        examples=["01234567-89ab-cdef-0123-456789abcdef/1/0123456789ab"],
    )
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="The SHA-256 of the plan's index, if only the plan with this one is approved."
    )
    including: tuple[TableUuid, ...] = Field(
        default=(),
        max_length=1_000,
        description="The uuids of foreign tables that the plan reports, whose files are deleted as well.",
    )
