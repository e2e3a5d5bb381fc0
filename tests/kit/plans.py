"""An index of a plan, for tests of what reads one."""

from typing import Any

from delegation.removal.index import PlanIndex


def plan_index(**fields: Any) -> PlanIndex:
    """Return the index of a plan without files, with other fields than the usual ones."""
    usual: dict[str, Any] = {
        "plan_id": "task/1/a",
        "task_id": "task",
        "attempt": 1,
        "table_uuid": "u",
        "identifier": "lake.db.orders",
        "metadata_location": "s3://lake/wh/orders/metadata/1.metadata.json",
        "last_updated_ms": 1,
        "format_version": 2,
        "snapshots": 1,
        "engine": "inline",
        "created_at": "2026-01-01T00:00:00+00:00",
        "roots": ("s3://lake/wh/orders/",),
        "covered": None,
        "outside": "keep",
        "chunks": (),
        "counts": {},
        "findings": (),
    }
    return PlanIndex(**usual | fields)
