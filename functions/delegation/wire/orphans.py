"""A removal of orphan files as JSON: the body that clients send."""

from typing import ClassVar, Final

from delegation.wire.identified import IdentifiedRequest, IdentityParameters
from delegation.wire.requests import ReceivedBody

OPERATION: Final = "ORPHAN_FILES"


class OrphanFilesParameters(IdentityParameters):
    """The table whose orphan files are removed, and which files may be some (docs/orphans.md); the service loads it."""


class OrphanFilesPayload(ReceivedBody):
    """The payload of a removal of orphan files."""

    operation_parameters: OrphanFilesParameters


class OrphanFilesRequest(IdentifiedRequest):
    """One removal of a table's orphan files."""

    operation: ClassVar[str] = OPERATION
