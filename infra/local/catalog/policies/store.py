"""The policies of one catalog, and to which entities they are attached; kept in its CatalogState.

Source: Apache Polaris 1.7.0, PolicyCatalog.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from infra.local.catalog.entities import POLICY, CatalogEntity, Namespace, dotted, in_namespace
from infra.local.catalog.errors import RestError, already_exists, bad_request
from infra.local.catalog.policies.contents import TYPES, check_content
from infra.local.catalog.state import CatalogState, Key, Records, atomic
from polaris_persistence.objects.objects import PersistedModel

ATTACHED: Final = "attached"
PolicyKey = tuple[Namespace, str]


class LocalPolicy(CatalogEntity):
    """A policy; its `version` counts from 0."""

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


class PolicyAttachment(PersistedModel):
    """The policy of a type that is attached to an entity."""

    policy: PolicyKey


class PolicyStore:
    """Policies by namespace and name; every method is atomic and may raise RestError."""

    def __init__(self, state: CatalogState, *, newer: bool = False) -> None:
        self.kept_detaches = 0
        """So many of the next detachments succeed and change nothing (Polaris up to 1.7, on a database)."""
        self.raced_updates = 0
        """So many of the next updates lose a race."""
        self._newer = newer
        self._state = state

    @atomic
    def get(self, records: Records, key: PolicyKey) -> LocalPolicy:
        return _require(records, key)

    @atomic
    def named(self, records: Records, policy_id: int) -> PolicyKey | None:
        """Return the name of an id, None for one that was dropped."""
        return next((one.key for one in _below(records, (POLICY,)) if one.id == policy_id), None)

    @atomic
    def names(self, records: Records, namespace: Namespace, type_: str | None) -> list[str]:
        """Return the names of a namespace's policies; like Polaris, of every type if it does not know `type_`."""
        found = _below(records, in_namespace(POLICY, namespace))
        return [one.key[1] for one in found if type_ not in TYPES or one.type == type_]

    @atomic
    def create(
        self, records: Records, key: PolicyKey, type_: str, description: str | None, content: object
    ) -> LocalPolicy:
        if records.get(in_namespace(POLICY, *key), LocalPolicy) is not None:
            raise already_exists(f"Policy {dotted(*key)}")
        if type_ not in TYPES:
            raise bad_request(f"Unknown policy type: {type_}")
        check_content(type_, content)
        made = LocalPolicy(id=records.new_id(), key=key, type=type_, description=description, content=str(content))
        records.put(in_namespace(POLICY, *key), made)
        return made

    def update(self, key: PolicyKey, version: object, description: str | None, content: object) -> LocalPolicy:
        """Replace description and content if `version` is the current one; what is the same gets no new version."""
        self.get(key)
        if self.raced_updates:
            self.raced_updates -= 1
            kind = (409, "CommitConflictException") if self._newer else (500, "IllegalStateException")
            raise RestError(*kind, f"Failed to update policy {dotted(*key)}: concurrent modification")
        return self._update(key, version, description, content)

    @atomic
    def _update(
        self, records: Records, key: PolicyKey, version: object, description: str | None, content: object
    ) -> LocalPolicy:
        found = _require(records, key)
        if version != found.version:
            reason = f"Policy version mismatch. Given version is {version}, current version is {found.version}"
            raise RestError(409, "PolicyVersionMismatchException", reason)
        if (description, content) == (found.description, found.content):
            return found
        check_content(found.type, content)
        new = {"description": description, "content": str(content), "version": found.version + 1}
        changed = found.model_copy(update=new)
        records.put(in_namespace(POLICY, *key), changed)
        return changed

    @atomic
    def drop(self, records: Records, key: PolicyKey, *, detach_all: bool) -> None:
        _require(records, key)
        places = [place for place in records.keys((ATTACHED,)) if _attached(records, place) == key]
        if places and not detach_all:
            reason = f"Policy {dotted(*key)} is still attached to entities"
            raise RestError(400, "PolicyInUseException", reason)
        for place in places:
            records.remove(place)
        records.remove(in_namespace(POLICY, *key))

    @atomic
    def attach(self, records: Records, key: PolicyKey, target: int, named: str) -> None:
        """Attach a policy to the entity with the id `target`, which has one of each type; a repeat changes nothing."""
        place = _place(target, _require(records, key).type)
        if _attached(records, place) is None:
            records.put(place, PolicyAttachment(policy=key))
        elif _attached(records, place) != key:
            reason = f"The policy mapping of same type ({place[-1]}) for {named} already exists"
            raise RestError(409, "PolicyMappingAlreadyExistsException", reason)

    def detach(self, key: PolicyKey, target: int, named: str) -> None:
        kept = self.kept_detaches > 0
        self._detach(key, target, named, kept=kept)
        self.kept_detaches -= kept

    @atomic
    def _detach(self, records: Records, key: PolicyKey, target: int, named: str, *, kept: bool) -> None:
        place = _place(target, _require(records, key).type)
        if _attached(records, place) != key:
            # An IllegalStateException in Polaris, where its specification has NoSuchMappingException.
            reason = (
                f"Failed to detach policy {dotted(*key)} from {named} error status: POLICY_MAPPING_NOT_FOUND "
                "with extraInfo: null"
            )
            raise RestError(500, "IllegalStateException", reason)
        if not kept:
            records.remove(place)

    @atomic
    def applicable(self, records: Records, path: Sequence[int], type_: str | None) -> list[dict[str, Any]]:
        """Return each ApplicablePolicy of the last entity of `path`: of a type the nearest one counts, whole."""
        nearest = {
            place[-1]: place
            for target in path
            for place in records.keys((ATTACHED, str(target)))
            if type_ not in TYPES or place[-1] == type_
        }
        policies = [(place, _require(records, _attached(records, place))) for place in nearest.values()]
        return [
            {**policy.body(), "inherited": place[1] != str(path[-1]), "namespace": list(policy.key[0])}
            for place, policy in policies
        ]


def _place(target: int, type_: str) -> Key:
    return (ATTACHED, str(target), type_)


def _attached(records: Records, place: Key) -> PolicyKey | None:
    found = records.get(place, PolicyAttachment)
    return None if found is None else found.policy


def _below(records: Records, prefix: Key) -> Iterator[LocalPolicy]:
    found = (records.get(key, LocalPolicy) for key in records.keys(prefix))
    return (one for one in found if one is not None)


def _require(records: Records, key: PolicyKey | None) -> LocalPolicy:
    found = None if key is None else records.get(in_namespace(POLICY, *key), LocalPolicy)
    if found is None:
        raise RestError(404, "NoSuchPolicyException", f"Policy does not exist: {dotted(*(key or ((), '')))}")
    return found
