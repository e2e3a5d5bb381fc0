"""Interprets Polaris' HTTP answers and errors. Errors are recognized by the `type` of Iceberg's ErrorModel, not by
their message; by the status only without a type, as in a proxy's 502 or Polaris' empty 401. Two causes are only in
messages: the operation that a principal may not do (PolarisAuthorizerImpl), and a catalog without an STS, an
IllegalArgumentException (IcebergCatalogHandler)."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from delegation.polaris.model import read_document
from delegation.storage.credentials import CredentialsUnavailable
from polaris_common.errors import DelegationError, ErrorScope

if TYPE_CHECKING:
    import httpx


class PolarisError(DelegationError):
    """A request to Polaris failed; `status`, `error_type` and `retry_after` (seconds) are the answer's or None.
    `answered` is the answer's own whole message; a server in front of Polaris may have sent it."""

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
    """409 NamespaceNotEmptyException: the namespace to drop still has tables or namespaces."""

    code = "NAMESPACE_NOT_EMPTY"


class CommitConflict(PolarisError):
    """409 CommitFailedException: another commit was first, or a requirement does not hold; nothing was changed."""

    code = "COMMIT_CONFLICT"


class TableMetadataMissing(PolarisError):
    """NotFoundException other than 404 (Polaris: 400): the table exists, its current metadata file does not."""

    code = "TABLE_METADATA_MISSING"


class PoliciesNotSupported(PolarisError):
    """The catalog has no policies: the server is not Polaris, or its policies are disabled."""

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
    """Polaris was unreachable, timed out, throttled or failed, after the client's retries; nothing was written. Its
    scope is the catalog if no connection was made or requests are throttled; otherwise it may be one table's."""

    code = "POLARIS_UNAVAILABLE"
    retryable = True


class PolarisOutcomeUnknown(PolarisUnavailable):
    """A write had no answer or a 5xx: it may have been applied, so load the table before you repeat it."""

    code = "POLARIS_OUTCOME_UNKNOWN"


class SecretOutcomeUnknown(PolarisError):
    """An earlier rotation of the secret had no clear answer; another could end the stored secret and is not made."""

    code = "SECRET_OUTCOME_UNKNOWN"


