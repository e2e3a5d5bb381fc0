"""Polaris' policies: contents, attachments, inheritance, and the routes below `/api/catalog/polaris/v1`.

Source: Apache Polaris 1.7.0, PolicyValidators, PolicyCatalog, policy-apis.yaml and PolicyCatalogHandler.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from werkzeug.wrappers import Request, Response

from infra.local.catalog import errors
from infra.local.catalog.access import AccessControl, CatalogCaller
from infra.local.catalog.entities import POLICY, CatalogEntities, CatalogEntity, Namespace, dotted, in_namespace
from infra.local.catalog.state import CatalogState, Key, Records, atomic
from polaris_persistence.objects.objects import PersistedModel

POLICY_VERSION: Final = "2025-02-03"
_COMMON: Final = frozenset({"version", "enable", "config"})
_ORPHANS: Final = "system.orphan-file-removal"
_MEMBERS: Final[Mapping[str, frozenset[str]]] = {
    "system.data-compaction": _COMMON,
    "system.metadata-compaction": _COMMON,
    "system.snapshot-expiry": _COMMON,
    _ORPHANS: _COMMON | {"max_orphan_file_age_in_days", "locations"},
}
POLICY_TYPES: Final = frozenset(_MEMBERS)
"""The predefined types; each is inheritable."""


def check_content(type_: str, content: object) -> None:
    """Raise RestError 400 for a content that Polaris does not store."""
    if not isinstance(content, str) or not content:
        raise _invalid_policy("Policy is empty")
    try:
        document = json.loads(content)
    except ValueError as error:
        raise _invalid_policy(f"Unrecognized token: {error}") from None
    if not isinstance(document, dict):
        raise _invalid_policy("Cannot construct an instance of the policy's content")
    for name in document.keys() - _MEMBERS[type_]:
        raise _invalid_policy(f'Unrecognized field "{name}"')
    # Jackson reads these texts as a boolean.
    if not isinstance(document.get("enable"), bool) and document.get("enable") not in ("true", "false"):
        raise _invalid_policy("Missing required creator property 'enable', or it is no boolean")
    if (document.get("version") or POLICY_VERSION) != POLICY_VERSION:
        raise _invalid_policy(f"Invalid policy version: {document['version']}")
    _check_config(document.get("config"))
    if type_ == _ORPHANS:
        _check_orphans(document)


def _check_config(config: Any) -> None:
    if config is None:
        return
    if not isinstance(config, dict) or any(isinstance(value, dict | list) for value in config.values()):
        raise _invalid_policy("Cannot deserialize value of type `java.lang.String` in config")


def _check_orphans(document: Mapping[str, Any]) -> None:
    age, locations = document.get("max_orphan_file_age_in_days") or 0, document.get("locations") or []
    if isinstance(age, bool) or not isinstance(age, int | float):
        raise _invalid_policy("Cannot deserialize value of type `int` of max_orphan_file_age_in_days")
    if age < 0:
        raise _invalid_policy(f"Invalid max_orphan_file_age_in_days: {age}. It must be greater than or equal to 0")
    if not isinstance(locations, list) or not all(isinstance(location, str) for location in locations):
        raise _invalid_policy("Cannot deserialize value of type `java.util.ArrayList` of locations")


def _invalid_policy(reason: str) -> errors.RestError:
    return errors.RestError(400, "InvalidPolicyException", reason)


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
        return next((policy.key for policy in _below(records, (POLICY,)) if policy.id == policy_id), None)

    @atomic
    def names(self, records: Records, namespace: Namespace, type_: str | None) -> list[str]:
        """Return the names of a namespace's policies; like Polaris, of every type if it does not know `type_`."""
        policies = _below(records, in_namespace(POLICY, namespace))
        return [policy.key[1] for policy in policies if type_ not in POLICY_TYPES or policy.type == type_]

    @atomic
    def create(
        self, records: Records, key: PolicyKey, type_: str, description: str | None, content: object
    ) -> LocalPolicy:
        if records.get(in_namespace(POLICY, *key), LocalPolicy) is not None:
            raise errors.already_exists(f"Policy {dotted(*key)}")
        if type_ not in POLICY_TYPES:
            raise errors.bad_request(f"Unknown policy type: {type_}")
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
            raise errors.RestError(*kind, f"Failed to update policy {dotted(*key)}: concurrent modification")
        return self._update(key, version, description, content)

    @atomic
    def _update(
        self, records: Records, key: PolicyKey, version: object, description: str | None, content: object
    ) -> LocalPolicy:
        policy = _require(records, key)
        if version != policy.version:
            reason = f"Policy version mismatch. Given version is {version}, current version is {policy.version}"
            raise errors.RestError(409, "PolicyVersionMismatchException", reason)
        if (description, content) == (policy.description, policy.content):
            return policy
        check_content(policy.type, content)
        new = {"description": description, "content": str(content), "version": policy.version + 1}
        changed = policy.model_copy(update=new)
        records.put(in_namespace(POLICY, *key), changed)
        return changed

    @atomic
    def drop(self, records: Records, key: PolicyKey, *, detach_all: bool) -> None:
        _require(records, key)
        places = [place for place in records.keys((ATTACHED,)) if _attached(records, place) == key]
        if places and not detach_all:
            reason = f"Policy {dotted(*key)} is still attached to entities"
            raise errors.RestError(400, "PolicyInUseException", reason)
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
            raise errors.RestError(409, "PolicyMappingAlreadyExistsException", reason)

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
            raise errors.RestError(500, "IllegalStateException", reason)
        if not kept:
            records.remove(place)

    @atomic
    def applicable(self, records: Records, path: Sequence[int], type_: str | None) -> list[dict[str, Any]]:
        """Return each ApplicablePolicy of the last entity of `path`: of a type the nearest one counts, whole."""
        nearest = {
            place[-1]: place
            for target in path
            for place in records.keys((ATTACHED, str(target)))
            if type_ not in POLICY_TYPES or place[-1] == type_
        }
        policies = [(place, _require(records, _attached(records, place))) for place in nearest.values()]
        return [
            {**policy.body(), "inherited": place[1] != str(path[-1]), "namespace": list(policy.key[0])}
            for place, policy in policies
        ]


