"""Objects of S3 in pieces (Amazon S3 API Reference, GetObject)."""

from collections.abc import Generator
from typing import TYPE_CHECKING

from delegation.storage.listing.reports import PIECE
from delegation.storage.s3_errors import FAILED, translate

if TYPE_CHECKING:
    from botocore.response import StreamingBody


def pieces_of(uri: str, body: "StreamingBody") -> Generator[bytes]:
    """Yield the pieces of an answer of S3 and close it; raise the ObjectStoreError of what breaks it off."""
    try:
        yield from body.iter_chunks(PIECE)
    except FAILED as error:
        translate(uri, error)
    finally:
        body.close()
