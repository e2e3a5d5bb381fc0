"""What the service's answers mean: a typed answer, or an error by what the caller can do next. Pure functions."""

import json
import re
import ssl
from typing import Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from delegation.client.errors import (
    AnswerLost,
    DelegationClientError,
    HttpError,
    IssuerUnavailable,
    ServiceUnreachable,
    TlsRefused,
    TokenUnavailable,
    UnexpectedAnswer,
    error_for,
)
from delegation.client.protocol.requests import ServiceRequest
from delegation.polaris.answers import retry_after
from delegation.polaris.errors import PolarisError, PolarisUnavailable

AnswerType = TypeVar("AnswerType", bound=BaseModel)
Reply = httpx.Response | httpx.RequestError
"""What became of a request: an answer whose body is read, or the error for which there is none."""

_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CERTIFICATE_ALERT: Final = re.compile("CERTIFICATE|UNKNOWN_CA")
_MESSAGE_LIMIT: Final = 1000


def checked(reply: Reply, request: ServiceRequest, base_url: str, answer: type[AnswerType]) -> AnswerType:
    """Return the answer's body; raises the DelegationClientError that states why there is none."""
    if isinstance(reply, httpx.RequestError):
        raise transport_error(reply, base_url) from reply
    if not reply.is_success:
        raise error_for(error_response(reply))
    try:
        return answer.model_validate_json(reply.content)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors(include_input=False)[0]["loc"]) or "body"
        path = request.path.partition("?")[0]
        raise UnexpectedAnswer(
            f"{request.method} {path} was answered {reply.status_code} with an unusable {place}"
        ) from None


def transport_error(error: httpx.RequestError, base_url: str) -> DelegationClientError:
    """Return the error for a request without a usable answer: whether it was sent decides what may be repeated."""
    refusal = _certificate_refusal(error)
    if refusal is not None:
        return TlsRefused(f"mutual TLS with {base_url} failed: {refusal}")
    if isinstance(error, _NOT_SENT):
        return ServiceUnreachable(f"{base_url} cannot be reached: {type(error).__name__}")
    return AnswerLost(f"{base_url} did not answer: {type(error).__name__}")


def error_response(response: httpx.Response) -> HttpError:
    """Return the fields that the body has; API Gateway's error bodies have at most a message."""
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    body = body if isinstance(body, dict) else {}

    def text(name: str) -> str | None:
        value = body.get(name)
        return value[:_MESSAGE_LIMIT] if isinstance(value, str) and value else None

    status = response.status_code
    return HttpError(
        http_status=status,
        error_code=text("error_code") or f"HTTP_{status}",
        message=text("message") or response.reason_phrase or "no reason given",
        details=text("details"),
        delegation_task_id=text("delegation_task_id"),
        status=text("status"),
        retryable=retryable if isinstance(retryable := body.get("retryable"), bool) else None,
        retry_after_seconds=retry_after(response),
    )


def token_unavailable(error: PolarisError) -> TokenUnavailable:
    """Return the error for a token that was refused, IssuerUnavailable for one that a later request may get.

    The token source's messages name Polaris, but this token endpoint may be another issuer's.
    """
    answer = "did not answer" if error.status is None else f"answered {error.status} {error.error_type or ''}"
    kind = IssuerUnavailable if isinstance(error, PolarisUnavailable) else TokenUnavailable
    found = kind(f"no access token: the token endpoint {answer.strip()}")
    found.__cause__ = error
    return found


def _certificate_refusal(error: BaseException) -> str | None:
    """Return why a certificate was refused, by this side or by an alert of the other (RFC 8446, Section 6.2)."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        if isinstance(cause, ssl.SSLError) and _CERTIFICATE_ALERT.search(cause.reason or ""):
            return cause.reason
        cause = cause.__cause__ or cause.__context__
    return None
