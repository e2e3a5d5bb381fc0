"""The bodies and answers of pausing and resuming, and tombstones (tables renamed by a drop) as the API returns them."""

from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from delegation.wire.responses import Answer, component, described

Scope = Literal["all", "realm", "table"]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
_ONE_TABLE: JsonDict = {
    "oneOf": [
        {"properties": {"scope": {"const": "table"}, "table": {"type": "string"}}, "required": ["scope", "table"]},
        {"properties": {"scope": {"enum": ["all", "realm"]}, "table": {"type": "null"}}},
    ]
}
"""A table is named if and only if the scope is a table."""


class ResumeRequest(BaseModel):
    """The scope whose pause ends. Pauses of other scopes stay."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, json_schema_extra=_ONE_TABLE)

    scope: Scope = Field(
        default="all",
        description="All tasks of the deployment, the tasks of its realm, or the tasks of one table.",
    )
    table: _Name | None = Field(
        default=None,
        description="The table's dotted name with its catalog. Required if `scope` is `table`, else not allowed.",
        examples=["lake.sales.orders"],
    )

    @model_validator(mode="after")
    def _names_its_table(self) -> Self:
        if (self.scope == "table") != (self.table is not None):
            raise PydanticCustomError(
                "refused", "{reason}", {"reason": "must have `table` if `scope` is `table`, and otherwise none"}
            )
        return self


class PauseRequest(ResumeRequest):
    """What to pause, and why."""

    mode: Literal["stop", "drain"] = Field(
        default="stop",
        description="In both modes, no attempt starts. `stop` also hands over running attempts within a minute, and "
        "does not count them. `drain` lets them finish.",
    )
    reason: Annotated[str, StringConstraints(max_length=300)] = Field(
        default="", description="The reason, shown to everybody who reads the pause."
    )


class PausedBy(Answer):
    """The token's client and subject that paused the scope."""

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


STATES: Final = [
    "PENDING", "RENAMED", "PURGING", "PURGED", "DROPPED", "RESTORING", "RESTORED", "FAILED", "CLEARED",
    "DISMISSED",
]  # fmt: skip
"""A client accepts the states of a newer service too."""
ENDED: Final = frozenset({"DROPPED", "RESTORED", "CLEARED", "DISMISSED"})
ID_PATTERN: Final = "^[0-9a-f][0-9a-f-]{0,99}$"
TombstoneId = Annotated[str, component("TombstoneId", "The id of a tombstone.", pattern=ID_PATTERN)]
Levels = Annotated[tuple[str, ...], Field(min_length=1, max_length=100)]


class TombstoneRecord(BaseModel):
    """A table that was dropped with its files: its former and its present name, and the state of its purge.

    RENAMED: waits for its purge. FAILED: waits for an operator. Both can be restored. DROPPED, RESTORED, CLEARED and
    DISMISSED have ended. The files of a DISMISSED table stay; `problem` has the command that deletes them.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    tombstone_id: TombstoneId
    state: Annotated[str, described(enum=STATES)]
    catalog: str
    namespace: tuple[str, ...]
    name: str
    destination_namespace: tuple[str, ...]
    destination_name: str
    caller: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    realm: str | None = None
    version: int | None = None
    waits: bool = Field(default=False, description="Whether the caller of the drop waits for the purge.")
    expected_uuid: str | None = None
    table_uuid: str | None = None
    metadata_location: str | None = None
    location: str | None = None
    format_version: int | None = None
    grace_until: AwareDatetime | None = Field(
        default=None, description="The end of the grace period. The purge does not start earlier."
    )
    task_id: str | None = Field(default=None, description="The task that purges the table and then drops it.")
    restore_namespace: tuple[str, ...] | None = None
    restore_name: str | None = None
    problem: str | None = None
    attempts: int = Field(default=0, ge=0, description="How many times in a row the service failed to finish the drop.")
    trouble: str | None = Field(default=None, description="Why the service failed, or what an operator must do.")
    dismissed_at: AwareDatetime | None = None

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def table(self) -> str:
        """The table's name before the drop, as text."""
        return ".".join((self.catalog, *self.namespace, self.name))

    @property
    def present(self) -> str:
        """The table's name since the drop, as text."""
        return ".".join((self.catalog, *self.destination_namespace, self.destination_name))


class TombstoneList(BaseModel):
    """A page of tombstones, the newest first. Ended tombstones are kept for 90 days."""

    model_config = ConfigDict(frozen=True, extra="allow")

    tombstones: tuple[TombstoneRecord, ...]
    next_page_token: str | None = Field(default=None, description="The token of the next page; null on the last page.")


class RestoredName(BaseModel):
    """A new name for the restored table, in the same catalog."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: Levels
    name: str = Field(min_length=1, max_length=1024)


class RestoreRequest(BaseModel):
    """The name under which a table is restored. Default: its former name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: RestoredName | None = None
