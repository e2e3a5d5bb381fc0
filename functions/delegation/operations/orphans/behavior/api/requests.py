"""The requests for removals of orphan files: what a body asks for, and how that relates to the task that is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Final

from delegation.operations.behaviors.payloads import table_traits
from delegation.operations.orphans.behavior.kinds import BACKGROUND
from delegation.operations.orphans.behavior.limits import OPTIONS, OrphanLimits
from delegation.operations.orphans.behavior.parameters import TableOrphans
from delegation.operations.orphans.behavior.relation import obstacle, replays, resumes
from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Task
from delegation.tasks.submission.form import NotWaitedFor, RequestSources, RequestWords, WantedTask
from delegation.tasks.submission.options import callback_of
from delegation.wire.orphans import OPERATION, OrphanFilesPayload, OrphanFilesRequest
from delegation.wire.tables import TableState, files_of


@dataclass(frozen=True, slots=True)
class AskedOrphans:
    """Asked, of one removal of a table's orphan files or of its plan (a dry run)."""

    orphans: TableOrphans
    traits: Traits
    callback: str | None
    payload_version: int = 1
    deadline: timedelta | None = None

    @property
    def task_id(self) -> str:
        """See Asked.task_id."""
        return self.orphans.task_id

    @property
    def task_type(self) -> str:
        """See Asked.task_type."""
        return self.orphans.kind

    @property
    def payload(self) -> str:
        """See Asked.payload."""
        return self.orphans.to_payload()

    def obstacle(self, task: Task) -> str | None:
        """See Asked.obstacle."""
        return obstacle(task, self.orphans)

    def replays(self, task: Task) -> bool:
        """See Asked.replays: only an approval of the same plan; otherwise other files are old each time."""
        return replays(task, self.orphans)

    def resumes(self, task: Task) -> bool:
        """See Asked.resumes."""
        return resumes(task, self.orphans)


@cache
def _limits_of(properties: tuple[tuple[str, str], ...]) -> OrphanLimits:
    """Return the operator's limits, which are the same for every request of a process."""
    return OrphanLimits.from_properties(dict(properties))


class OrphanForm:
    """RequestForm of removals of orphan files."""

    operations: Final = (OPERATION,)
    body: Final = OrphanFilesPayload
    options: Final = OPTIONS
    words: Final = RequestWords("Looking for orphan files of {} …")
    is_waited_for: Final = False
    waits_with_table: Final = False

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """See RequestForm.request."""
        return OrphanFilesRequest(
            realm=wanted.realm,
            identifier=wanted.identifier,
            properties=wanted.properties,
            correlation_id=wanted.correlation_id,
            requested_at=wanted.requested_at,
        ).request()

    def check(self, properties: Mapping[str, str]) -> None:
        """See RequestForm.check."""
        _limits_of(tuple(sorted(properties.items())))

    def missing(self, body: OrphanFilesPayload, *, identity_only: bool) -> tuple[str, ...]:  # noqa: ARG002
        """See RequestForm.missing: a body has all that is needed, the table's identity."""
        return ()

    def refuse_waiting(self, body: OrphanFilesPayload) -> None:  # noqa: ARG002
        """See RequestForm.refuse_waiting: every removal, which waits for what other tables reference.

        Raises NotWaitedFor.
        """
        raise NotWaitedFor(OPERATION)

    def asked(
        self,
        body: OrphanFilesPayload,
        document: Mapping[str, Any],  # noqa: ARG002
        sources: RequestSources,
    ) -> AskedOrphans:
        """See RequestForm.asked; the table is loaded from the catalog, and refused here if a guard would refuse it.

        Raises InvalidOption, OptionNotAllowed, CallbackNotAllowed, GuardRefused, and the errors of the catalog.
        """
        # Loaded with the first such request: the API of most deployments gets requests for purges.
        from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
        from delegation.operations.orphans.behavior.options import options_of  # noqa: PLC0415
        from delegation.operations.orphans.eligible import age_of  # noqa: PLC0415
        from delegation.operations.orphans.place import check_allowed, place_of  # noqa: PLC0415

        request = OrphanFilesRequest.of_payload(body)
        chosen = options_of(request.properties, _limits_of(tuple(sorted(sources.properties.items()))))
        callback = callback_of(request.properties, sources.callbacks())
        # The snapshots of refs suffice for these guards; the task reads all of them.
        loaded = sources.catalog().load_table(request.identifier, vend=False, snapshots="refs")
        metadata = parse_metadata(loaded.metadata_location, loaded.metadata)
        check_allowed(metadata)
        place_of(metadata)
        age_of(chosen.older_than, metadata.properties)
        stated = {**dict(request), "realm": sources.realm, "table": TableState.of(loaded)}
        orphans = TableOrphans(**stated)
        files = files_of(loaded.metadata)
        traits = replace(
            table_traits(orphans.to_payload(), BACKGROUND), is_small=files is None or files <= sources.small_files
        )
        return AskedOrphans(orphans, traits, callback)
