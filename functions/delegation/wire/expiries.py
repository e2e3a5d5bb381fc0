"""An expiry of snapshots as JSON: the body that clients send, and a task's `task_payload`, which has the table's state.

Source: Delegation Service proposal, Persistence, and Appendix.
"""

from typing import ClassVar, Final

from delegation.wire.identified import IdentifiedRequest, IdentityParameters
from delegation.wire.requests import ReceivedBody

OPERATION: Final = "TABLE_EXPIRE_SNAPSHOTS"


class ExpireSnapshotsParameters(IdentityParameters):
    """The table whose snapshots are expired, and which of them are kept (docs/expiry.md); the service loads it."""


class ExpireSnapshotsPayload(ReceivedBody):
    """The payload of an expiry."""

    operation_parameters: ExpireSnapshotsParameters


class ExpiryRequest(IdentifiedRequest):
    """One expiry of a table's snapshots."""

    operation: ClassVar[str] = OPERATION
