"""Errors of an expiry of snapshots, split by what the caller can do next."""

from collections.abc import Sequence

from delegation.errors import GuardRefused, shown


class InvalidRetention(GuardRefused):
    """An option or a property of the table says how much history to keep, and is not a number that Iceberg accepts."""

    code = "INVALID_RETENTION"


class SnapshotReferenced(GuardRefused):
    """A snapshot that the request names is at the head of branches or tags that are kept."""

    code = "SNAPSHOT_REFERENCED"

    def __init__(self, snapshot_id: int, refs: Sequence[str]) -> None:
        super().__init__(
            f"snapshot {snapshot_id} cannot be expired, because these refs are at it: {shown(refs)}; move or drop "
            "them first, or leave the snapshot out of the request"
        )
        self.snapshot_id = snapshot_id
        self.refs = tuple(refs)


class ManifestsEncrypted(GuardRefused):
    """The table's manifests are encrypted (Iceberg Table Spec, version 3), so the files that they name are unknown."""

    code = "UNSUPPORTED"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}: its manifests are encrypted, and this release cannot read which files they name; expire its "
            "snapshots with an engine that has the keys"
        )
