"""Reading what a store writes about itself, such as S3 Inventory's reports, with the service's own role: the seam."""

from collections.abc import Generator
from typing import Final, Protocol

from delegation.storage.locations import ObjectLocation

PIECE: Final = 1 << 18


class ReportStore(Protocol):
    """A store of reports. Thread-safe."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        """Return a small object; raise ObjectNotFound, FileTooLarge or another store error."""
        ...

    def pieces(self, location: ObjectLocation) -> Generator[bytes]:
        """Yield an object's bytes in pieces of up to 256 KB, so that its size does not matter; close what is returned.

        Raises ObjectNotFound or another store error, ObjectStoreUnavailable if the object breaks off.
        """
        ...
