"""What the task types of work on one table share.

What is read of a stored payload without its models (admission, labels), what becomes of the details of a plan, and what
answers show of them.
"""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Labels, Task
from delegation.tasks.life.task_type import Measured

if TYPE_CHECKING:
    from delegation.attempts.details import PlanDetails

    DetailsModel = Callable[[], type[PlanDetails]]
    """Loads the model of an operation's details, which most processes do without."""

FILES: Final = "files"


def id_of_parts(parts: list[Any]) -> str:
    """Return the uuid5 of canonical JSON (RFC 8785)."""
    import rfc8785  # noqa: PLC0415 - the command lists task types without the extra `service`

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{rfc8785.dumps(parts).decode()}"))


def purge_id(realm: str, catalog: str, table_uuid: str) -> str:
    """Return the id of a table's purge; parts of other operations look for it without importing purges."""
    return id_of_parts([realm, "TABLE_PURGE", catalog, table_uuid.lower()])


def table_traits(payload: str, known: Traits) -> Traits:
    """Return `known` with the catalog of a stored payload as the tenant, and the bucket of its table's location.

    What a policy asks for is in the background: no task of a caller waits for it.
    """
    try:
        parameters = json.loads(payload)["operation_parameters"]
        catalog, location = parameters["table_identity"]["catalog_name"], parameters["metadata"]["location"]
        is_background = known.is_background or "policy" in parameters
        return replace(known, tenant=str(catalog), bucket=urlsplit(str(location)).netloc, is_background=is_background)
    except (ValueError, KeyError, TypeError, AttributeError):
        return known


def table_place(payload: Any) -> tuple[str, str] | None:
    """Return the uuid and the location of the table of a stored payload, None for a payload without a table."""
    try:
        metadata = json.loads(payload)["operation_parameters"]["metadata"]
        return str(metadata["table-uuid"]).lower(), str(metadata["location"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def is_without_table(payload: Any) -> bool:
    """Return whether a stored payload is a document that names no table, as that of a maintenance."""
    try:
        document = json.loads(payload)
    except (ValueError, TypeError):
        return False
    return isinstance(document, dict) and "operation_parameters" not in document


def catalog_of(payload: Any) -> str:
    """Return the catalog of the table of a stored payload, an empty text for any other value."""
    try:
        catalog = json.loads(payload)["operation_parameters"]["table_identity"]["catalog_name"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return catalog if isinstance(catalog, str) else ""


def table_labels(payload: str) -> Labels:
    """Return the labels of a stored payload: its table's dotted name, its request's correlation id, its realm."""
    try:
        document = json.loads(payload)
        identity = document["operation_parameters"]["table_identity"]
        parts = [identity["catalog_name"], *identity["namespace_levels"], identity["table_name"]]
        common = document["common_payload"]
        found = (common.get(name) for name in ("polaris_correlation_id", "realm_identifier"))
        correlation_id, realm = (text if isinstance(text, str) else None for text in found)
        return Labels(".".join(map(str, parts)), correlation_id, realm)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Labels()


@dataclass(frozen=True, slots=True)
class PlanDetailRules:
    """DetailRules of work with a plan: what began to change its table is resumed with the plan.

    After a FAILURE with a code in `ends_plan` it is not, since the plan must delete nothing. Another submission keeps
    the details in `kept` and none of the model's others.
    """

    model: "DetailsModel"
    ends_plan: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()

    def resumes(self, task: Task) -> bool:
        """See DetailRules.resumes."""
        return task.effects_began_ts is not None and task.error_code not in self.ends_plan

    def restarted(self, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """See DetailRules.restarted."""
        gone = self.model().model_fields.keys() - self.kept
        return {name: value for name, value in details.items() if name not in gone}


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """What an answer about work with a plan shows beside the record; `model` is that of its details."""

    model: "DetailsModel"

    def measured(self, task: Task) -> Measured | None:
        """Return the files deleted of those planned; None for details that this release cannot read."""
        try:
            details = self.model().of(task)
        except MalformedRecord:
            return None
        return Measured(details.files_deleted, details.files_planned, FILES)

    def receipt_key(self, task: Task) -> str | None:
        """Return the key of the receipt in the plan bucket, None without a plan; raises MalformedRecord.

        It is beside the plan that was executed last.
        """
        from delegation.worksets.attempt import receipt_key  # noqa: PLC0415 - most processes show no receipt

        segments = self.model().of(task).plan_segments
        return receipt_key(segments[-1].id) if segments else None
