"""The metadata of a new table, and commits to tables and views, with the catalog's error answers.

Updates are applied by the service's own applier, which accepts what Iceberg accepts (persistence/iceberg/updates).
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from infra.local.catalog.errors import RestError, bad_request, commit_failed
from polaris_persistence.errors import IcebergConflict, InvalidIcebergMetadata, InvalidIcebergUpdate
from polaris_persistence.iceberg.ids import new_table_ids
from polaris_persistence.iceberg.updates.change import LAST_ADDED
from polaris_persistence.iceberg.updates.tables import DEFAULT_VERSION, updated_table
from polaris_persistence.iceberg.updates.views import updated_view

JsonObject = dict[str, Any]

FORMAT_VERSION = "format-version"


def new_metadata(request: Mapping[str, Any], location: str, *, now_ms: int) -> JsonObject:
    """Return the metadata of a table for a CreateTableRequest, with newly assigned field ids and no snapshot."""
    properties = dict(request.get("properties") or {})
    version = int(properties.pop(FORMAT_VERSION, DEFAULT_VERSION))
    try:
        ids = new_table_ids(request["schema"], request.get("partition-spec"), request.get("write-order"))
    except InvalidIcebergMetadata as error:
        raise bad_request(str(error)) from error
    updates: list[JsonObject] = [
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": ids.schema},
        {"action": "set-current-schema", "schema-id": LAST_ADDED},
        {"action": "add-spec", "spec": ids.spec},
        {"action": "set-default-spec", "spec-id": LAST_ADDED},
        {"action": "add-sort-order", "sort-order": ids.order},
        {"action": "set-default-sort-order", "sort-order-id": LAST_ADDED},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": properties},
    ]
    return committed(None, [], updates, now_ms=now_ms)


_STALE = "Cannot add snapshot with sequence number"


def committed(
    base: JsonObject | None,
    requirements: Iterable[Mapping[str, Any]],
    updates: Iterable[Mapping[str, Any]],
    *,
    now_ms: int,
    previous_location: str | None = None,
    newer: bool = True,
) -> JsonObject:
    """Return the metadata of a table after a commit, equal to `base` if nothing changes; None is no table.

    Raises RestError 409 for a requirement that is not met and for values behind the metadata, otherwise 400; before a
    `newer` Polaris also for a stale sequence number.
    """
    try:
        return updated_table(
            base, requirements, updates, now_ms=now_ms, previous_file=previous_location, new_uuid=str(uuid.uuid4())
        )
    except (IcebergConflict, InvalidIcebergUpdate) as error:
        if not newer and _STALE in error.reason:
            raise RestError(400, "ValidationException", error.reason) from error
        raise _answer(error) from error


def committed_view(
    base: JsonObject | None,
    requirements: Iterable[Mapping[str, Any]],
    updates: Iterable[Mapping[str, Any]],
    *,
    now_ms: int,
) -> JsonObject:
    """Return the metadata of a view after a commit, equal to `base` if nothing changes; None is no view."""
    try:
        return updated_view(base, requirements, updates, now_ms=now_ms, new_uuid=str(uuid.uuid4()))
    except (IcebergConflict, InvalidIcebergUpdate) as error:
        raise _answer(error) from error


def _answer(error: IcebergConflict | InvalidIcebergUpdate) -> RestError:
    return commit_failed(error.reason) if isinstance(error, IcebergConflict) else bad_request(error.reason)
