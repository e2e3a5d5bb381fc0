"""The part of a table's metadata that decides an expiry, so that another rule needs no load of the table."""

from collections.abc import Mapping
from typing import Any, Final

from delegation.misspellings import misspelled
from delegation.polaris.model import properties_of
from delegation.removal.paths import POLICY
from delegation.upkeep.rules.content import PolicyType
from delegation.upkeep.rules.settings import SETTINGS

_OWN: Final = f"{POLICY}{PolicyType.SNAPSHOT_EXPIRY.short}."
_ICEBERG: Final = frozenset(one.iceberg for one in SETTINGS[PolicyType.SNAPSHOT_EXPIRY] if one.iceberg is not None)
_KNOWN: Final = frozenset({f"{_OWN}{one.key}" for one in SETTINGS[PolicyType.SNAPSHOT_EXPIRY]} | {f"{_OWN}enable"})
_LONGEST_VALUE: Final = 100
"""A longer text is no number that a rule accepts, and what is left of it is none either."""
_OTHER: Final = f"{_OWN}unknown"


def rule_properties(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that can change a table's rule of expiry, at most eight short ones. One of the unknown
    properties that turn the rule off represents all."""
    properties = properties_of(document)
    found = {
        name: value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
        for name, value in properties.items()
        if name in _ICEBERG or name in _KNOWN
    }
    if any(name not in _KNOWN and (name.startswith(_OWN) or misspelled(name, _KNOWN)) for name in properties):
        found[_OTHER] = ""
    return found


def history_in(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of table metadata that decide which snapshots and refs expire, in compact form."""
    snapshots = [
        [one["snapshot-id"], one.get("parent-snapshot-id"), one.get("timestamp-ms")]
        for one in document.get("snapshots") or ()
    ]
    properties = {name: value for name, value in rule_properties(document).items() if name in _ICEBERG}
    found = {"snapshots": snapshots, "current": document.get("current-snapshot-id"), "properties": properties}
    return found if "refs" not in document else {**found, "refs": document["refs"]}


def document_of(history: Mapping[str, Any]) -> dict[str, Any]:
    """Return as much of the metadata as the decision needs; it removes no schema and no spec."""
    snapshots = [
        {"snapshot-id": one, **({} if parent is None else {"parent-snapshot-id": parent}), "timestamp-ms": moment}
        for one, parent, moment in history["snapshots"]
    ]
    found = {"snapshots": snapshots, "current-snapshot-id": history["current"], "properties": history["properties"]}
    return found if "refs" not in history else {**found, "refs": history["refs"]}
