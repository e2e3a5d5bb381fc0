"""The parameters of a table purge as a task: what is stored as `task_payload`, and the task's id."""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Self

import rfc8785
from pydantic import BaseModel, ConfigDict

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.behavior.kinds import KIND, PLAN_KIND
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.timestamps import isoformat

DRY_RUN: Final = "dry-run"
PLAN: Final = "plan"


class TablePurge(BaseModel):
    """What to purge and how: never a credential, and of the metadata only what identifies the table (DESIGN §3)."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    realm: str
    identifier: TableIdentifier
    table_entity_id: str | None = None
    table_uuid: str
    metadata_location: str
    location: str
    format_version: int
    properties: Mapping[str, str]
    correlation_id: str | None = None
    requested_at: datetime | None = None

    @property
    def is_dry_run(self) -> bool:
        """Whether only a plan is wanted (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def kind(self) -> str:
        """The stored task type."""
        return PLAN_KIND if self.is_dry_run else KIND

    @property
    def task_id(self) -> str:
        """The purge's id: one per table uuid, so that two purges of one table cannot run side by side."""
        if self.is_dry_run:
            return str(uuid.uuid4())
        return purge_id(self.realm, self.identifier.catalog, self.table_uuid)

    def to_payload(self) -> str:
        """The `task_payload` of delegation-service.txt §7: common_payload and operation_parameters, as JSON text."""
        common: dict[str, Any] = {"operation_type": self.kind, "realm_identifier": self.realm}
        if self.requested_at is not None:
            common["request_timestamp_utc"] = isoformat(self.requested_at)
        if self.correlation_id is not None:
            common["polaris_correlation_id"] = self.correlation_id
        identity: dict[str, Any] = {
            "catalog_name": self.identifier.catalog,
            "namespace_levels": list(self.identifier.namespace),
            "table_name": self.identifier.name,
        }
        if self.table_entity_id is not None:
            identity["table_entity_id"] = self.table_entity_id
        parameters = {
            "table_identity": identity,
            "metadata_location": self.metadata_location,
            "metadata": {
                "location": self.location,
                "table-uuid": self.table_uuid,
                "format-version": self.format_version,
            },
            "properties": dict(self.properties),
        }
        return json.dumps({"common_payload": common, "operation_parameters": parameters}, sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """The parameters of a stored task; MalformedRecord when its payload is none of ours."""
        try:
            document = json.loads(task.task_payload)
            common, parameters = document["common_payload"], document["operation_parameters"]
            identity, metadata = parameters["table_identity"], parameters["metadata"]
            return cls(
                realm=common["realm_identifier"],
                identifier=TableIdentifier(
                    identity["catalog_name"], tuple(identity["namespace_levels"]), identity["table_name"]
                ),
                table_entity_id=identity.get("table_entity_id"),
                table_uuid=metadata["table-uuid"],
                metadata_location=parameters["metadata_location"],
                location=metadata["location"],
                format_version=metadata["format-version"],
                properties=parameters["properties"],
                correlation_id=common.get("polaris_correlation_id"),
                requested_at=common.get("request_timestamp_utc"),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedRecord(f"task {task.task_id}: task_payload: {type(error).__name__}") from None


def purge_id(realm: str, catalog: str, table_uuid: str) -> str:
    """uuid5 of the RFC 8785 form of [realm, "TABLE_PURGE", catalog, lower-case table-uuid] (DESIGN §2)."""
    name = rfc8785.dumps([realm, KIND, catalog, table_uuid.lower()]).decode()
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{name}"))


def identifier_text(identifier: TableIdentifier) -> str:
    """`purged_identifier`: a JSON array, for a dotted name cannot tell a level with a dot from two levels."""
    return json.dumps([identifier.catalog, *identifier.namespace, identifier.name], ensure_ascii=False)
