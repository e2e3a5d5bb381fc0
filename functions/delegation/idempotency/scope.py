"""The scope of an idempotency key: who sent it, and to which method of which resource."""

import hashlib
from dataclasses import dataclass

from delegation.idempotency.canonical import canonical_json


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a key; `caller` is the client's name, not its certificate, which is replaced."""

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
