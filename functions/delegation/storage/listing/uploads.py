"""Multipart uploads that nobody has completed yet: the seam, and its rights.

Their parts are no objects, no listing of objects has them, and they are paid for. Vended credentials have none of the
rights, so only an operator's own credentials work here.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

UPLOAD_RIGHTS: Final = (
    "s3:ListBucketMultipartUploads",
    "s3:ListMultipartUploadParts",
    "s3:AbortMultipartUpload",
)
"""What the credentials need for the bucket and its objects (Amazon S3 User Guide, Actions for Amazon S3)."""


class Upload(NamedTuple):
    """An unfinished upload: its key, its id, and when it began by the store's clock, in seconds since 1970."""

    key: str
    upload_id: str
    began: int


class UploadStore(Protocol):
    """Unfinished uploads to a bucket. Thread-safe. Methods raise the errors of an object store."""

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        """Yield the unfinished uploads to keys that begin with a prefix."""
        ...

    def size(self, bucket: str, upload: Upload) -> int | None:
        """Return the bytes of the parts that are there, None for an upload that is completed or aborted."""
        ...

    def abort(self, bucket: str, upload: Upload) -> bool:
        """Abort this very upload; return whether it was there. Parts that are on their way may outlast it."""
        ...
