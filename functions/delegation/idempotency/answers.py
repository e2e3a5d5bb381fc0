"""The answer to a mutation, and the part to store: never a credential, never an outcome that may change."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

_NOTHING_DONE: Final = frozenset({401, 419, 421, 423, 425, 429})
"""Refusals that precede any effect; 419 is Iceberg's AuthenticationTimeoutException."""
_PASSES: Final = _NOTHING_DONE | {408}
"""Refusals of this call, not of the operation: another token or a later moment gets another answer."""
_STORED_HEADERS: Final = frozenset({"content-type", "etag", "location"})
OWN_HEADERS: Final = "x-delegation-"
"""The prefix of the gateway's own headers about a mutation, such as where its table is."""
_CONTAINERS: Final = (dict, list)
_CREDENTIALS: Final = "storage-credentials"
_CONFIG: Final = "config"
_PROPERTIES: Final = "properties"
_SECRET_NAME: Final = re.compile(
    r"(?i)secret|token|passw|passphrase|credential|signature|(access|account|api|private|shared)[_.-]?key|jaas"
    r"|(^|[_.-])(sas|pwd)([_.-]|$)"
)
_SECRET_VALUE: Final = re.compile(r"://[^/\s@]+:[^/\s@]+@|\beyJ[\w-]{5,}\.[\w-]+\.|\b(AKIA|ASIA)[A-Z0-9]{16}\b")
_PLAIN_CONFIG: Final = frozenset({
    "client.factory",
    "client.region",
    "io-impl",
    "py-io-impl",
    "s3.endpoint",
    "s3.path-style-access",
    "s3.region",
    "warehouse",
})  # fmt: skip
"""Members of a table's `config` without a secret (Iceberg REST Catalog API, LoadTableResult); others are not stored."""


@dataclass(frozen=True, slots=True)
class MutationAnswer:
    """An HTTP answer; `is_whole` is False if it was stored without a part, which a replay has to restore."""

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_whole: bool = True

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether the refusal is final: no repeat of the same request would be accepted."""
        return 400 <= self.status < 500 and self.status not in _PASSES

    @property
    def did_nothing(self) -> bool:
        """Whether this call was refused before it did anything, though a repeat may be accepted."""
        return self.status in _NOTHING_DONE

    @property
    def is_final(self) -> bool:
        """Whether it may be stored (Idempotency-Key proposal, Server Behavior)."""
        return self.is_success or self.is_refusal


def storable(answer: MutationAnswer) -> MutationAnswer:
    """Return the part of an answer to store: relevant headers, and a body without credentials. Anywhere in a JSON body,
    `storage-credentials` and possibly secret members of `config` and `properties` are left out. A body that is not JSON
    is not stored, because its contents are unknown."""
    headers = {name: value for name, value in answer.headers.items() if _is_stored(name.lower())}
    body = _without_credentials(answer.body)
    return replace(answer, body=body, headers=headers, is_whole=answer.is_whole and body == answer.body)


def shortened(body: bytes) -> bytes:
    """Return a JSON object's members that are neither objects nor arrays; for a table, where its metadata file is."""
    document = json.loads(body)
    if not isinstance(document, dict):
        return b""
    return json_bytes({name: value for name, value in document.items() if not isinstance(value, _CONTAINERS)})


def json_bytes(document: object) -> bytes:
    """Return compact JSON; text that is not Unicode, which JSON can escape, stays escaped."""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":")).encode()


def _is_stored(header: str) -> bool:
    return header in _STORED_HEADERS or header.startswith(OWN_HEADERS)


def may_be_secret(name: str, value: object) -> bool:
    """Return whether a property's name or value looks like a secret's; too many rather than too few."""
    return bool(_SECRET_NAME.search(name)) or (isinstance(value, str) and bool(_SECRET_VALUE.search(value)))


def _without_credentials(body: bytes) -> bytes:
    if not body:
        return body
    try:
        document = json.loads(body)
        return json_bytes(document) if _remove_secrets(document) else body
    except (ValueError, RecursionError):
        return b""


def _remove_secrets(value: Any) -> bool:
    """Remove possible secrets from a JSON value in place; return whether there were any. Called only for objects and
    arrays: a table's metadata has ten times as many plain values."""
    removed = False
    if isinstance(value, dict):
        removed = value.pop(_CREDENTIALS, None) is not None
        config, properties = value.get(_CONFIG), value.get(_PROPERTIES)
        if isinstance(config, dict):
            removed |= _remove(config, [name for name in config if name not in _PLAIN_CONFIG])
        if isinstance(properties, dict):
            removed |= _remove(properties, [name for name, item in properties.items() if may_be_secret(name, item)])
        value = value.values()
    elif not isinstance(value, list):
        return False
    for item in value:
        if isinstance(item, _CONTAINERS) and _remove_secrets(item):
            removed = True
    return removed


def _remove(members: dict[str, Any], names: list[str]) -> bool:
    for name in names:
        del members[name]
    return bool(names)
