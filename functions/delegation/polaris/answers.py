"""What an HTTP answer of Polaris means: pure functions of status, headers and body.

An error is recognised by the `type` in Iceberg's ErrorModel, never by the words of its message; the status only fills
in where no type came (a proxy's own 502, Polaris' empty 401).
"""

import json
import re
from collections.abc import Iterable
from typing import Any

import httpx

from delegation.polaris.errors import (
    NoSuchCatalog,
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisForbidden,
    PolarisMisconfigured,
    PolarisOutcomeUnknown,
    PolarisUnauthorized,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
    TableAlreadyExists,
    TableMetadataMissing,
)

NOT_APPLIED = frozenset({429, 503})
_MESSAGE_LIMIT = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_BY_TYPE: dict[str, type[PolarisError]] = {
    "NoSuchTableException": NoSuchTable,
    "NoSuchIcebergTableException": NoSuchTable,
    "NoSuchNamespaceException": NoSuchNamespace,
    "AlreadyExistsException": TableAlreadyExists,
    "ForbiddenException": PolarisForbidden,
    "NotAuthorizedException": PolarisUnauthorized,
    "MissingOrInvalidRealm": PolarisMisconfigured,
}
_BY_STATUS: dict[int, type[PolarisError]] = {401: PolarisUnauthorized, 403: PolarisForbidden}


def error_of(response: httpx.Response, *, write: bool = False, secrets: Iterable[str] = ()) -> PolarisError:
    """The error a non-2xx answer stands for; `secrets` are blotted out of the server's message should it echo them.

    A write answered by a server error other than 503 may have been applied (Iceberg REST: CommitStateUnknown).
    """
    status = response.status_code
    error_type, message = (_printable(text, secrets) for text in _error_model(response))
    text = f"Polaris answered {status}" + (f" {error_type}" if error_type else "") + (f": {message}" if message else "")
    if error_type == "NotFoundException":
        # Polaris says 400 for a missing metadata file and 404 for an unknown catalog, both under this one type.
        kind: type[PolarisError] = NoSuchCatalog if status == 404 else TableMetadataMissing
    else:
        kind = _BY_TYPE.get(error_type or "") or _BY_STATUS.get(status) or PolarisUnexpectedAnswer
    if kind is PolarisUnexpectedAnswer and is_transient(status):
        kind = PolarisOutcomeUnknown if write and status not in NOT_APPLIED else PolarisUnavailable
    return kind(text, status=status, error_type=error_type, retry_after=retry_after(response))


def is_transient(status: int) -> bool:
    """Whether the same request may succeed a moment later."""
    return status in {408, 429} or status >= 500


def retry_after(response: httpx.Response) -> float | None:
    """`Retry-After` in seconds; None when absent or a date, which Polaris never sends (RFC 9110 §10.2.3)."""
    value = response.headers.get("Retry-After", "").strip()
    return float(value) if value.isascii() and value.isdigit() else None


def json_object(response: httpx.Response) -> dict[str, Any]:
    """The JSON object in a 2xx answer, integers exact; PolarisUnexpectedAnswer when it is anything else."""
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        # The body is not quoted and the parse error not chained: both could show a credential.
        raise PolarisUnexpectedAnswer("Polaris answered with something other than a JSON object", status=200)
    return body


def _error_model(response: httpx.Response) -> tuple[str | None, str | None]:
    """(type, message) of Iceberg's ErrorModel, or of an OAuth2 error (RFC 6749 §5.2)."""
    try:
        body = json.loads(response.content)
    except ValueError:
        return None, None
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return _text(error.get("type")), _text(error.get("message"))
    if isinstance(error, str):
        return error, _text(body.get("error_description"))
    return None, None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _printable(text: str | None, secrets: Iterable[str]) -> str | None:
    if text is None:
        return None
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _CONTROL.sub(" ", text)[:_MESSAGE_LIMIT]
