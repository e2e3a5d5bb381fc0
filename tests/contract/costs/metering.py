"""What calls to DynamoDB cost: counted by botocore's events, write units computed from the sizes of the items.

Sizes and units follow the Amazon DynamoDB Developer Guide ("Item sizes and formats", "Capacity unit consumption for
write operations", "Amazon DynamoDB Transactions"): one unit for each started KB of the larger of the old and the new
item, twice that in a transaction; an index entry that moves is deleted and put. Index writes of a transaction count
twice too, as in DynamoDB Local; a ConditionCheck counts like a write of the item that it checks.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

WRITES: Final = frozenset({"PutItem", "DeleteItem", "TransactWriteItems"})
_KB: Final = 1024
_KEYS: Final = ("task_id", "version", "scope")
_INDEXES: Final = (
    ("due_at",),
    ("admission_bucket", "admission_key"),
    ("received_bucket", "received_key"),
    ("target_key", "received_key"),
    ("correlation_key", "received_key"),
)
Item = Mapping[str, Any]


@dataclass
class Cost:
    """Calls by operation, in order, and their write units: computed, and as the server reports them."""

    calls: list[str] = field(default_factory=list)
    units: int = 0
    reported: float = 0

    @property
    def writes(self) -> int:
        return sum(call in WRITES for call in self.calls)

    @property
    def reads(self) -> int:
        return len(self.calls) - self.writes


def size_of(value: Mapping[str, Any]) -> int:
    """The bytes of one attribute value."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return (len(content.strip("-0.").replace(".", "")) + 1) // 2 + 1
        case "M":
            return 3 + sum(1 + len(name.encode()) + size_of(part) for name, part in content.items())
        case "L":
            return 3 + sum(1 + size_of(part) for part in content)
        case _:
            return 1


def item_size(item: Item | None) -> int:
    return sum(len(name.encode()) + size_of(value) for name, value in (item or {}).items())


def _key(table: str, attributes: Item) -> tuple[str, ...]:
    return (table, *(str(attributes[name]) for name in _KEYS if name in attributes))


def _entries(item: Item | None) -> set[str]:
    """A head's places in the indexes; the names of their keys tell two indexes with equal keys apart."""
    found = item or {}
    return {str([(name, found[name]) for name in names]) for names in _INDEXES if all(name in found for name in names)}


@dataclass(frozen=True)
class _Action:
    """A Put, Delete or ConditionCheck."""

    kind: str
    key: tuple[str, ...]
    item: Item | None

    def units(self, old: Item | None) -> int:
        kilobytes = -(-max(item_size(old), item_size(self.item), 1) // _KB)
        if self.kind == "ConditionCheck":
            return kilobytes
        return kilobytes + len(_entries(old) ^ _entries(self.item))


def _actions(operation: str, params: Mapping[str, Any]) -> list[_Action]:
    match operation:
        case "TransactWriteItems":
            parts = [part for one in params["TransactItems"] for part in one.items()]
        case "PutItem" | "DeleteItem":
            parts = [(operation.removesuffix("Item"), params)]
        case _:
            parts = []
    return [
        _Action(kind, _key(one["TableName"], one.get("Item") or one["Key"]), one.get("Item")) for kind, one in parts
    ]


class Meter:
    """Counts the calls of one client; `measured` returns what was spent meanwhile, by any thread."""

    def __init__(self, client: Any) -> None:
        self._stored: dict[tuple[str, ...], Item] = {}
        self._lock = threading.Lock()
        self._costs: list[Cost] = []
        client.meta.events.register("provide-client-params.dynamodb.*", self._asked)
        client.meta.events.register("after-call.dynamodb.*", self._answered)

    @contextlib.contextmanager
    def measured(self) -> Iterator[Cost]:
        cost = Cost()
        self._costs.append(cost)
        try:
            yield cost
        finally:
            self._costs.remove(cost)

    @staticmethod
    def _asked(params: dict[str, Any], model: Any, context: dict[str, Any], **_more: Any) -> dict[str, Any] | None:
        context["asked"] = params
        return {**params, "ReturnConsumedCapacity": "TOTAL"} if model.name in WRITES else None

    def _answered(
        self, http_response: Any, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_more: Any
    ) -> None:
        actions = _actions(model.name, context["asked"])
        used = parsed.get("ConsumedCapacity") or []
        with self._lock:
            units = sum(action.units(self._stored.get(action.key)) for action in actions)
            for cost in self._costs:
                cost.calls.append(model.name)
                cost.units += units * (2 if model.name == "TransactWriteItems" else 1)
                cost.reported += sum(one["CapacityUnits"] for one in (used if isinstance(used, list) else [used]))
            if http_response.status_code == 200:
                self._stored.update({one.key: one.item for one in actions if one.item is not None})
                for deleted in (one.key for one in actions if one.kind == "Delete"):
                    self._stored.pop(deleted, None)