def _place(target: int, type_: str) -> Key:
    return (ATTACHED, str(target), type_)


def _attached(records: Records, place: Key) -> PolicyKey | None:
    attachment = records.get(place, PolicyAttachment)
    return None if attachment is None else attachment.policy


def _below(records: Records, prefix: Key) -> Iterator[LocalPolicy]:
    policies = (records.get(key, LocalPolicy) for key in records.keys(prefix))
    return (policy for policy in policies if policy is not None)


def _require(records: Records, key: PolicyKey | None) -> LocalPolicy:
    policy = None if key is None else records.get(in_namespace(POLICY, *key), LocalPolicy)
    if policy is None:
        raise errors.RestError(404, "NoSuchPolicyException", f"Policy does not exist: {dotted(*(key or ((), '')))}")
    return policy


SEPARATOR: Final = "\x1f"
_METHODS: Final = {
    "namespaces/{namespace}/policies": "GET POST",
    "namespaces/{namespace}/policies/{policy-name}": "GET PUT DELETE",
    "namespaces/{namespace}/policies/{policy-name}/mappings": "PUT POST",
    "applicable-policies": "GET",
}
ENDPOINTS: Final = tuple(
    f"{method} /polaris/v1/{{prefix}}/{path}" for path, methods in _METHODS.items() for method in methods.split()
)
"""As /v1/config lists them."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


class PolicyRoutes:
    """Answers requests of Polaris' API for policies; every method may raise RestError."""

    def __init__(self, warehouse: str, entities: CatalogEntities, access: AccessControl, policies: PolicyStore) -> None:
        self._warehouse = warehouse
        self._entities = entities
        self._access = access
        self._policies = policies

    def answer(self, who: CatalogCaller, request: Request, parts: list[str]) -> Response:
        """Answer a request to `polaris/v1/` and `parts`."""
        if parts[0] != self._warehouse:
            raise errors.RestError(404, "NotFoundException", f"Unable to find warehouse {parts[0]}")
        match (request.method, parts[1:]):
            case ("GET", ["applicable-policies"]):
                return self._applicable(who, request)
            case ("GET", ["namespaces", namespace, "policies"]):
                return self._list(who, request, tuple(namespace.split(SEPARATOR)))
            case ("POST", ["namespaces", namespace, "policies"]):
                return self._create(who, tuple(namespace.split(SEPARATOR)), errors.body_of(request))
            case (method, ["namespaces", namespace, "policies", name]):
                return self._one(who, request, method, (tuple(namespace.split(SEPARATOR)), name))
            case ("PUT" | "POST", ["namespaces", namespace, "policies", name, "mappings"]):
                return self._map(who, request, (tuple(namespace.split(SEPARATOR)), name))
            case _:
                return errors.no_such_route(request.path)

    def _list(self, who: CatalogCaller, request: Request, namespace: Namespace) -> Response:
        self._access.require(who, "LIST_POLICY", self._entities.path(namespace))
        names = self._policies.names(namespace, request.args.get("policyType"))
        return _page(request, "identifiers", [{"namespace": namespace, "name": name} for name in names])

    def _create(self, who: CatalogCaller, namespace: Namespace, body: Mapping[str, Any]) -> Response:
        name = str(body["name"])
        if not _NAME.fullmatch(name):
            raise errors.invalid_value(r'name: must match "^[A-Za-z0-9\-_]+$"')
        self._access.require(who, "CREATE_POLICY", self._entities.path(namespace))
        made = self._policies.create((namespace, name), body["type"], body.get("description"), body.get("content"))
        return errors.json_answer(200, {"policy": made.body()})

    def _one(self, who: CatalogCaller, request: Request, method: str, key: PolicyKey) -> Response:
        path = self._path(key)
        match method:
            case "GET":
                self._access.require(who, "LOAD_POLICY", path)
                return errors.json_answer(200, {"policy": self._policies.get(key).body()})
            case "PUT":
                body = errors.body_of(request)
                self._access.require(who, "UPDATE_POLICY", path)
                version, description = body.get("current-policy-version"), body.get("description")
                changed = self._policies.update(key, version, description, body.get("content"))
                return errors.json_answer(200, {"policy": changed.body()})
            case "DELETE":
                self._access.require(who, "DROP_POLICY", path)
                self._policies.drop(key, detach_all=request.args.get("detach-all", "false").lower() == "true")
                return errors.empty(204)
            case _:
                return errors.method_not_allowed()

    def _map(self, who: CatalogCaller, request: Request, key: PolicyKey) -> Response:
        target = errors.body_of(request)["target"]
        kind, names = str(target["type"]), tuple(target.get("path") or ())
        policy = self._path(key)
        path = self._target(kind, names)
        verb, preposition = ("ATTACH", "TO") if request.method == "PUT" else ("DETACH", "FROM")
        place = {"catalog": "CATALOG", "namespace": "NAMESPACE", "table-like": "TABLE"}[kind]
        self._access.require(who, f"{verb}_POLICY_{preposition}_{place}", policy, path)
        change = self._policies.attach if request.method == "PUT" else self._policies.detach
        change(key, path[-1], dotted((self._warehouse, *names)))
        return errors.empty(204)

    def _target(self, kind: str, names: tuple[str, ...]) -> tuple[int, ...]:
        match kind:
            case "catalog":
                return self._entities.path(())
            case "namespace":
                return self._entities.path(names)
            case "table-like":
                return self._entities.path(names[:-1], names[-1])
            case _:
                raise errors.bad_request(f"Unexpected value '{kind}' for the type of a target")

    def _applicable(self, who: CatalogCaller, request: Request) -> Response:
        namespace = tuple(level for level in request.args.get("namespace", "").split(SEPARATOR) if level)
        table = request.args.get("target-name", "") if namespace else ""
        path = self._entities.path(namespace, table or None)
        place = "TABLE" if table else "NAMESPACE" if namespace else "CATALOG"
        self._access.require(who, f"GET_APPLICABLE_POLICIES_ON_{place}", path)
        return _page(request, "applicable-policies", self._policies.applicable(path, request.args.get("policyType")))

    def _path(self, key: PolicyKey) -> tuple[int, ...]:
        """Return the ids from the root to a policy; raise 404 for an unknown one, also in an unknown namespace."""
        policy = self._policies.get(key)
        return (*self._entities.path(key[0]), policy.id)


def _page(request: Request, field: str, entries: Sequence[Mapping[str, Any]]) -> Response:
    """Return the page of a listing that starts at `pageToken`, the number of entries before it."""
    if "pageToken" not in request.args:
        return errors.json_answer(200, {field: list(entries)})
    start, size = int(request.args["pageToken"] or 0), int(request.args.get("pageSize") or len(entries) or 1)
    more = start + size < len(entries)
    return errors.json_answer(
        200, {field: list(entries[start : start + size]), "next-page-token": str(start + size) if more else None}
    )
