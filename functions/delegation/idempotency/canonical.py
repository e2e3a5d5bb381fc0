"""The hash of a payload: SHA-256 over RFC 8785 canonical JSON (Idempotency-Key proposal, Canonicalization)."""

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import rfc8785

from delegation.errors import DelegationError

_EXACT: Final = 2**53 - 1
"""The largest integer that every JSON implementation keeps exactly (RFC 8785, Section 3.2.2.3)."""

_VOLATILE: Final = ("config", "storage-credentials")
"""Members of `operation_parameters` with vended credentials, which differ in a repeat of the same request."""


class NotCanonicalizable(DelegationError):
    """A JSON value has no canonical form: it has an infinite number, or text that is not Unicode."""

    code: ClassVar[str] = "INVALID_JSON"


def exact_integers(value: Any) -> Any:
    """Return the value with integers beyond ±(2^53-1) as decimal strings; RFC 8785 libraries refuse or round them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else str(value)
    if isinstance(value, Mapping):
        return {name: exact_integers(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact_integers(item) for item in value]
    return value


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value; raises NotCanonicalizable."""
    try:
        return rfc8785.dumps(exact_integers(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise NotCanonicalizable(f"the document has no canonical JSON form: {type(error).__name__}") from None


def payload_hash(document: Mapping[str, Any]) -> str:
    """Return the lower-case hex SHA-256 of a request's payload without its credentials."""
    parameters = document.get("operation_parameters")
    if isinstance(parameters, Mapping):
        kept = {name: value for name, value in parameters.items() if name not in _VOLATILE}
        document = {**document, "operation_parameters": kept}
    return hashlib.sha256(canonical_json(document)).hexdigest()
