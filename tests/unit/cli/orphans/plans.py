"""Plans of removals of orphan files, as the service stores them."""

from typing import Any

from delegation.removal.chunks import Total
from delegation.removal.orphans.index import OrphanIndex


def orphan_index(**changed: Any) -> OrphanIndex:
    """Return the index of a plan without files, with these members changed."""
    return OrphanIndex.model_validate(
        {
            "plan_id": "task/1/ab",
            "task_id": "task",
            "attempt": 1,
            "table_uuid": "u",
            "identifier": "lake.sales.orders",
            "metadata_location": "s3://lake/t/metadata/1.json",
            "last_updated_ms": 0,
            "format_version": 2,
            "snapshots": 1,
            "engine": "inline",
            "created_at": "2027-01-15T08:00:00+00:00",
            "roots": ("s3://lake/t/",),
            "covered": None,
            "outside": "keep",
            "chunks": (),
            "counts": {},
            "findings": (),
            "stage": "planned",
            "listed": Total(files=1, bytes=1),
            "listed_at": 0,
            "age": 0,
            **changed,
        }
    )
