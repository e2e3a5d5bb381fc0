"""Stores the health of tables in the table of the reference index.

| item | pk | sk |
|---|---|---|
| health of a table | `health:CATALOG` | HASH of its namespace and name |
| what was read of it | `health-read:CATALOG` | HASH |

A health has less than 8 KB, so a pass reads those of a whole catalog with few Queries. What was read has up to 300 KB,
and is fetched only for a changed table.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from datetime import datetime
from typing import Any, Final

from delegation.identifiers import NAMESPACE_SEPARATOR, TableIdentifier
from delegation.items import SetAside
from delegation.stored_items import Items, readable
from delegation.timestamps import isoformat, stored_time
from delegation.upkeep.errors import HealthChanged, HealthOutcomeUnknown, HealthUnavailable, UpkeepError
from delegation.upkeep.health.model import (
    FreedBytes,
    LastRun,
    ManifestSizes,
    OwnPolicies,
    OwnPolicy,
    ReadState,
    SnapshotChange,
    TableHealth,
    packed,
    packed_past,
    past_of_rows,
)
from delegation.upkeep.schedule import Amount
from polaris_common.dynamodb import DynamoDbCalls

FORMAT: Final = 1
_COUNTS: Final = (
    "snapshots",
    "refs",
    "files",
    "bytes",
    "small_files",
    "delete_files",
    "deletion_vectors",
    "manifests",
    "manifest_bytes",
    "metadata_bytes",
)
_LATER: Final = ("small_bytes", "oversized_files", "oversized_bytes")
"""Counts that items of a former release lack."""
_FORMER: Final = 6
"""Numbers of a manifest that a former release reads. Further ones are in an attribute of their own."""
_MOST_INFLATED: Final = 8 * 1024 * 1024


class HealthTable(DynamoDbCalls):
    unavailable = HealthUnavailable
    unknown = HealthOutcomeUnknown


class HealthStore:
    """A health for each table of a catalog, and what was read of the table. Methods raise HealthUnavailable, writes
    also HealthOutcomeUnknown. They may be repeated."""

    def __init__(self, dynamodb: HealthTable, table: str) -> None:
        self._items = Items(dynamodb, table, ("pk", "sk"), health_item, health_of)
        self._states = Items(dynamodb, table, ("pk", "sk"), dict[str, Any], dict[str, Any])

    def healths(self, catalog: str) -> Iterator[TableHealth]:
        items = self._items.query("pk = :pk", {":pk": f"health:{catalog}"})
        yield from readable(items, health_of, name="health.records", shown=_name_of)

    def health(self, identifier: TableIdentifier) -> TableHealth | None:
        """Read one table's health consistently."""
        return self._items.get(_key("health", identifier))

    def read_state(self, identifier: TableIdentifier) -> ReadState:
        """Return what was read of a table, an empty state if nothing is stored."""
        item = self._states.get(_key("health-read", identifier))
        return ReadState() if item is None or item["format"] != FORMAT else _state_of(item)

    def put(self, health: TableHealth, state: ReadState | None = None) -> TableHealth:
        """Replace a table's health, bounded, by the next revision, and return it as stored. Raises HealthChanged unless
        the stored one has the revision of `health`, 0 for none; then the state is not stored either. The state is
        stored after the health. Without it, or beside a later health, its manifests still fit, and ReadState.history_of
        checks its history."""
        written = replace(health.bounded(), revision=health.revision + 1)
        if not self._items.replace(written, health.revision or None):
            raise HealthChanged(f"another process wrote the health of {health.identifier}. Read it again")
        if state is not None:
            self._states.put({**_key("health-read", health.identifier), **_state_item(state.bounded())})
        return written

    def remove(self, health: TableHealth) -> None:
        """Remove a table's health and state if the health still has this revision."""
        if self._items.remove(_key("health", health.identifier), health.revision):
            self._states.remove(_key("health-read", health.identifier))


def _key(kind: str, identifier: TableIdentifier) -> dict[str, str]:
    text = NAMESPACE_SEPARATOR.join((*identifier.namespace, identifier.name))
    return {"pk": f"{kind}:{identifier.catalog}", "sk": hashlib.sha256(text.encode()).hexdigest()[:32]}


def health_item(health: TableHealth) -> dict[str, Any]:
    optional = {
        "expirable": health.expirable,
        "freed_upper": health.freed.upper,
        "since": None if health.since is None else isoformat(health.since),
        "review_at": None if health.review_at is None else isoformat(health.review_at),
        "again_at": None if health.again_at is None else isoformat(health.again_at),
        "problem": health.problem,
        **{name: getattr(health, name) for name in _LATER},
    }
    own = {} if health.own is None else {"own": _own_item(health.own)}
    return {
        **_key("health", health.identifier),
        "format": FORMAT,
        "namespace": list(health.identifier.namespace),
        "name": health.identifier.name,
        "table_uuid": health.table_uuid,
        "metadata_location": health.metadata_location,
        "as_of": isoformat(health.as_of),
        "rule": health.rule,
        "freed_lower": health.freed.lower,
        "revision": health.revision,
        **{name: getattr(health, name) for name in _COUNTS},
        **{name: value for name, value in optional.items() if value is not None},
        **({"properties": dict(health.properties)} if health.properties else {}),
        **own,
        **({"runs": [_run_item(run) for run in health.runs.values()]} if health.runs else {}),
        **({"past": packed_past(health.past)} if health.past else {}),
        **({"asides": {key: _aside_item(aside) for key, aside in health.asides.items()}} if health.asides else {}),
        **({"wanted": {name: isoformat(since) for name, since in health.wanted.items()}} if health.wanted else {}),
    }


