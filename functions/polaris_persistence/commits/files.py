"""Files outside of the store that a commit names, such as a table's metadata file in an object store."""

from collections.abc import Collection, Mapping
from typing import Protocol


class Files(Protocol):
    """Where the files of commits are written. Both methods raise BackendUnavailable.

    The files of an attempt are written after its changes were combined and sealed, before its compare-and-set: the
    files of an acknowledged commit exist. They are deleted only once it is proved that the attempt was not and never
    will be applied. Files of a process that was killed or could not delete them remain, and no head names them.
    """

    def write_many(self, files: Mapping[str, bytes]) -> None:
        """Write new files by path. A path is written once, except for repeats of a call without an answer."""

    def delete_many(self, paths: Collection[str]) -> None:
        """Delete files that nothing names; one that was not written is no error."""
