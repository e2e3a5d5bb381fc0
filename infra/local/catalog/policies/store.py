"""The policies of one catalog, and to which entities they are attached; in memory under one lock.

Source: Apache Polaris 1.7.0, PolicyCatalog.
"""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.local.catalog.errors import RestError, already_exists, bad_request
from infra.local.catalog.policies.contents import TYPES, check_content
from infra.local.catalog.state import Namespace, dotted

_FIRST_ID = 1_000_000_000
PolicyKey = tuple[Namespace, str]


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    """A policy; its `version` counts from 0."""

    id: int
    key: PolicyKey
    type: str
    description: str | None
    content: str
    version: int = 0

    def body(self) -> dict[str, Any]:
        """Return the Policy of the API."""
        return {
            "policy-type": self.type,
            "inheritable": True,
            "name": self.key[1],
            "description": self.description,
            "content": self.content,
            "version": self.version,
        }


class PolicyStore:
    """Policies by namespace and name; every method is atomic and may raise RestError."""

    def __init__(self, *, newer: bool = False) -> None:
        self.kept_detaches = 0
        """So many of the next detachments succeed and change nothing (Polaris up to 1.7, on a database)."""
        self.raced_updates = 0
        """So many of the next updates lose a race."""
        self._newer = newer
        self._lock = threading.Lock()
        self._ids = itertools.count(_FIRST_ID)
        self._policies: dict[PolicyKey, LocalPolicy] = {}
        # (id of the catalog, namespace or table, type) -> the policy that is attached there
        self._attached: dict[tuple[int, str], PolicyKey] = {}

    def has(self, key: PolicyKey) -> bool:
        with self._lock:
            return key in self._policies

    def get(self, key: PolicyKey) -> LocalPolicy:
        with self._lock:
            return self._require(key)

    def named(self, policy_id: int) -> PolicyKey | None:
        """Return the name of an id, None for one that was dropped."""
        with self._lock:
            return next((key for key, one in self._policies.items() if one.id == policy_id), None)

    def names(self, namespace: Namespace, type_: str | None) -> list[str]:
        """Return the names of a namespace's policies; like Polaris, of every type if it does not know `type_`."""
        with self._lock:
            found = (one for (own, _), one in self._policies.items() if own == namespace)
            return sorted(one.key[1] for one in found if type_ not in TYPES or one.type == type_)

    def create(self, key: PolicyKey, type_: str, description: str | None, content: object) -> LocalPolicy:
        with self._lock:
            if key in self._policies:
                raise already_exists(f"Policy {dotted(*key)}")
            if type_ not in TYPES:
                raise bad_request(f"Unknown policy type: {type_}")
            check_content(type_, content)
            made = self._policies[key] = LocalPolicy(next(self._ids), key, type_, description, str(content))
            return made

    def update(self, key: PolicyKey, version: object, description: str | None, content: object) -> LocalPolicy:
        """Replace description and content if `version` is the current one; what is the same gets no new version."""
        with self._lock:
            found = self._require(key)
            if self.raced_updates:
                self.raced_updates -= 1
                kind = (409, "CommitConflictException") if self._newer else (500, "IllegalStateException")
                raise RestError(*kind, f"Failed to update policy {dotted(*key)}: concurrent modification")
            if version != found.version:
                reason = f"Policy version mismatch. Given version is {version}, current version is {found.version}"
                raise RestError(409, "PolicyVersionMismatchException", reason)
            if (description, content) == (found.description, found.content):
                return found
            check_content(found.type, content)
            changed = replace(found, description=description, content=str(content), version=found.version + 1)
            self._policies[key] = changed
            return changed

    def drop(self, key: PolicyKey, *, detach_all: bool) -> None:
        with self._lock:
            self._require(key)
            places = [place for place, attached in self._attached.items() if attached == key]
            if places and not detach_all:
                reason = f"Policy {dotted(*key)} is still attached to entities"
                raise RestError(400, "PolicyInUseException", reason)
            for place in places:
                del self._attached[place]
            del self._policies[key]

    def attach(self, key: PolicyKey, target: int, named: str) -> None:
        """Attach a policy to the entity with the id `target`, which has one of each type; a repeat changes nothing."""
        with self._lock:
            policy = self._require(key)
            if self._attached.setdefault((target, policy.type), key) != key:
                reason = f"The policy mapping of same type ({policy.type}) for {named} already exists"
                raise RestError(409, "PolicyMappingAlreadyExistsException", reason)

    def detach(self, key: PolicyKey, target: int, named: str) -> None:
        with self._lock:
            policy = self._require(key)
            if self._attached.get((target, policy.type)) != key:
                # An IllegalStateException in Polaris, where its specification has NoSuchMappingException.
                reason = (
                    f"Failed to detach policy {dotted(*key)} from {named} error status: POLICY_MAPPING_NOT_FOUND "
                    "with extraInfo: null"
                )
                raise RestError(500, "IllegalStateException", reason)
            if self.kept_detaches:
                self.kept_detaches -= 1
                return
            del self._attached[target, policy.type]

    def applicable(self, path: Sequence[int], type_: str | None) -> list[dict[str, Any]]:
        """Return each ApplicablePolicy of the last entity of `path`: of a type the nearest one counts, whole."""
        with self._lock:
            nearest = {
                kind: key
                for place in path
                for (target, kind), key in self._attached.items()
                if target == place and (type_ not in TYPES or kind == type_)
            }
            return [
                {
                    **self._policies[key].body(),
                    "inherited": not self._is_attached(key, path[-1]),
                    "namespace": list(key[0]),
                }
                for key in nearest.values()
            ]

    def _is_attached(self, key: PolicyKey, target: int) -> bool:
        return self._attached.get((target, self._policies[key].type)) == key

    def _require(self, key: PolicyKey) -> LocalPolicy:
        if key not in self._policies:
            raise RestError(404, "NoSuchPolicyException", f"Policy does not exist: {dotted(*key)}")
        return self._policies[key]
