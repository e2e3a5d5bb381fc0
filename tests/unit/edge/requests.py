"""Request bodies with planted secrets that must not appear in any output."""

import copy
from typing import Any

SECRET = "Pl4ntedS3cretPl4nted"
"""The value of every credential in a body."""


def loaded() -> dict[str, Any]:
    """Return a body with a LoadTableResult (Delegation Service proposal, Appendix), secrets and ids beyond 2^53."""
    return {
        "common_payload": {
            "operation_type": "SYNCHRONOUS_TABLE_PURGE",
            "request_timestamp_utc": "2025-06-11T16:21:00Z",
            "realm_identifier": "POLARIS",
            "polaris_correlation_id": "drop-t1-request-uuid-1234",
        },
        "operation_parameters": {
            "table_identity": {
                "table_entity_id": "polaris-entity-id-for-T1",
                "catalog_name": "prod_catalog",
                "namespace_levels": ["NS1", "NESTED1"],
                "table_name": "T1",
            },
            "metadata_location": "s3://lake/ns1/t1/metadata/00002-aa.metadata.json",
            "metadata": {
                "location": "s3://lake/ns1/t1",
                "table-uuid": "9C12D441-03FE-4693-9A96-A0705DDF69C1",
                "format-version": 2,
                "snapshots": [{"snapshot-id": 9223372036854775807, "summary": {"operation": "append"}}],
            },
            "config": {"s3.access-key-id": SECRET, "s3.secret-access-key": SECRET, "s3.session-token": SECRET},
            "storage-credentials": [{"prefix": "s3://lake/ns1/t1", "config": {"s3.secret-access-key": SECRET}}],
            "properties": {"skipTrash": "true", "deleteMarkerFiles": "false"},
        },
    }


def identity_only() -> dict[str, Any]:
    """Return a body with the identity alone (Delegation Service proposal, Persistence, the full example)."""
    body = loaded()
    body["common_payload"]["operation_type"] = "TABLE_PURGE"
    for name in ("metadata_location", "metadata", "config", "storage-credentials"):
        del body["operation_parameters"][name]
    return body


ABSENT: Any = object()


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with the member at `path` (names joined by slashes) replaced, or removed if ABSENT."""
    result = copy.deepcopy(body)
    *parents, last = path.split("/")
    target = result
    for name in parents:
        target = target[name]
    if value is ABSENT:
        del target[last]
    else:
        target[last] = value
    return result
