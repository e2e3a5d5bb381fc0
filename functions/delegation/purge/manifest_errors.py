"""What can be wrong with an Iceberg manifest or manifest list.

PurgeError
├── CorruptManifestError    the bytes are not what they claim to be
└── ManifestMismatchError   the bytes decode, but are not the manifest the manifest list described

Neither is retryable: the object store would answer with the same bytes again. Nothing was deleted when they are raised
during planning (DESIGN §5).
"""

from typing import ClassVar

from delegation.purge.errors import PurgeError, printable


class CorruptManifestError(PurgeError):
    """A manifest or manifest list that no reader could decode without guessing.

    `offset` is in bytes from the start of the file; for a compressed block it is where the block's data begins, and
    `reason` says how far into the decompressed block the decoder came.
    """

    code: ClassVar[str] = "CORRUPT_MANIFEST"

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, offset, reason)
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{printable(self.path)} is corrupt at byte {self.offset}: {self.reason}"


class ManifestMismatchError(PurgeError):
    """A manifest whose size or number of entries differs from what its manifest list says."""

    code: ClassVar[str] = "MANIFEST_MISMATCH"

    def __init__(self, path: str, what: str, expected: int, actual: int) -> None:
        super().__init__(path, what, expected, actual)
        self.path = path
        self.what = what
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        return f"{printable(self.path)} has {self.actual} {self.what}, its manifest list says {self.expected}"


class MalformedError(Exception):
    """Bytes that break a rule of Avro, at a position of the buffer being decoded; never leaves the readers."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason
