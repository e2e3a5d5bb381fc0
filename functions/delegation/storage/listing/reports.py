"""Reading what a store writes about itself, such as S3 Inventory's reports, with the service's own role: the seam."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, Protocol

from delegation.storage.locations import ObjectLocation
from delegation.storage.s3_errors import FAILED, translate

if TYPE_CHECKING:
    from botocore.response import StreamingBody

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


def pieces_of(uri: str, body: "StreamingBody") -> Generator[bytes]:
    """Yield the pieces of an answer of S3; raise the ObjectStoreError of what breaks it off."""
    try:
        yield from body.iter_chunks(PIECE)
    except FAILED as error:
        translate(uri, error)
    finally:
        body.close()
