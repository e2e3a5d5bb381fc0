"""What the receipts of all operations have in common: each is JSON, stored beside its plan."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from delegation.identifiers import TableIdentifier
from delegation.storage.base import PlanStore
from delegation.worksets.attempt import Attempt, receipt_key
from delegation.worksets.errors import FilesNotDeleted
from delegation.worksets.index import Finding, PlanIndex
from delegation.worksets.marks import failure_lists


class Recounted(Protocol):
    """The context of an operation: who asked for what, of which table."""

    @property
    def attempt(self) -> Attempt:
        """The attempt that ends with the receipt."""

    @property
    def request(self) -> Mapping[str, Any]:
        """The request's properties."""

    @property
    def asked_by(self) -> Callable[[], Mapping[str, Any]]:
        """Returns the members that name who asked for it and who cancelled it."""

    @property
    def identifier(self) -> TableIdentifier:
        """The table."""


def heading(ctx: Recounted, status: str, engine: str | None) -> dict[str, Any]:
    """Return the first members of a receipt."""
    return {
        "format": 1,
        "task_id": ctx.attempt.task_id,
        "attempts": ctx.attempt.attempt,
        "request": dict(ctx.request),
        **ctx.asked_by(),
        "status": status,
        "engine": engine,
        "identifier": {
            "catalog": ctx.identifier.catalog,
            "namespace": list(ctx.identifier.namespace),
            "name": ctx.identifier.name,
        },
    }


def failures(plans: PlanStore, indexes: Iterable[PlanIndex], failed: FilesNotDeleted | None) -> dict[str, Any]:
    """Return the members about files that could not be deleted: their exact number, a sample, the keys of the lists."""
    if failed is None:
        return {"files_failed": 0, "failures": None}
    found = {
        "code": failed.code,
        "sample": [{"path": path, "code": code} for path, code in failed.sample],
        "lists": [key for index in indexes for key in failure_lists(plans, index.plan_id)],
    }
    return {"files_failed": failed.count, "failures": found}


def add_findings(plans: PlanStore, receipt: str, found: Iterable[Finding]) -> None:
    """Add findings to a stored receipt, whose key is given."""
    document = json.loads(plans.get(receipt))
    document["findings"] += [one.model_dump() for one in found]
    plans.put(receipt, _written(document))


def put_receipt(plans: PlanStore, plan_id: str, receipt: Mapping[str, Any], *, approved: str | None = None) -> None:
    """Store a receipt beside the plan that was executed last, and beside the `approved` one that was reduced to it.

    The task of the dry run that made that one is asked whether it was executed.
    """
    for one in dict.fromkeys((approved or plan_id, plan_id)):
        plans.put(receipt_key(one), _written(receipt))


def _written(receipt: Mapping[str, Any]) -> bytes:
    return (json.dumps(receipt, indent=1, ensure_ascii=False) + "\n").encode()
