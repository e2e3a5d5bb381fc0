"""What managed Iceberg metadata can fail with."""

from delegation.persistence.errors import PersistenceError


class InvalidIcebergMetadata(PersistenceError):
    """A document is no table or view metadata that can be held; nothing was changed."""

    code = "INVALID_ICEBERG_METADATA"


class IcebergConflict(PersistenceError):
    """An update does not fit the metadata it is applied to; load it again and decide again."""

    code = "ICEBERG_CONFLICT"
