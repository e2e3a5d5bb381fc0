"""What talking to Polaris can end in, split by what the caller can do next.

Iceberg's exception types and their statuses: Iceberg REST specification, ErrorModel; Polaris 1.4 and 1.7 as observed.
"""

from typing import ClassVar

from delegation.errors import DelegationError
from delegation.storage.credentials import CredentialsUnavailable


class PolarisError(DelegationError):
    """Polaris could not do what it was asked; `status` and `error_type` are its own, None when it did not answer.

    `retry_after` (seconds) is the server's `Retry-After`, None when it gave none.
    """

    code: ClassVar[str] = "POLARIS_ERROR"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error_type: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_type = error_type
        self.retry_after = retry_after


class NoSuchTable(PolarisError):
    """404 NoSuchTableException: never created, dropped already, or renamed."""

    code = "NO_SUCH_TABLE"


class NoSuchNamespace(PolarisError):
    """404 NoSuchNamespaceException."""

    code = "NO_SUCH_NAMESPACE"


class NoSuchCatalog(PolarisError):
    """404 for the catalog itself: at `/v1/config`, or NotFoundException under its prefix."""

    code = "NO_SUCH_CATALOG"


class TableAlreadyExists(PolarisError):
    """409 AlreadyExistsException."""

    code = "TABLE_ALREADY_EXISTS"


class TableMetadataMissing(PolarisError):
    """NotFoundException other than 404 (Polaris: 400): the table is there, the metadata file it points to is not."""

    code = "TABLE_METADATA_MISSING"


class PolarisUnauthorized(PolarisError):
    """The client secret was refused, or a fresh token was (401 twice)."""

    code = "POLARIS_UNAUTHORIZED"


class PolarisForbidden(PolarisError):
    """403 ForbiddenException: the service's principal lacks a privilege."""

    code = "POLARIS_FORBIDDEN"


class PolarisMisconfigured(PolarisError):
    """The service's own settings for Polaris are wrong: the realm (MissingOrInvalidRealm), or an unreadable secret."""

    code = "POLARIS_MISCONFIGURED"


class CredentialVendingFailed(PolarisError, CredentialsUnavailable):
    """The table was loaded, but no usable storage credential came with it for the location asked."""

    code = "CREDENTIAL_VENDING_FAILED"


class PolarisUnexpectedAnswer(PolarisError):
    """An answer outside the protocol: an unmapped status, no JSON, a field missing."""

    code = "POLARIS_UNEXPECTED_ANSWER"


class PolarisUnavailable(PolarisError):
    """Not reached, timed out, throttled or a server error, after the client's own retries; nothing was written."""

    code = "POLARIS_UNAVAILABLE"
    retryable = True


class PolarisOutcomeUnknown(PolarisUnavailable):
    """A write was sent and its answer never came, or was a 5xx: it may have been applied, look before repeating it."""

    code = "POLARIS_OUTCOME_UNKNOWN"
