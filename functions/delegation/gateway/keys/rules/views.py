"""Rules for views: created, registered and replaced (Iceberg REST Catalog API, ViewUpdate). A catalog may set a
version's time and summary itself, as Polaris does. So a version's queries and namespace are compared, and its time is
the client's or not before the request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from delegation.gateway.keys.rules.commits import LAST_ADDED, Updates, shows
from delegation.gateway.keys.rules.rule import (
    NOT_APPLIED,
    Evidence,
    JsonObject,
    Lookup,
    Undecided,
    Verification,
    VerificationRule,
    asserted,
    loaded,
    plain,
    same_uuid,
)
from delegation.gateway.routing import segment_of

UUID: Final = "view-uuid"
_ADD: Final = "add-view-version"


def creation(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view has the requested version, which is no older than the request."""
    view = Lookup(f"{path}/{segment_of(request['name'])}")

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None:
            return Undecided("the view does not exist; it may have been created, and dropped or renamed since")
        if not _added(request["view-version"], found.metadata, evidence):
            return Undecided("a view of this name exists that is not as requested, or is older than the request")
        return loaded(found)

    return VerificationRule(verify, (view,), restore=view)


def registration(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view has the metadata file; views keep no log of former ones."""
    view = Lookup(f"{path.rpartition('/')[0]}/views/{segment_of(request['name'])}")
    wanted = request["metadata-location"]

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None:
            return Undecided("the view does not exist; it may have been registered, and dropped or renamed since")
        if found.document.get("metadata-location") != wanted:
            return Undecided("a view of this name exists with another metadata file")
        return loaded(found)

    return VerificationRule(verify, (view,), restore=view)


def replacement(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view, of the asserted UUID, has the version that the request adds. Not applied if all versions
    have lower numbers and none is equal: a catalog keeps the number of an equal one."""
    updates: Updates = request.get("updates") or ()
    uuid = asserted(request.get("requirements") or (), "assert-view-uuid", "uuid")
    added = [each["view-version"] for each in updates if each.get("action") == _ADD]

    def verify(evidence: Evidence) -> Verification:
        found = evidence.states[0]
        if found is None or uuid is None or not same_uuid(found.metadata.get(UUID), uuid):
            return Undecided("the request asserts no UUID, or not the UUID of the view with this name")
        if added and _is_below(added, found.metadata):
            return NOT_APPLIED
        if added and all(_added(each, found.metadata, evidence) for each in added):
            return loaded(found)
        if all(_shown(update, updates, found.metadata) for update in updates):
            return loaded(found)
        return Undecided("the view does not show what was requested; it may have been replaced since")

    view = Lookup(path)
    return VerificationRule(verify, (view,), restore=view)


def _is_below(added: Sequence[JsonObject], metadata: JsonObject) -> bool:
    known = metadata.get("versions") or ()
    highest = max((int(each["version-id"]) for each in known), default=0)
    lowest = min(int(each["version-id"]) for each in added)
    return highest < lowest and not any(_same_version(one, other) for one in known for other in added)


def _added(wanted: JsonObject, metadata: JsonObject, evidence: Evidence) -> bool:
    """Whether a version is as requested, and was made by the client or since the request."""
    return any(
        _same_version(each, wanted)
        and (each.get("timestamp-ms") == wanted.get("timestamp-ms") or evidence.is_newer(each.get("timestamp-ms")))
        for each in metadata.get("versions") or ()
    )


def _same_version(one: JsonObject, other: JsonObject) -> bool:
    names = ("representations", "default-catalog", "default-namespace")
    return all(plain(one.get(name)) == plain(other.get(name)) for name in names)


def _current_version(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    current = metadata.get("current-version-id")
    if update["view-version-id"] != LAST_ADDED:
        return bool(current == update["view-version-id"])
    added = [each["view-version"] for each in updates if each.get("action") == _ADD]
    chosen = [each for each in metadata.get("versions") or () if each.get("version-id") == current]
    return bool(added and chosen and _same_version(chosen[0], added[-1]))


_VIEW_UPDATES: Final[Mapping[str, Callable[[JsonObject, Updates, JsonObject], bool]]] = {
    "assign-uuid": lambda update, _, metadata: same_uuid(metadata.get(UUID), update["uuid"]),
    _ADD: lambda update, _, metadata: any(
        _same_version(each, update["view-version"]) for each in metadata.get("versions") or ()
    ),
    "set-current-view-version": _current_version,
}


def _shown(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    own = _VIEW_UPDATES.get(str(update.get("action")))
    return shows(update, updates, metadata) if own is None else own(update, updates, metadata)
