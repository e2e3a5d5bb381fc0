"""The requests for removals of orphan files: what a body asks for, and how that relates to the task that is stored."""

from functools import lru_cache
from typing import Any, Final

from delegation.operations.orphans.behavior.limits import OPTIONS, OrphanLimits
from delegation.operations.orphans.behavior.names import BACKGROUND
from delegation.operations.orphans.behavior.parameters import TableOrphans
from delegation.operations.orphans.behavior.relation import obstacle, replays, resumes
from delegation.removal.requests import TableCheck, TableForm, WorkRelation
from delegation.tasks.submission.form import RequestSources, RequestWords
from delegation.wire.tables import IdentifiedRequest, OrphanFilesPayload, OrphanFilesRequest


@lru_cache(maxsize=1)
def _limits_of(sources: RequestSources) -> OrphanLimits:
    return OrphanLimits.from_properties(sources.properties)


def _checks(request: IdentifiedRequest, sources: RequestSources) -> TableCheck:
    """Check a request's options; raise InvalidOption and DelegationError (PROPERTY_NOT_ALLOWED).

    What it returns raises GuardRefused.
    """
    # Loaded with the first such request: the API of most deployments gets requests for purges.
    from delegation.iceberg.metadata import parse_metadata  # noqa: PLC0415
    from delegation.operations.orphans.behavior.options import options_of  # noqa: PLC0415
    from delegation.operations.orphans.eligible import age_of  # noqa: PLC0415
    from delegation.operations.orphans.errors import no_role  # noqa: PLC0415
    from delegation.operations.orphans.place import check_allowed, place_of  # noqa: PLC0415

    limits = _limits_of(sources)
    chosen = options_of(request.properties, limits)

    def check(loaded: Any) -> None:
        metadata = parse_metadata(loaded.metadata_location, loaded.metadata)
        check_allowed(metadata)
        bucket = place_of(metadata, chosen.location).bucket
        if chosen.quarantine and bucket not in limits.roles:
            no_role(bucket)
        age_of(chosen.older_than, metadata.properties)

    return check


ORPHANS_FORM: Final = TableForm(
    body=OrphanFilesPayload,
    options=OPTIONS,
    words=RequestWords("Looking for orphan files of {} …"),
    request_type=OrphanFilesRequest,
    work_type=TableOrphans,
    known=BACKGROUND,
    relation=WorkRelation(obstacle, replays, resumes),
    limits=OrphanLimits.from_properties,
    checks=_checks,
)
"""The form of requests for removals of orphan files."""
