"""Recordings of the stories: `python -m tests.golden.record` writes them anew.

The commit that does so names the bytes that changed, and why. Left out are the texts for people.
"""

import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from delegation.edge.submission import SubmissionAnswer
from delegation.idempotency.dynamodb import DynamoDbIdempotencyStore
from delegation.wire.responses import render_json
from delegation.wire.tasks import shown
from tests.contract.task_tables import create_record_table, moto, task_store
from tests.golden.stories import STORIES, counted_ids, fill
from tests.unit.edge.world import World

FOLDER = Path(__file__).parent / "recorded"
TEXTS = frozenset({"message", "details", "result_summary", "result_extended"})


def without_texts(value: Any) -> Any:
    """The value without what is written for people, also inside JSON text; texts that are there are named."""
    if isinstance(value, Mapping):
        return {name: "(text)" if name in TEXTS and one else without_texts(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_texts(one) for one in value]
    if isinstance(value, str) and value.startswith("{"):
        return json.dumps(without_texts(json.loads(value)), separators=(",", ":"), ensure_ascii=False)
    return value


def items_of(client: Any, table: str) -> list[Any]:
    """Every item as it is stored, one order for them all: neither items nor attributes have one of their own."""
    found = client.scan(TableName=table)["Items"]
    items = (dict(sorted(without_texts(item).items())) for item in found)
    return sorted(items, key=json.dumps)


def stored(data: bytes) -> str:
    """An object of the plan bucket: its text, and of a chunk the hash of the compressed bytes too."""
    if data[:2] == b"\x1f\x8b":
        return f"{hashlib.sha256(data).hexdigest()}\n{gzip.decompress(data).decode()}"
    return data.decode()


def answered(answer: SubmissionAnswer) -> dict[str, Any]:
    """Status, headers and body; the body's bytes are those of its members in this order."""
    body = json.loads(answer.body)
    assert json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() == answer.body
    return {"status": answer.status, "headers": dict(answer.headers), "body": without_texts(body)}


def play(name: str) -> dict[str, Any]:
    """Play a story over DynamoDB in moto and tell what it left behind."""
    with moto() as client, task_store(client) as store, counted_ids():
        # With a name of its own it would take one of the counted ids.
        records = create_record_table(client, f"{store.table}-idempotency")
        world = fill(World(stores=(store, DynamoDbIdempotencyStore(store, records))))
        before = set(world.lake.uris())
        answers = STORIES[name](world)
        return {
            "answers": [answered(answer) for answer in answers],
            "public": [without_texts(json.loads(render_json(shown(task.public())))) for task in tasks_of(world)],
            "tasks": items_of(client, store.table),
            "records": items_of(client, records),
            "plans": {key: stored(data).splitlines() for key, data in sorted(world.plans.objects.items())},
            "deleted": sorted(before - set(world.lake.uris())),
        }


def tasks_of(world: World) -> Iterator[Any]:
    """The heads in the order of their ids."""
    return iter(sorted(world.store.heads().tasks, key=lambda task: str(task.task_id)))


def text_of(name: str) -> str:
    """A story's recording as it is kept."""
    return json.dumps(play(name), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every recording."""
    FOLDER.mkdir(exist_ok=True)
    for name in STORIES:
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
