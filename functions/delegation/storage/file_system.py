"""Table files (`file:///…`) and plans on this machine's file system, for `delegation purge` without a service.

Only files are deleted, as in an object store: directories remain, even empty ones.
"""

import errno
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
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
from delegation.storage.listing.model import CHANGED, PAGE, ListedFolder, ListedObject, ListedPage, UnchangedResult
from delegation.storage.locations import LOCAL, ObjectLocation, UnsupportedLocation, split


def listed_file(key: str, entry: "os.DirEntry[str] | Path") -> ListedObject | None:
    """Return a file as listed, None if it is missing or not a regular file. Links are not followed."""
    try:
        stat = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    # A rewrite of a file changes at least one of these.
    return ListedObject(key, stat.st_size, f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}", int(stat.st_mtime))


def _below(directory: str, after: str) -> Iterator[ListedObject]:
    for key, entry in _entries(directory):
        if not key.endswith("/"):
            file = listed_file(key, entry)
            if file is not None:
                yield file
        elif key > after or after.startswith(key):
            yield from _below(key[:-1], after)


def _entries(directory: str) -> list[tuple[str, "os.DirEntry[str]"]]:
    """Return a directory's files and, with a trailing `/`, its directories, by key. Names that are not Unicode are left
    out: no table can name such a file."""
    entries_by_key: list[tuple[str, os.DirEntry[str]]] = []
    try:
        with os.scandir(f"/{directory}") as entries:
            entries_by_key = [
                (
                    f"{directory}/{entry.name}/"
                    if entry.is_dir(follow_symlinks=False)
                    else f"{directory}/{entry.name}",
                    entry,
                )
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ObjectStoreDenied(f"cannot list /{directory}: {error.strerror}") from error
    return sorted(((key.lstrip("/"), entry) for key, entry in entries_by_key if _is_unicode(key)), key=itemgetter(0))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# No file can have such a name, so it counts as absent.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class FileObjectStore:
    """An ObjectStore over the file system, with the rights of the process's user."""

    def read(self, location: ObjectLocation, *, limit: int) -> bytes:
        data = self.part(location, start=0, length=limit + 1)
        if len(data) > limit:
            raise FileTooLarge(f"{location.uri} has more bytes than the limit of {limit}")
        return data

    def part(self, location: ObjectLocation, *, start: int, length: int) -> bytes:
        path = _path(location.bucket, location.key)
        if path is None:
            raise ObjectNotFound(f"there is no file {location.uri}")
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as error:
            if error.errno in _ABSENT or error.errno == errno.EISDIR:
                raise ObjectNotFound(f"there is no file {location.uri}") from error
            if error.errno in _DENIED:
                raise ObjectStoreDenied(f"cannot read {location.uri}: {error.strerror}") from error
            raise ObjectStoreUnavailable(f"cannot read {location.uri}: {error.strerror}") from error

    def exists(self, location: ObjectLocation) -> bool:
        path = _path(location.bucket, location.key)
        return path is not None and os.path.lexists(path)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        deleted: list[str] = []
        absent: list[str] = []
        failed: list[KeyFailure] = []
        for key in keys:
            try:
                code = _unlink(bucket, key)
            except FileNotFoundError:
                absent.append(key)
                code = None
            if code is None:
                deleted.append(key)
            else:
                failed.append(KeyFailure(key, code))
        return BatchResult(tuple(deleted), tuple(failed), absent=tuple(absent))

    def probe_delete(self, prefix: str) -> str | None:
        """Check write access to the nearest existing directory: deleting an absent file proves no permission."""
        directory = _path(*split(prefix.rstrip("/") + "/.delegation-probe"))
        while directory is not None and directory != directory.parent:
            directory = directory.parent
            # Not Path.is_dir, which raises for a path below a directory without search permission.
            if os.path.isdir(directory):  # noqa: PTH112
                return None if os.access(directory, os.W_OK | os.X_OK) else "AccessDenied"
        return None

    def versioned(self, bucket: str, *, seen: ObjectLocation | None = None) -> bool | None:
        del bucket, seen
        return False

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        """Return a page in the key order of an object store. The time is this machine's."""
        _check_local(bucket, prefix)
        at = int(time.time())
        objects_below = (listed for listed in _below(prefix.rpartition("/")[0], after) if listed.key.startswith(prefix))
        objects = tuple(islice((listed for listed in objects_below if listed.key > after), PAGE + 1))
        return ListedPage(objects[:PAGE], at, len(objects) <= PAGE)

    def folder(self, bucket: str, prefix: str) -> ListedFolder:
        _check_local(bucket, prefix)
        at, entries = int(time.time()), _entries(prefix.rstrip("/"))
        files = (listed_file(key, entry) for key, entry in entries if not key.endswith("/"))
        folders = tuple(key for key, _ in entries if key.endswith("/"))
        return ListedFolder(tuple(file for file in files if file is not None), folders, at, is_whole=True)

    def delete_unchanged(self, bucket: str, listed: Sequence[ListedObject]) -> UnchangedResult:
        """Delete unchanged files. The file system has no conditional deletes, so each file is checked just before."""
        _check_local(bucket, "")
        unchanged: list[str] = []
        changed: list[str] = []
        absent: list[str] = []
        for before in listed:
            path = _path(bucket, before.key)
            now = None if path is None else listed_file(before.key, path)
            (absent if now is None else unchanged if now == before else changed).append(before.key)
        done = self.delete(bucket, unchanged)
        failed = (*done.failed, *(KeyFailure(key, CHANGED) for key in changed))
        gone = (*absent, *done.absent)
        return UnchangedResult(BatchResult((*absent, *done.deleted), failed, absent=gone), len(done.deleted))


def _check_local(bucket: str, prefix: str) -> None:
    if bucket != LOCAL:
        raise UnsupportedLocation(f"s3://{bucket}/{prefix}", "it is in another storage than the table's metadata file")


def _unlink(bucket: str, key: str) -> str | None:
    """Delete one file; return None, or the error code if it still exists. Raises FileNotFoundError."""
    path = _path(bucket, key)
    if path is None:
        raise FileNotFoundError(key)
    try:
        path.unlink()
    except OSError as error:
        if error.errno in _ABSENT:
            raise FileNotFoundError(key) from error
        return "AccessDenied" if error.errno in _DENIED else errno.errorcode.get(error.errno or 0, "Unknown")
    return None


def _path(bucket: str, key: str) -> Path | None:
    """Return the path of a key, None if no file can have the key: `a//b`, `a/./b` and `a/` are not the keys `a/b` and
    `a`. Raises UnsupportedLocation for another store's key."""
    if bucket != LOCAL:
        raise UnsupportedLocation(f"s3://{bucket}/{key}", "it is in another storage than the table's metadata file")
    if "\x00" in key or any(part in {"", ".", ".."} for part in key.split("/")):
        return None
    return Path("/", key)


class FilePlanStore:
    """A PlanStore below one directory, with the layout of the plan bucket. `put` is atomic and survives a power
    failure, because a purge cannot resume without its plan."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._synced: set[Path] = set()

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(path)
            finally:
                Path(name).unlink(missing_ok=True)
            self._sync_directories(path)
        except OSError as error:
            if error.errno in _FULL:
                raise ObjectStoreError(
                    f"cannot write {path}: {error.strerror}. Free space there, then run the command again",
                    code="STORAGE_FULL",
                    retryable=True,
                ) from error
            raise ObjectStoreError(f"cannot write {path}: {error.strerror}") from error

    def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectNotFound(f"there is no file {path}") from error
        except OSError as error:
            raise ObjectStoreError(f"cannot read {path}: {error.strerror}") from error

    def where(self, key: str) -> str:
        return str(self._path(key))

    def keys(self, prefix: str) -> Iterator[str]:
        try:
            names_below = [path.relative_to(self._root).as_posix() for path in self._root.rglob("*") if path.is_file()]
        except OSError as error:
            raise ObjectStoreError(f"cannot list {self._root}: {error.strerror}") from error
        names = (name for name in names_below if not name.rpartition("/")[2].startswith(".writing-"))
        return iter(sorted(name for name in names if name.startswith(prefix)))

    def _sync_directories(self, path: Path) -> None:
        """Flush a file's directory entry to disk, and once those of its parent directories."""
        fresh: list[Path] = []
        for folder in path.parents:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if folder in self._synced or folder == self._root.parent:
                break
            fresh.append(folder)
        self._synced.update(fresh)

    def _path(self, key: str) -> Path:
        if not key or key.startswith("/") or ".." in key.split("/"):
            raise ObjectStoreError(f"{key!r} is not a key below {self._root}")
        return self._root / key
