"""The identity of a payload: SHA-256 over RFC 8785 canonical JSON (idempotency-key.txt, Canonicalization)."""

import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import rfc8785

from delegation.errors import DelegationError

_EXACT: Final = 2**53 - 1
"""The largest integer that every JSON implementation keeps exactly (RFC 8785 §3.2.2.3, I-JSON)."""

_VOLATILE: Final = ("config", "storage-credentials")
"""Parts of `operation_parameters` that hold vended credentials: vended anew, the request is still the same."""


class NotCanonicalizable(DelegationError):
    """A JSON value has no canonical form: an infinite number, or text that is not Unicode."""

    code: ClassVar[str] = "INVALID_JSON"


def exact_integers(value: Any) -> Any:
    """The value with every integer beyond ±(2^53-1) replaced by its decimal string.

    Snapshot ids are such integers; canonicalisers refuse or silently round them (DESIGN §3).
    """
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
    """RFC 8785 bytes of a JSON value; NotCanonicalizable if it has none."""
    try:
        return rfc8785.dumps(exact_integers(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise NotCanonicalizable(f"the document has no canonical form: {type(error).__name__}") from None


def payload_hash(document: Mapping[str, Any]) -> str:
    """The lower-case hex SHA-256 that identifies a request's payload, credentials left out."""
    parameters = document.get("operation_parameters")
    if isinstance(parameters, Mapping):
        kept = {name: value for name, value in parameters.items() if name not in _VOLATILE}
        document = {**document, "operation_parameters": kept}
    return hashlib.sha256(canonical_json(document)).hexdigest()
