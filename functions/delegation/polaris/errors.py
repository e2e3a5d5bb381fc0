"""Errors of requests to Polaris; exception types as in Iceberg's REST specification and Polaris 1.4 and 1.7."""

from delegation.storage.credentials import CredentialsUnavailable
from polaris_common.errors import DelegationError, ErrorScope


class PolarisError(DelegationError):
    """A request to Polaris failed; `status`, `error_type` and `retry_after` (seconds) are the answer's or None.

    `answered` is the answer's own message, whole and without our words: a server in front of Polaris may have sent it.
    """

    code = "POLARIS_ERROR"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        error_type: str | None = None,
        retry_after: float | None = None,
        answered: str | None = None,
        code: str | None = None,
        scope: ErrorScope | None = None,
    ) -> None:
        super().__init__(message, code=code, scope=scope)
        self.status = status
        self.error_type = error_type
        self.retry_after = retry_after
        self.answered = answered


class NoSuchTable(PolarisError):
    """404 NoSuchTableException: the table never existed, or was dropped or renamed."""

    code = "NO_SUCH_TABLE"


class NoSuchNamespace(PolarisError):
    """404 NoSuchNamespaceException."""

    code = "NO_SUCH_NAMESPACE"


class NoSuchCatalog(PolarisError):
    """404 for the catalog itself: at `/v1/config`, or NotFoundException under its prefix."""

    code = "NO_SUCH_CATALOG"
    scope = ErrorScope.CATALOG


class TableAlreadyExists(PolarisError):
    """409 AlreadyExistsException."""

    code = "TABLE_ALREADY_EXISTS"


class NamespaceNotEmpty(PolarisError):
    """409 NamespaceNotEmptyException: there are tables or namespaces below a namespace that is to be dropped."""

    code = "NAMESPACE_NOT_EMPTY"


class CommitConflict(PolarisError):
    """409 CommitFailedException: another commit was first, or a requirement does not hold; nothing was changed."""

    code = "COMMIT_CONFLICT"


class TableMetadataMissing(PolarisError):
    """NotFoundException other than 404 (Polaris: 400): the table exists, its current metadata file does not."""

    code = "TABLE_METADATA_MISSING"


class PoliciesNotSupported(PolarisError):
    """The catalog has no policies: another server than Polaris, or one where they are switched off."""

    code = "POLICIES_NOT_SUPPORTED"
    scope = ErrorScope.CATALOG


class PolarisUnauthorized(PolarisError):
    """The client secret or a fresh token was refused."""

    code = "POLARIS_UNAUTHORIZED"
    scope = ErrorScope.CATALOG


class PolarisForbidden(PolarisError):
    """403 ForbiddenException: the service's principal lacks a privilege."""

    code = "POLARIS_FORBIDDEN"


class PolarisMisconfigured(PolarisError):
    """A setting for Polaris is wrong: the realm (MissingOrInvalidRealm), the scope or the secret."""

    code = "POLARIS_MISCONFIGURED"
    scope = ErrorScope.CATALOG


class CredentialVendingFailed(PolarisError, CredentialsUnavailable):
    """The table was loaded, but without a usable storage credential for the location."""

    code = "CREDENTIAL_VENDING_FAILED"


class PolarisUnexpectedAnswer(PolarisError):
    """The answer violates the protocol: an unknown status, no JSON, a missing field."""

    code = "POLARIS_UNEXPECTED_ANSWER"


class PolarisUnavailable(PolarisError):
    """Polaris was unreachable, timed out, throttled or failed, after the client's retries; nothing was written.

    Its scope is the catalog where no connection was made or requests are throttled. Any other may be one table's own.
    """

    code = "POLARIS_UNAVAILABLE"
    retryable = True


class PolarisOutcomeUnknown(PolarisUnavailable):
    """A write had no answer or a 5xx: it may have been applied, so load the table before repeating it."""

    code = "POLARIS_OUTCOME_UNKNOWN"


class SecretOutcomeUnknown(PolarisError):
    """An earlier rotation of the secret had no clear answer, so none is made that could end the stored one."""

    code = "SECRET_OUTCOME_UNKNOWN"