NOT_APPLIED = frozenset({429, 503})
_MESSAGE_LIMIT = 300
_ANSWER_LIMIT = 2_000
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""An escape of half a character beyond U+FFFF, or its bytes."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_BY_TYPE: dict[str, type[PolarisError]] = {
    "NoSuchTableException": NoSuchTable,
    "NoSuchIcebergTableException": NoSuchTable,
    "NoSuchNamespaceException": NoSuchNamespace,
    "AlreadyExistsException": TableAlreadyExists,
    "NamespaceNotEmptyException": NamespaceNotEmpty,
    "CommitFailedException": CommitConflict,
    "ForbiddenException": PolarisForbidden,
    "NotAuthorizedException": PolarisUnauthorized,
    "MissingOrInvalidRealm": PolarisMisconfigured,
    "NoSuchTargetException": NoSuchTable,
}
POLICY_CODES: Final[Mapping[str, str]] = {
    "NoSuchPolicyException": "NO_SUCH_POLICY",
    "PolicyVersionMismatchException": "POLICY_CHANGED",
    "PolicyInUseException": "POLICY_IN_USE",
    "InvalidPolicyException": "POLICY_REFUSED",
    # The second name of each pair is that of the specification, policy-apis.yaml.
    "PolicyMappingAlreadyExistsException": "POLICY_TYPE_ATTACHED",
    "ConflictPolicyAttachmentException": "POLICY_TYPE_ATTACHED",
    "PolicyAttachException": "POLICY_NOT_ATTACHABLE",
    "NoSuchMappingException": "POLICY_NOT_ATTACHED",
}
"""The code of a PolarisError by the type of an answer about policies."""
_NOT_AUTHORIZED = re.compile(r"is not authorized for op ([A-Z_]+)")
_NO_STS = "Credential vending was requested"
_OUTCOME_UNKNOWN: Final = "CommitStateUnknownException"
_FILE_GONE: Final = re.compile(r"Location does not exist: [a-z0-9]+:/")
"""Matches Iceberg's NotFoundException for a metadata file; a name has no `:` and no `/`."""
_STATIC_FACADE: Final = "static-facade external catalog"
EXTERNAL: Final = (
    "the catalog is EXTERNAL: another catalog owns its tables, so this service does not delete their files"
)
CATALOG_UNSUPPORTED: Final = "CATALOG_UNSUPPORTED"
SUPPORTED_STORAGE: Final = frozenset({"S3", "FILE"})
_STS_HINT = (
    "the catalog's storage has no STS that issues credentials. Set up an STS in the catalog's storage configuration"
)
_READ_AND_WRITE = "TABLE_WRITE_DATA on the table's namespace or the catalog (TABLE_READ_DATA is enough to read)"
# Polaris' name of an operation -> the privilege to grant, and where
_NEEDED = {
    "LIST_NAMESPACES": "NAMESPACE_LIST on the catalog",
    "LIST_TABLES": "TABLE_LIST on the namespace or the catalog (TABLE_WRITE_DATA there includes it); grants on single "
    "tables are not enough",
    "LOAD_TABLE": "TABLE_READ_PROPERTIES on the table's namespace or the catalog (TABLE_WRITE_DATA includes it)",
    "TABLE_EXISTS": "TABLE_LIST on the table's namespace or the catalog (TABLE_WRITE_DATA includes it)",
    "LIST_VIEWS": "VIEW_LIST on the namespace or the catalog",
    "LOAD_VIEW": "VIEW_READ_PROPERTIES on the view's namespace or the catalog",
    "LOAD_TABLE_WITH_READ_DELEGATION": _READ_AND_WRITE,
    "LOAD_TABLE_WITH_WRITE_DELEGATION": _READ_AND_WRITE,
    "CREATE_NAMESPACE": "NAMESPACE_CREATE on the namespace above or the catalog",
    "LOAD_NAMESPACE_METADATA": "NAMESPACE_READ_PROPERTIES on the namespace or the catalog",
    "DROP_NAMESPACE": "NAMESPACE_DROP on the namespace or the catalog",
    "DROP_TABLE_WITHOUT_PURGE": "TABLE_DROP on the table's namespace or the catalog",
    "RENAME_TABLE": "TABLE_DROP on the table and TABLE_CREATE on the namespace of its new name",
    "CREATE_POLICY": "POLICY_CREATE on the policy's namespace or the catalog",
    "LIST_POLICY": "POLICY_LIST on the namespace or the catalog",
    "LOAD_POLICY": "POLICY_READ on the policy's namespace or the catalog",
    "UPDATE_POLICY": "POLICY_WRITE on the policy's namespace or the catalog",
    "DROP_POLICY": "POLICY_DROP on the policy's namespace or the catalog",
    "ATTACH_POLICY_TO_CATALOG": "POLICY_ATTACH on the policy and CATALOG_ATTACH_POLICY on the catalog",
    "ATTACH_POLICY_TO_NAMESPACE": "POLICY_ATTACH on the policy and NAMESPACE_ATTACH_POLICY on the namespace",
    "ATTACH_POLICY_TO_TABLE": "POLICY_ATTACH on the policy and TABLE_ATTACH_POLICY on the table",
    "DETACH_POLICY_FROM_CATALOG": "POLICY_DETACH on the policy and CATALOG_DETACH_POLICY on the catalog",
    "DETACH_POLICY_FROM_NAMESPACE": "POLICY_DETACH on the policy and NAMESPACE_DETACH_POLICY on the namespace",
    "DETACH_POLICY_FROM_TABLE": "POLICY_DETACH on the policy and TABLE_DETACH_POLICY on the table",
    "GET_APPLICABLE_POLICIES_ON_CATALOG": "CATALOG_READ_PROPERTIES on the catalog",
    "GET_APPLICABLE_POLICIES_ON_NAMESPACE": "NAMESPACE_READ_PROPERTIES on the namespace or the catalog",
    "GET_APPLICABLE_POLICIES_ON_TABLE": "TABLE_READ_PROPERTIES on the table's namespace or the catalog",
    "UPDATE_TABLE": "TABLE_WRITE_PROPERTIES on the table's namespace or the catalog",
    "REMOVE_TABLE_SNAPSHOTS": "TABLE_REMOVE_SNAPSHOTS on the table's namespace or the catalog",
    "REMOVE_TABLE_SNAPSHOT_REF": "TABLE_REMOVE_SNAPSHOT_REF on the table's namespace or the catalog",
    "DROP_TABLE_WITH_PURGE": "TABLE_DROP and TABLE_WRITE_DATA on the table's namespace or the catalog",
}
TOKEN_REFUSED: Final = frozenset({401, 419})
"""419 is Iceberg's AuthenticationTimeoutException."""
_BY_STATUS: dict[int, type[PolarisError]] = {**dict.fromkeys(TOKEN_REFUSED, PolarisUnauthorized), 403: PolarisForbidden}


