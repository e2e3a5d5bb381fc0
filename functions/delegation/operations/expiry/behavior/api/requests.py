"""The requests for expiries: what a body asks for, and how that relates to the expiry which is stored."""

from functools import lru_cache
from typing import Final

from delegation.operations.behaviors.requests import TableCheck, TableForm, WorkRelation
from delegation.operations.expiry.behavior.limits import OPTIONS, Floor
from delegation.operations.expiry.behavior.names import UPKEEP
from delegation.operations.expiry.behavior.parameters import TableExpiry
from delegation.operations.expiry.behavior.relation import obstacle, resumes
from delegation.tasks.life.model import Task
from delegation.tasks.submission.form import RequestSources, RequestWords
from delegation.wire.expiries import ExpireSnapshotsPayload, ExpiryRequest
from delegation.wire.identified import IdentifiedRequest


@lru_cache(maxsize=1)
def _floor_of(sources: RequestSources) -> Floor:
    return Floor.from_properties(sources.properties)


def _never_replays(_task: Task, _wanted: TableExpiry) -> bool:
    """Return False, since more snapshots are old each time; an expiry with nothing to do is short."""
    return False


def _checks(request: IdentifiedRequest, sources: RequestSources) -> TableCheck:
    """Check a request's options; raise those of `choices_of`. What it returns raises those of `check_table`."""
    # Loaded with the first request for an expiry: the API of most deployments gets requests for purges.
    from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
    from delegation.operations.expiry.behavior.options import choices_of  # noqa: PLC0415
    from delegation.operations.expiry.guards import check_table  # noqa: PLC0415

    choices_of(request.properties, asked_at=sources.clock(), floor=_floor_of(sources), refuse_looser=True)
    return lambda loaded: check_table(
        parse_metadata(loaded.metadata_location, loaded.metadata), table_uuid=loaded.table_uuid
    )


EXPIRY_FORM: Final = TableForm(
    body=ExpireSnapshotsPayload,
    options=OPTIONS,
    words=RequestWords("Expiring snapshots of {} …"),
    request_type=ExpiryRequest,
    work_type=TableExpiry,
    known=UPKEEP,
    relation=WorkRelation(obstacle, _never_replays, resumes),
    limits=Floor.from_properties,
    checks=_checks,
)
"""The form of requests for expiries."""
