"""`FORMS`: what a release stores beside the tasks and records of the moments, recorded and put back as JSON."""

import base64
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tests.contract.task_tables import reservation_store
from tests.contract.test_reference_store import reference_store
from tests.contract.test_tombstone_store import tombstone_store
from tests.golden.beside import stores, tasks
from tests.golden.beside.stores import Kernel
from tests.golden.beside.tasks import LivedTable, lived
from tests.golden.stories import counted_ids

Recorded = dict[str, Any]
STORES: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], None]]] = {
    "tombstones": (tombstone_store, stores.tombstones),
    "mutations": (reservation_store, stores.mutations),
    "references": (reference_store, stores.references),
}
"""What makes each store over a table of its own, and what fills it."""


def of_table(name: str, client: Any) -> Recorded:
    """Record a form of the task table: its items, the messages of both queues, and results in the record bucket."""
    live, properties = tasks.TABLES[name]
    with lived(client, **properties) as table:
        live(table)
        return {
            "now": table.clock.now.isoformat(),
            "messages": table.aws.messages,
            "dispatches": table.dispatches.messages,
            "items": scanned(client, table.store.table),
            "objects": packed(table.results.objects),
        }


@contextmanager
def table_of(name: str, recorded: Recorded, client: Any) -> Iterator[LivedTable]:
    """A form of the task table in a new one."""
    with lived(client, **tasks.TABLES[name][1]) as table:
        table.clock.now = datetime.fromisoformat(recorded["now"])
        table.aws.messages = list(recorded["messages"])
        for item in recorded["items"]:
            client.put_item(TableName=table.store.table, Item=unpacked_bytes(item))
        table.results.objects.update(unpacked(recorded["objects"]))
        yield table


def of_store(name: str, client: Any) -> Recorded:
    """Record a form in a table of its own."""
    make, fill = STORES[name]
    store = make(client)
    fill(store)
    items = scanned(client, store._items.table)
    client.delete_table(TableName=store._items.table)
    return {"items": items}


@contextmanager
def store_of(name: str, recorded: Recorded, client: Any) -> Iterator[Any]:
    """A form in a table of its own in a new one."""
    store = STORES[name][0](client)
    for item in recorded["items"]:
        client.put_item(TableName=store._items.table, Item=unpacked_bytes(item))
    yield store
    client.delete_table(TableName=store._items.table)


def of_plans(_client: Any) -> Recorded:
    """Record objects of the record bucket, and files of commands."""
    return {"objects": packed(stores.plans())}


def of_persistence(_client: Any) -> Recorded:
    """Record tasks on the persistence with what is beside them, each form in a catalog of its own."""
    kernel = Kernel()
    for name, (live, properties) in tasks.TABLES.items():
        if name != "awaiting":
            live(kernel.lived(name, **properties))
    return kernel.stored()


FORMS: Mapping[str, Callable[[Any], Recorded]] = {
    **{name: lambda client, name=name: of_table(name, client) for name in tasks.TABLES},
    **{name: lambda client, name=name: of_store(name, client) for name in STORES},
    "plans": of_plans,
    "persistence": of_persistence,
}


def recorded_now(name: str, client: Any) -> Recorded:
    """Record a form, with counted ids."""
    with counted_ids():
        return FORMS[name](client)


def text_of_form(name: str, client: Any) -> str:
    """Return a form as it is kept."""
    return json.dumps(recorded_now(name, client), indent=1, ensure_ascii=False) + "\n"


def scanned(client: Any, table: str) -> list[dict[str, Any]]:
    """Return the items of a table in one order, with binary attributes as base64."""
    items = ({name: _packed_bytes(value) for name, value in item.items()} for item in _items(client, table))
    return sorted((dict(sorted(item.items())) for item in items), key=json.dumps)


def _items(client: Any, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.scan(TableName=table)["Items"]
    return found


def _packed_bytes(value: dict[str, Any]) -> dict[str, Any]:
    return {"B": base64.b64encode(value["B"]).decode()} if "B" in value else value


def unpacked_bytes(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as DynamoDB takes it."""
    return {name: {"B": base64.b64decode(value["B"])} if "B" in value else value for name, value in item.items()}


def packed(objects: Mapping[str, bytes]) -> dict[str, str]:
    """Return objects as base64 of their compressed bytes: a result that is kept apart is large."""
    return {key: base64.b64encode(zlib.compress(data, 9)).decode() for key, data in sorted(objects.items())}


def unpacked(objects: Mapping[str, str]) -> dict[str, bytes]:
    """Return objects of their recording."""
    return {key: zlib.decompress(base64.b64decode(data)) for key, data in objects.items()}