def _name_of(item: Mapping[str, Any]) -> str:
    namespace = item.get("namespace")
    levels = namespace if isinstance(namespace, list) else [namespace]
    return ".".join(map(str, (*levels, item.get("name"))))


def health_of(item: Mapping[str, Any]) -> TableHealth:
    """Return a stored health. Raises UpkeepError (HEALTH_UNREADABLE)."""
    catalog = str(item.get("pk")).removeprefix("health:")
    try:
        return _read_health(catalog, item)
    except (AttributeError, KeyError, ValueError, TypeError, ArithmeticError, zlib.error) as error:
        text = f"the stored health of {catalog}.{_name_of(item)} cannot be read: {type(error).__name__}: {error}"
        raise UpkeepError(text, code="HEALTH_UNREADABLE") from error


def _read_health(catalog: str, item: Mapping[str, Any]) -> TableHealth:
    upper = item.get("freed_upper")
    expirable = item.get("expirable")
    return TableHealth(
        TableIdentifier(catalog, tuple(item["namespace"]), item["name"]),
        item["table_uuid"],
        item["metadata_location"],
        stored_time(item["as_of"]),
        **{name: int(item[name]) for name in (*_COUNTS, *_LATER) if name in item},
        expirable=None if expirable is None else int(expirable),
        freed=FreedBytes(int(item.get("freed_lower", 0)), None if upper is None else int(upper)),
        rule=item.get("rule", ""),
        since=_moment(item, "since"),
        review_at=_moment(item, "review_at"),
        again_at=_moment(item, "again_at"),
        properties=dict(item.get("properties", {})),
        own=_own_of(item["own"]) if "own" in item else None,
        problem=item.get("problem"),
        runs={run.task_type: run for run in map(_run_of, item.get("runs", ()))},
        past=past_of_rows(_inflated(item["past"].value)["runs"]) if "past" in item else (),
        asides={key: _aside_of(aside) for key, aside in item.get("asides", {}).items()},
        wanted={name: stored_time(since) for name, since in item.get("wanted", {}).items()},
        revision=int(item["revision"]),
    )


def _aside_item(aside: SetAside) -> list[Any]:
    return [aside.error, isoformat(aside.since), aside.failures, isoformat(aside.next_try)]


def _aside_of(item: Sequence[Any]) -> SetAside:
    error, since, failures, next_try = item
    return SetAside(error, stored_time(since), int(failures), stored_time(next_try))


def _own_item(own: OwnPolicies) -> dict[str, Any]:
    listed = [
        [policy.type, list(policy.namespace), policy.name, policy.version, policy.content] for policy in own.policies
    ]
    return {"as_of": isoformat(own.as_of), "policies": listed}


def _own_of(item: Mapping[str, Any]) -> OwnPolicies:
    policies = (
        OwnPolicy(type_, tuple(namespace), name, int(version), content)
        for type_, namespace, name, version, content in item["policies"]
    )
    return OwnPolicies(stored_time(item["as_of"]), tuple(policies))


def _moment(item: Mapping[str, Any], name: str) -> datetime | None:
    return stored_time(item[name]) if name in item else None


def _run_item(run: LastRun) -> dict[str, Any]:
    return {
        "kind": run.task_type,
        "task_id": run.task_id,
        "policy": run.policy,
        "began": isoformat(run.began),
        "reserved": list(astuple(run.reserved)),
        "used": list(astuple(run.used)),
        "failures": run.failures,
        **({} if run.ended is None else {"ended": isoformat(run.ended)}),
        **({} if run.outcome is None else {"outcome": run.outcome}),
        **({"waiting": run.waiting} if run.waiting else {}),
    }


def _run_of(item: Mapping[str, Any]) -> LastRun:
    return LastRun(
        item["kind"],
        item["task_id"],
        item["policy"],
        stored_time(item["began"]),
        reserved=Amount(*map(int, item["reserved"])),
        ended=_moment(item, "ended"),
        outcome=item.get("outcome"),
        used=Amount(*map(int, item["used"])),
        failures=int(item["failures"]),
        waiting=item.get("waiting", ""),
    )


def _state_item(state: ReadState) -> dict[str, Any]:
    manifests = [[digest.hex(), *astuple(sizes)[:_FORMER]] for digest, sizes in state.manifests.items()]
    later = [astuple(sizes)[_FORMER:] for sizes in state.manifests.values()]
    changes = [[snapshot, *astuple(change)] for snapshot, change in state.changes.items()]
    text = json.dumps({"manifests": manifests, "changes": changes}, separators=(",", ":"))
    return {
        "format": FORMAT,
        "table_uuid": state.table_uuid,
        "small": state.small,
        "read": zlib.compress(text.encode()),
        "sizes": zlib.compress(json.dumps(later, separators=(",", ":")).encode()),
        **({} if state.history is None else {"history": packed(state.history)}),
        **({"metadata_location": state.metadata_location} if state.metadata_location else {}),
    }


def _state_of(item: Mapping[str, Any]) -> ReadState:
    read = _inflated(item["read"].value)
    # Manifests read by a former release lack some sizes. They are read again when the table changes.
    manifests = read["manifests"] if "sizes" in item else []
    later = _inflated(item["sizes"].value) if "sizes" in item else []
    return ReadState(
        item["table_uuid"],
        int(item["small"]),
        {
            bytes.fromhex(digest): ManifestSizes(*sizes, *more)
            for (digest, *sizes), more in zip(manifests, later, strict=True)
        },
        {snapshot: SnapshotChange(*change) for snapshot, *change in read["changes"]},
        _inflated(item["history"].value) if "history" in item else None,
        item.get("metadata_location", ""),
    )


def _inflated(value: bytes) -> Any:
    return json.loads(zlib.decompressobj().decompress(bytes(value), _MOST_INFLATED))
