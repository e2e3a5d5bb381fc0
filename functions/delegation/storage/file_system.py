"""Table files on this machine's file system (`file:///…`): the store seam without any object store.

For `delegation purge` by a person; a service reaches tables through vended credentials, which are never for a disk.
Only files are deleted, as in an object store: directories stay, even when nothing is left in them.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from delegation.storage.base import (
    BatchResult,
    FileTooLarge,
    KeyFailure,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreUnavailable,
)
from delegation.storage.locations import LOCAL, ObjectLocation, UnsupportedLocation, split

# A name that no file can have is a file that is not there.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FileObjectStore:
    """`objectstore.ObjectStore` over the file system, as the user that runs this process."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        path = _path(location.bucket, location.key)
        if path is None:
            raise ObjectNotFound(f"no file {location.uri}")
        try:
            with path.open("rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            if error.errno in _ABSENT or error.errno == errno.EISDIR:
                raise ObjectNotFound(f"no file {location.uri}") from error
            if error.errno in _DENIED:
                raise ObjectStoreDenied(f"{error.strerror} for {location.uri}") from error
            raise ObjectStoreUnavailable(f"{error.strerror} for {location.uri}") from error
        if len(data) > limit:
            raise FileTooLarge(f"{location.uri} has more than {limit} bytes")
        return data

    def exists(self, location: ObjectLocation) -> bool:
        path = _path(location.bucket, location.key)
        return path is not None and os.path.lexists(path)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        deleted: list[str] = []
        failed: list[KeyFailure] = []
        for key in keys:
            code = _unlink(bucket, key)
            if code is None:
                deleted.append(key)
            else:
                failed.append(KeyFailure(key, code))
        return BatchResult(tuple(deleted), tuple(failed))

    def probe_delete(self, prefix: str) -> str | None:
        """Whether the nearest directory that there is may be written to: an absent file is no test of a permission."""
        place = _path(*split(prefix.rstrip("/") + "/.delegation-probe"))
        while place is not None and place != place.parent:
            place = place.parent
            # Not Path.is_dir, which raises for what lies behind a directory that may not be entered.
            if os.path.isdir(place):  # noqa: PTH112
                return None if os.access(place, os.W_OK | os.X_OK) else "AccessDenied"
        return None

    def versioned(self, bucket: str) -> bool | None:
        del bucket
        return False


def _unlink(bucket: str, key: str) -> str | None:
    """Delete one file; None when it is gone, else why not."""
    path = _path(bucket, key)
    if path is None:
        return None
    try:
        path.unlink()
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        return "AccessDenied" if error.errno in _DENIED else errno.errorcode.get(error.errno or 0, "Unknown")
    return None


def _path(bucket: str, key: str) -> Path | None:
    """Where a key is; None for one that is no file's name. Raises UnsupportedLocation for what is not on this disk.

    `a//b`, `a/./b` and `a/` are other keys than `a/b` and `a`, and on a disk nothing is stored under them.
    """
    if bucket != LOCAL:
        raise UnsupportedLocation(f"s3://{bucket}/{key}", "not in the storage of the table's metadata")
    if "\x00" in key or any(part in {"", ".", ".."} for part in key.split("/")):
        return None
    return Path("/", key)
