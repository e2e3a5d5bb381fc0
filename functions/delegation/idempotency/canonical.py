"""What identifies a request: the scope of its key, and the hash of its payload. Both are SHA-256 over RFC 8785
canonical JSON (Idempotency-Key proposal, Canonicalization)."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import rfc8785

from polaris_common.errors import DelegationError

RULE: Final = 2
"""The number of the rule that makes a payload's identity; a record stores the number of its own.

Rule 1 wrote a big integer as a string, so that it hashed like the string of its digits. A rule is never changed: a
request that was accepted under it may be repeated after a deployment.
"""

_EXACT: Final = 2**53 - 1
"""The largest integer that every JSON implementation keeps exactly (RFC 8785, Section 3.2.2.3)."""

_VOLATILE: Final = ("config", "storage-credentials")
"""Members of `operation_parameters` with vended credentials, which differ in a repeat of the same request."""

_INTEGER: Final = "$int"


class NotCanonicalizable(DelegationError):
    """A JSON value has no canonical form: an infinite number, text that is not Unicode, or a reserved object."""

    code = "INVALID_JSON"


def exact_integers(value: Any, *, rule: int = RULE) -> Any:
    """Return the value with integers beyond ±(2^53-1) as `{"$int": "digits"}`, which RFC 8785 libraries refuse or
    round. Raises NotCanonicalizable for an object of that form in the value, which would hash like the integer."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_EXACT <= value <= _EXACT else _big(value, rule)
    if isinstance(value, Mapping):
        if rule > 1 and value.keys() == {_INTEGER}:
            raise NotCanonicalizable(
                f'an object with the only member "{_INTEGER}" is reserved for big integers; add a member or rename it'
            )
        return {name: exact_integers(item, rule=rule) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [exact_integers(item, rule=rule) for item in value]
    return value


def canonical_json(value: Any, *, rule: int = RULE) -> bytes:
    """Return the RFC 8785 bytes of a JSON value; raises NotCanonicalizable."""
    try:
        return rfc8785.dumps(exact_integers(value, rule=rule))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise NotCanonicalizable(f"the document has no canonical JSON form: {type(error).__name__}") from None


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a key: who sent it, and to which method of which resource. `caller` is the client's name, not its
    certificate, which is replaced."""

    caller: str
    realm_id: str
    method: str
    resource_path: str
    idempotency_key: str

    @property
    def id(self) -> str:
        """The key of the record: a SHA-256 of the scope."""
        parts = [self.caller, self.realm_id, self.method, self.resource_path, self.idempotency_key]
        return hashlib.sha256(canonical_json(parts)).hexdigest()


def unread_body(body: str) -> dict[str, str]:
    """Return the document of a body that its operation does not read: no body is the same as an empty object."""
    try:
        value = json.loads(body) if body.strip() else {}
        return {"body": "" if value == {} else canonical_json(value).decode()}
    except (ValueError, RecursionError, NotCanonicalizable):
        return {"body": body}


def payload_hash(document: Mapping[str, Any], *, rule: int = RULE) -> str:
    """Return the lower-case hex SHA-256 of a request's payload without its credentials; raises NotCanonicalizable."""
    parameters = document.get("operation_parameters")
    if isinstance(parameters, Mapping):
        kept = {name: value for name, value in parameters.items() if name not in _VOLATILE}
        document = {**document, "operation_parameters": kept}
    return hashlib.sha256(canonical_json(document, rule=rule)).hexdigest()


def payload_hashes(document: Mapping[str, Any]) -> Callable[[int], str]:
    """Return a function from a rule's number to the payload's hash under it; raises NotCanonicalizable under RULE."""

    @cache
    def under(rule: int) -> str:
        return payload_hash(document, rule=rule)

    under(RULE)
    return under


def _big(value: int, rule: int) -> str | dict[str, str]:
    return str(value) if rule == 1 else {_INTEGER: str(value)}
