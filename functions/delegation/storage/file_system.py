"""Table files on this machine's file system (`file:///…`): the store seam without any object store.

For `delegation purge` by a person; a service reaches tables through vended credentials, which are never for a disk.
Only files are deleted, as in an object store: directories stay, even when nothing is left in them.
"""

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from delegation.storage.base import (
    BatchResult,
    FileTooLarge,
    KeyFailure,
    ObjectNotFound,
    ObjectStoreDenied,
    ObjectStoreError,
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


class FilePlanStore:
    """`objectstore.PlanStore` below one directory, made when first written to; a file is there whole or not at all.

    What was put outlives a power failure: without the plan nobody could finish what it has begun.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: set[Path] = set()

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
            self._keep(path)
        except OSError as error:
            raise ObjectStoreError(f"cannot write {path}: {error.strerror}") from error

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectNotFound(f"no file {path}") from error
        except OSError as error:
            raise ObjectStoreError(f"cannot read {path}: {error.strerror}") from error

    def keys(self, prefix: str) -> Iterator[str]:
        try:
            found = [path.relative_to(self._root).as_posix() for path in self._root.rglob("*") if path.is_file()]
        except OSError as error:
            raise ObjectStoreError(f"cannot list {self._root}: {error.strerror}") from error
        names = (name for name in found if not name.rpartition("/")[2].startswith(".writing-"))
        return iter(sorted(name for name in names if name.startswith(prefix)))

    def _keep(self, path: Path) -> None:
        """Have the file's entry written, and those of the directories that lead to it, each of these once."""
        led: list[Path] = []
        for folder in path.parents:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if folder in self._kept or folder == self._root.parent:
                break
            led.append(folder)
        self._kept.update(led)

    def _path(self, key: str) -> Path:
        if not key or key.startswith("/") or ".." in key.split("/"):
            raise ObjectStoreError(f"{key!r} is no key below {self._root}")
        return self._root / key