def error_of(response: "httpx.Response", *, write: bool = False, secrets: Iterable[str] = ()) -> PolarisError:
    """Return the error of a non-2xx answer, with `secrets` masked in the server's message. A write answered with a
    server error other than 503 may have been applied (Iceberg REST: CommitStateUnknown)."""
    status = response.status_code
    error_type, message = _error_model(response)
    hint, answered = _hint(error_type, message), _printable(message, secrets, _ANSWER_LIMIT)
    error_type, message = _printable(error_type, secrets), _printable(message, secrets)
    # Before Polaris' own words, which name every role of the principal and may be cut.
    message = f"{hint}: {message}" if hint else message
    text = f"Polaris answered {status}" + (f" {error_type}" if error_type else "") + (f": {message}" if message else "")
    if error_type == "NotFoundException":
        # Polaris uses this type for a missing metadata file (400) and for an unknown catalog (404).
        kind: type[PolarisError] = NoSuchCatalog if status == 404 else TableMetadataMissing
    elif _FILE_GONE.search(answered or "") and error_type not in _BY_TYPE and not (write and is_transient(status)):
        # A federated catalog passes on the other catalog's answer, as BadRequestException or with a 5xx.
        kind = TableMetadataMissing
    elif write and error_type == _OUTCOME_UNKNOWN:
        # 1.7 answers it with 400, later releases with 500.
        kind = PolarisOutcomeUnknown
    elif hint == EXTERNAL:
        kind = PolarisError
    elif hint == _STS_HINT:
        kind = CredentialVendingFailed
    elif error_type in POLICY_CODES:
        kind = PolarisError
    else:
        kind = _BY_TYPE.get(error_type or "") or _BY_STATUS.get(status) or PolarisUnexpectedAnswer
    if kind is PolarisUnexpectedAnswer and is_transient(status):
        kind = PolarisOutcomeUnknown if write and status not in NOT_APPLIED else PolarisUnavailable
    code = CATALOG_UNSUPPORTED if hint == EXTERNAL else POLICY_CODES.get(error_type or "")
    return kind(
        text,
        status=status,
        error_type=error_type,
        retry_after=retry_after(response),
        answered=answered,
        code=code,
        scope=ErrorScope.CATALOG if status == 429 else None,
    )


def _hint(error_type: str | None, message: str | None) -> str:
    """Return which privilege or STS Polaris' message shows to be missing, "" if none."""
    if error_type == "ForbiddenException" and (refused := _NOT_AUTHORIZED.search(message or "")):
        needed = _NEEDED.get(refused[1])
        return f"the principal needs {needed}" if needed else ""
    if _STATIC_FACADE in (message or ""):
        return EXTERNAL
    return _STS_HINT if error_type == "IllegalArgumentException" and (message or "").startswith(_NO_STS) else ""


def why_unsupported(catalog: Mapping[str, Any]) -> str | None:
    """Return why nothing may be deleted of a catalog's tables, from the management API's catalog; None if it may."""
    storage = catalog.get("storageConfigInfo")
    kind = storage.get("storageType") if isinstance(storage, dict) else None
    if catalog.get("type") == "EXTERNAL":
        return EXTERNAL
    if isinstance(kind, str) and kind not in SUPPORTED_STORAGE:
        return f"the catalog's storage type is {_printable(kind, ())}, and this service deletes only from S3"
    return None


def is_transient(status: int) -> bool:
    """Return whether the same request may succeed later."""
    return status in {408, 429} or status >= 500


def retry_after(response: "httpx.Response") -> float | None:
    """Return `Retry-After` in seconds, None if absent or a date (RFC 9110, Section 10.2.3)."""
    value = response.headers.get("Retry-After", "").strip()
    return float(value) if value.isascii() and value.isdigit() else None


def json_object(response: "httpx.Response") -> dict[str, Any]:
    """Return the JSON object of a 2xx answer with exact integers, without parts of large metadata that nothing needs.
    Raises PolarisUnexpectedAnswer."""
    body = _parsed(response)
    if body is None and _SURROGATE.search(response.content):
        raise PolarisUnexpectedAnswer("Polaris answered with text or a name that is not Unicode", status=200)
    if not isinstance(body, dict):
        # The error neither quotes the body nor chains the parser's error: both can contain credentials.
        raise PolarisUnexpectedAnswer("Polaris answered with something other than a JSON object", status=200)
    return body


def _parsed(response: "httpx.Response") -> Any:
    """Return the JSON value of an answer; None for no JSON, too many levels, and text that is not Unicode."""
    try:
        value = read_document(response.content)
        if _SURROGATE.search(response.content):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def _error_model(response: "httpx.Response") -> tuple[str | None, str | None]:
    """Return type and message of Iceberg's ErrorModel or of an OAuth2 error (RFC 6749, Section 5.2)."""
    body = _parsed(response)
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return _text(error.get("type")), _text(error.get("message"))
    if isinstance(error, str):
        return error, _text(body.get("error_description"))
    return None, None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _printable(text: str | None, secrets: Iterable[str], limit: int = _MESSAGE_LIMIT) -> str | None:
    if text is None:
        return None
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _CONTROL.sub(" ", text)[:limit]
