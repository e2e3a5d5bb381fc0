"""Errors in a table's metadata files. None is retryable, because the store would return the same bytes."""

from typing import Final

from delegation.errors import GuardRefused
from polaris_common.errors import DelegationError, printable

WHOLE_FILE: Final = "file"
"""The field of a metadata file that is not a JSON object."""


class IcebergError(DelegationError):
    """A metadata file of a table does not follow the Iceberg Table Spec."""

    code = "ICEBERG_ERROR"


class CorruptManifestError(IcebergError):
    """A manifest or manifest list cannot be decoded. `offset` is in bytes from the start of the file, None if unknown.
    In a compressed block it is that of the block's data, and `reason` has the position in the decompressed block."""

    code = "CORRUPT_MANIFEST"

    def __init__(self, path: str, offset: int | None, reason: str) -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{printable(path)} is corrupt{where}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class ManifestMismatchError(IcebergError):
    """A manifest is not the one that its list describes. It may be `cut_off` if it has fewer bytes or entries."""

    code = "MANIFEST_MISMATCH"

    def __init__(self, path: str, what: str, expected: object, actual: object, *, cut_off: bool = False) -> None:
        super().__init__(f"{printable(path)} has {actual} {what}, but its manifest list records {expected}")
        self.cut_off = cut_off


class MalformedError(Exception):
    """Invalid Avro at a position of the buffer. Readers convert it to CorruptManifestError."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason


class UnsupportedAvroError(MalformedError):
    """Avro that may be valid but is not supported. Readers convert it to EncryptedMetadataFile."""


class EncryptedMetadataFile(GuardRefused):
    """A manifest list or manifest is encrypted (Iceberg Table Spec, version 3) or has an unsupported encoding, so its
    files are unknown."""

    code = "UNSUPPORTED"

    def __init__(self, path: str, problem: str = "is encrypted") -> None:
        super().__init__(f"{printable(path)} {problem}, so this release cannot read which files it names")
        self.path = path


class CorruptMetadata(IcebergError):
    """Table metadata does not follow the Iceberg Table Spec, Table Metadata. `field` is WHOLE_FILE or what is wrong."""

    code = "CORRUPT_METADATA"

    def __init__(self, path: str, field: str, reason: str) -> None:
        where = "" if field == WHOLE_FILE else f" ({field})"
        super().__init__(f"{printable(path)} is corrupt{where}: {reason}")
        self.path = path
        self.field = field
        self.reason = reason


class ManifestMissing(IcebergError):
    """A manifest or manifest list is missing, so its files are unknown."""

    code = "MANIFEST_MISSING"

    def __init__(self, path: str) -> None:
        super().__init__(f"{printable(path)} is missing, so the files that it names are unknown")
        self.path = path
