"""What can be wrong with the files that say what a table reaches.

None is retryable: the object store would answer with the same bytes again. Nothing was deleted when they are raised
during planning (DESIGN §5).
"""

from typing import ClassVar

from delegation.errors import DelegationError, GuardRefused, printable


class IcebergError(DelegationError):
    """Files of a table cannot be read as the Iceberg specification says."""

    code: ClassVar[str] = "ICEBERG_ERROR"


class CorruptManifestError(IcebergError):
    """A manifest or manifest list that no reader could decode without guessing.

    `offset` is in bytes from the start of the file; for a compressed block it is where the block's data begins, and
    `reason` says how far into the decompressed block the decoder came.
    """

    code: ClassVar[str] = "CORRUPT_MANIFEST"

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(f"{printable(path)} is corrupt at byte {offset}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class ManifestMismatchError(IcebergError):
    """A manifest whose size or number of entries differs from what its manifest list says."""

    code: ClassVar[str] = "MANIFEST_MISMATCH"

    def __init__(self, path: str, what: str, expected: int, actual: int) -> None:
        super().__init__(f"{printable(path)} has {actual} {what}, its manifest list says {expected}")


class MalformedError(Exception):
    """Bytes that break a rule of Avro, at a position of the buffer being decoded; never leaves the readers."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


class UnsupportedFormat(GuardRefused):
    """An Iceberg format version that is not known to be read completely."""

    code = "UNSUPPORTED_FORMAT_VERSION"


class CorruptMetadata(IcebergError):
    """Table metadata that does not follow the Iceberg specification; nothing was deleted."""

    code = "CORRUPT_METADATA"

    def __init__(self, path: str, field: str, reason: str) -> None:
        super().__init__(f"{printable(path)}: {field}: {reason}")
        self.path = path
        self.field = field
        self.reason = reason


class ManifestMissing(IcebergError):
    """A manifest or manifest list is not there, so what it named cannot be known; nothing was deleted."""

    code = "MANIFEST_MISSING"

    def __init__(self, path: str) -> None:
        super().__init__(f"{printable(path)} is missing, and no earlier purge of this table accounts for it")
        self.path = path
