"""Requests for rewrites: their bodies, and how each relates to the stored task."""

import json
from collections.abc import Mapping
from typing import ClassVar, Final, Self

from delegation.removal.requests import TableCheck, TableForm, TableWork
from delegation.rewrites.task_type import (
    COMPACTION_PLAN_TASK_TYPE,
    COMPACTION_TASK_TYPE,
    MANIFESTS_PLAN_TASK_TYPE,
    MANIFESTS_TASK_TYPE,
    UPKEEP,
)
from delegation.rewrites.terms import (
    COMPACTION_OPTIONS,
    MANIFESTS_OPTIONS,
    CompactionLimits,
    CompactionTerms,
    ManifestLimits,
    ManifestTerms,
)
from delegation.tasks.life.model import Task
from delegation.tasks.options import RequestSources
from delegation.wire.requests import ReceivedBody
from delegation.wire.tables import IdentityParameters

_POLICY: Final = "policy"
_METADATA_LOCATION: Final = "metadata-location"


class CompactionParameters(IdentityParameters):
    """The table whose data files are compacted, and how (docs/compaction.md). The service loads it."""


class CompactionPayload(ReceivedBody):
    """The payload of a compaction."""

    operation_parameters: CompactionParameters


class RewriteManifestsParameters(IdentityParameters):
    """The table whose manifests are rewritten, and which of them (docs/compaction.md). The service loads it."""


class RewriteManifestsPayload(ReceivedBody):
    """The payload of a rewrite of manifests."""

    operation_parameters: RewriteManifestsParameters


class TableRewrite(TableWork):
    """A rewrite of a known table's files, with the table's state when the request was accepted. `policy` names the
    policy that required it, None for a caller's. No request can set it."""

    policy: str | None = None

    def of_the_work(self) -> dict[str, str]:
        """Return the properties that decide what is done, not who is notified, and the policy."""
        return super().of_the_work() | ({} if self.policy is None else {"the policy": self.policy})

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence).

        The metadata location is not stored where a purge has it. A Spark job of a former release treats every task as a
        purge, and may get this one while functions are replaced. So it fails, and deletes nothing.
        """
        document = self.document(self.task_type)
        parameters = document["operation_parameters"]
        parameters["metadata"][_METADATA_LOCATION] = parameters.pop("metadata_location")
        if self.policy is not None:
            parameters[_POLICY] = self.policy
        return json.dumps(document, sort_keys=True)

    @classmethod
    def of_stored(cls, task_payload: str) -> Self:
        """Parse a stored `task_payload`. Raises ValueError, KeyError or TypeError if it is malformed."""
        document = json.loads(task_payload)
        parameters = document["operation_parameters"]
        parameters["metadata_location"] = parameters["metadata"][_METADATA_LOCATION]
        rewrite = super().of_stored(json.dumps(document))
        policy = parameters.get(_POLICY)
        return rewrite if policy is None else rewrite.model_copy(update={"policy": str(policy)})

    def resumes(self, _task: Task) -> bool:
        """Return False: a failed rewrite leaves a whole table, and another run decides again."""
        return False


class TableCompaction(TableRewrite):
    work_task_type: ClassVar[str] = COMPACTION_TASK_TYPE
    plan_task_type: ClassVar[str] = COMPACTION_PLAN_TASK_TYPE
    does: ClassVar[str] = "compacts"


class TableManifestsRewrite(TableRewrite):
    work_task_type: ClassVar[str] = MANIFESTS_TASK_TYPE
    plan_task_type: ClassVar[str] = MANIFESTS_PLAN_TASK_TYPE
    does: ClassVar[str] = "rewrites the manifests of"


def _check_compaction(properties: Mapping[str, str], limits: CompactionLimits, _sources: RequestSources) -> TableCheck:
    CompactionTerms.of(properties, limits)
    return _any_table


def _check_manifests(properties: Mapping[str, str], limits: ManifestLimits, _sources: RequestSources) -> TableCheck:
    ManifestTerms.of(properties, limits)
    return _any_table


def _any_table(_table: object) -> None: ...


COMPACTION_FORM: Final = TableForm(
    operations=(COMPACTION_TASK_TYPE,),
    body=CompactionPayload,
    options=COMPACTION_OPTIONS,
    running="Compacting {} …",
    work_type=TableCompaction,
    known=UPKEEP,
    limits=CompactionLimits.from_properties,
    checks=_check_compaction,
)

MANIFESTS_FORM: Final = TableForm(
    operations=(MANIFESTS_TASK_TYPE,),
    body=RewriteManifestsPayload,
    options=MANIFESTS_OPTIONS,
    running="Rewriting the manifests of {} …",
    work_type=TableManifestsRewrite,
    known=UPKEEP,
    limits=ManifestLimits.from_properties,
    checks=_check_manifests,
)
