"""What operators send to pause and to resume, and what the service answers."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from delegation.wire.responses import Answer

Scope = Literal["all", "realm", "table"]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
_ONE_TABLE: JsonDict = {
    "oneOf": [
        {"properties": {"scope": {"const": "table"}, "table": {"type": "string"}}, "required": ["scope", "table"]},
        {"properties": {"scope": {"enum": ["all", "realm"]}, "table": {"type": "null"}}},
    ]
}
"""A table is named exactly if the scope is a table."""


class ResumeRequest(BaseModel):
    """Which pause ends; a pause of another scope stays."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, json_schema_extra=_ONE_TABLE)

    scope: Scope = Field(
        default="all",
        description="All tasks of the deployment, those that work for its realm, or those of one table.",
    )
    table: _Name | None = Field(
        default=None,
        description="With `scope` = `table`: the table's dotted name with its catalog.",
        examples=["lake.sales.orders"],
    )

    @model_validator(mode="after")
    def _names_its_table(self) -> Self:
        if (self.scope == "table") != (self.table is not None):
            raise PydanticCustomError("refused", "{reason}", {"reason": "names a table exactly if scope is table"})
        return self


class PauseRequest(ResumeRequest):
    """What is paused, and why."""

    mode: Literal["stop", "drain"] = Field(
        default="stop",
        description="With `stop` running attempts are handed over within a minute, uncounted; with `drain` they end, "
        "and only nothing new begins.",
    )
    reason: Annotated[str, StringConstraints(max_length=300)] = Field(
        default="", description="Why, for those who find the tasks paused."
    )


class PausedBy(Answer):
    """Who paused: the token's client and its subject."""

    client_id: str
    subject: str = ""


class ShownPause(Answer):
    """One pause."""

    scope: Scope
    realm: str | None = None
    table: str | None = None
    mode: Literal["stop", "drain"]
    since: datetime
    by: PausedBy
    reason: str = ""

    @property
    def what(self) -> str:
        return f"{self.scope} {self.table or self.realm}" if self.scope != "all" else "all"


class PauseList(Answer):
    """Everything that is paused."""

    pauses: tuple[ShownPause, ...] = ()
