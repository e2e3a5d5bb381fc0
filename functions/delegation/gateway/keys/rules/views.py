"""Rules for views: created, registered, replaced and dropped (Iceberg REST Catalog API, ViewUpdate)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from delegation.gateway.keys.rules.commits import LAST_ADDED, Updates, judge_updates, shows, touched
from delegation.gateway.keys.rules.rule import (
    NOT_APPLIED,
    Incompatible,
    JsonObject,
    Judgement,
    Lookup,
    State,
    VerificationRule,
    exists_noted,
    judge_drop,
    loaded,
    plain,
    same_uuid,
    uuid_noted,
)

UUID: Final = "view-uuid"


def creation(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view, which was not there, has the requested version: its text and the client's time stamp."""
    view = Lookup(f"{path}/{quote(request['name'], safe='')}")

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        found = states[0]
        if found is None or before is None or before["exists"]:
            return NOT_APPLIED
        if not _has_version(found.metadata, request["view-version"]):
            return Incompatible("a view of this name exists that is not as requested")
        return loaded(found)

    return VerificationRule(judge, (view,), exists_noted, (Lookup(view.path, exists=True),), view)


def registration(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view, which was not there, has the metadata file; views keep no log of former ones."""
    view = Lookup(f"{path.rpartition('/')[0]}/views/{quote(request['name'], safe='')}")
    wanted = request["metadata-location"]

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        found = states[0]
        if found is None or before is None or before["exists"]:
            return NOT_APPLIED
        if found.document.get("metadata-location") != wanted:
            return Incompatible("a view of this name exists with another metadata file")
        return loaded(found)

    return VerificationRule(judge, (view,), exists_noted, (Lookup(view.path, exists=True),), view)


def replacement(path: str, request: JsonObject) -> VerificationRule:
    """Applied if the view shows every update; each is compared as those of tables are."""
    updates: Updates = request.get("updates") or ()

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        return judge_updates(updates, before, states[0], _shown, lambda found: loaded(found).answer)

    lookups = (Lookup(path),)
    return VerificationRule(judge, lookups, lambda states: touched(updates, states[0]), lookups, lookups[0])


def drop(path: str) -> VerificationRule:
    """Applied if the view of the noted UUID is gone."""
    lookups = (Lookup(path),)
    return VerificationRule(judge_drop(UUID), lookups, uuid_noted(UUID), lookups)


def _has_version(metadata: JsonObject, wanted: JsonObject) -> bool:
    return any(_same_version(each, wanted) for each in metadata.get("versions") or ())


def _same_version(one: JsonObject, other: JsonObject) -> bool:
    names = ("timestamp-ms", "representations", "default-catalog", "default-namespace")
    return all(plain(one.get(name)) == plain(other.get(name)) for name in names)


def _current_version(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    current = metadata.get("current-version-id")
    if update["view-version-id"] != LAST_ADDED:
        return bool(current == update["view-version-id"])
    added = [each["view-version"] for each in updates if each.get("action") == "add-view-version"]
    chosen = [each for each in metadata.get("versions") or () if each.get("version-id") == current]
    return bool(added and chosen and _same_version(chosen[0], added[-1]))


_VIEW_UPDATES: Final[Mapping[str, Callable[[JsonObject, Updates, JsonObject], bool]]] = {
    "assign-uuid": lambda update, _, metadata: same_uuid(metadata.get(UUID), update["uuid"]),
    "add-view-version": lambda update, _, metadata: _has_version(metadata, update["view-version"]),
    "set-current-view-version": _current_version,
}


def _shown(update: JsonObject, updates: Updates, metadata: JsonObject) -> bool:
    own = _VIEW_UPDATES.get(str(update.get("action")))
    return shows(update, updates, metadata) if own is None else own(update, updates, metadata)
