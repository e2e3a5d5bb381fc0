"""The requests for expiries: what a body asks for, and how that relates to the expiry which is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Final

from delegation.operations.behaviors.payloads import table_traits
from delegation.operations.expiry.behavior.kinds import UPKEEP
from delegation.operations.expiry.behavior.limits import OPTIONS, Floor
from delegation.operations.expiry.behavior.parameters import TableExpiry
from delegation.operations.expiry.behavior.relation import obstacle, resumes
from delegation.tasks.life.admission.lanes import Traits
from delegation.tasks.life.model import Task
from delegation.tasks.submission.form import NotWaitedFor, RequestSources, RequestWords, WantedTask
from delegation.tasks.submission.options import callback_of
from delegation.wire.expiries import OPERATION, ExpireSnapshotsPayload, ExpiryRequest
from delegation.wire.tables import TableState, files_of


@dataclass(frozen=True, slots=True)
class AskedExpiry:
    """Asked, of one table's expiry or of its plan (a dry run)."""

    expiry: TableExpiry
    traits: Traits
    callback: str | None
    deadline: timedelta | None = None

    @property
    def task_id(self) -> str:
        """See Asked.task_id."""
        return self.expiry.task_id

    @property
    def task_type(self) -> str:
        """See Asked.task_type."""
        return self.expiry.kind

    @property
    def payload_version(self) -> int:
        """See Asked.payload_version."""
        return self.expiry.payload_version

    @property
    def payload(self) -> str:
        """See Asked.payload."""
        return self.expiry.to_payload()

    def obstacle(self, task: Task) -> str | None:
        """See Asked.obstacle."""
        return obstacle(task, self.expiry)

    def replays(self, task: Task) -> bool:  # noqa: ARG002 - whatever task it is
        """See Asked.replays: never, since more snapshots are old each time; an expiry with nothing to do is short."""
        return False

    def resumes(self, task: Task) -> bool:
        """See Asked.resumes."""
        return resumes(task, self.expiry)


@cache
def _floor_of(properties: tuple[tuple[str, str], ...]) -> Floor:
    """Return what the operator keeps, which is the same for every request of a process."""
    return Floor.from_properties(dict(properties))


class ExpiryForm:
    """RequestForm of expiries."""

    operations: Final = (OPERATION,)
    body: Final = ExpireSnapshotsPayload
    options: Final = OPTIONS
    words: Final = RequestWords("Expiring snapshots of {} …")
    is_waited_for: Final = False
    waits_with_table: Final = False

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:  # noqa: ARG002
        """See RequestForm.request."""
        return ExpiryRequest(
            realm=wanted.realm,
            identifier=wanted.identifier,
            properties=wanted.properties,
            correlation_id=wanted.correlation_id,
            requested_at=wanted.requested_at,
        ).request()

    def check(self, properties: Mapping[str, str]) -> None:
        """See RequestForm.check."""
        _floor_of(tuple(sorted(properties.items())))

    def missing(self, body: ExpireSnapshotsPayload, *, identity_only: bool) -> tuple[str, ...]:  # noqa: ARG002
        """See RequestForm.missing: a body has all that is needed, the table's identity."""
        return ()

    def refuse_waiting(self, body: ExpireSnapshotsPayload) -> None:  # noqa: ARG002
        """See RequestForm.refuse_waiting: every expiry, which waits for what other tables reference after its commit.

        Raises NotWaitedFor.
        """
        raise NotWaitedFor(OPERATION)

    def asked(
        self,
        body: ExpireSnapshotsPayload,
        document: Mapping[str, Any],  # noqa: ARG002
        sources: RequestSources,
    ) -> AskedExpiry:
        """See RequestForm.asked; the table is loaded from the catalog, and refused here if a guard would refuse it.

        Raises InvalidOption, OptionNotAllowed, CallbackNotAllowed, and the errors of `check_table` and of the catalog.
        """
        # Loaded with the first request for an expiry: the API of most deployments gets requests for purges.
        from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
        from delegation.operations.expiry.behavior.options import choices_of  # noqa: PLC0415
        from delegation.operations.expiry.guards import check_table  # noqa: PLC0415

        request = ExpiryRequest.of_payload(body)
        floor = _floor_of(tuple(sorted(sources.properties.items())))
        choices_of(request.properties, asked_at=sources.clock(), floor=floor, refuse_looser=True)
        callback = callback_of(request.properties, sources.callbacks())
        # The snapshots of refs suffice for the guards; the decision is made with all of them, by the task.
        loaded = sources.catalog().load_table(request.identifier, vend=False, snapshots="refs")
        check_table(parse_metadata(loaded.metadata_location, loaded.metadata), table_uuid=loaded.table_uuid)
        stated = {**dict(request), "realm": sources.realm, "table": TableState.of(loaded)}
        expiry = TableExpiry(**stated)
        files = files_of(loaded.metadata)
        traits = replace(
            table_traits(expiry.to_payload(), UPKEEP), is_small=files is None or files <= sources.small_files
        )
        return AskedExpiry(expiry, traits, callback)
