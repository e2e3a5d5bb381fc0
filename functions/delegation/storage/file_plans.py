"""Plans in a directory, for purges that a person runs: the same layout as in the plan bucket."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from delegation.storage.base import ObjectNotFound, ObjectStoreError


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
