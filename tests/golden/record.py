"""Recordings of the stories, the moments and the forms beside them: `make regenerate` writes them anew.

The commit that does so names the bytes that changed, and why. Left out of comparisons are the texts for people. At a
release, `python -m tests.golden.record --former COMMIT` keeps the moments and forms as those of the former release,
which the next one has to continue, its defaults, and the definition of the state machine that its executions keep.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from delegation import handlers
from delegation.edge.answers import ApiResponse
from delegation.idempotency.store import DynamoDbIdempotencyStore
from delegation.wire.responses import render_json
from delegation.wire.tasks import shown
from delegation.wiring.types import default_properties
from infra.settings import Settings
from tests.contract.task_tables import create_record_table, moto, task_store
from tests.golden.beside.forms import FORMS, text_of_form
from tests.golden.moments import MOMENTS, record
from tests.golden.stories import STORIES, counted_ids, fill
from tests.kit.worlds.service import World

FOLDER = Path(__file__).parent / "recorded"
MOMENTS_FOLDER = FOLDER / "moments"
BESIDE_FOLDER = FOLDER / "beside"
FORMER = Path(__file__).parent / "former"
MACHINE = Path(handlers.__file__).parent / "purge.asl.json"
STALE = "the recording differs: if a stored form changes on purpose, run `make regenerate` and give the reason"
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


def answered(answer: ApiResponse) -> dict[str, Any]:
    """Status, headers and body; the body's bytes are those of its members in this order."""
    body = json.loads(answer.body)
    assert json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() == answer.body
    return {"status": answer.status, "headers": dict(answer.headers), "body": without_texts(body)}


def play(name: str, client: Any) -> dict[str, Any]:
    """Play a story over DynamoDB and tell what it left behind."""
    with task_store(client) as store, counted_ids():
        # With a name of its own it would take one of the counted ids.
        records = create_record_table(client, f"{store.table}-idempotency")
        world = fill(World(stores=(store, DynamoDbIdempotencyStore(store, records))))
        before = set(world.lake.uris())
        answers = STORIES[name](world)
        played = {
            "answers": [answered(answer) for answer in answers],
            "public": [without_texts(json.loads(render_json(shown(task.public())))) for task in tasks_of(world)],
            "tasks": items_of(client, store.table),
            "records": items_of(client, records),
            "plans": {key: stored(data).splitlines() for key, data in sorted(world.plans.objects.items())},
            "deleted": sorted(before - set(world.lake.uris())),
        }
        client.delete_table(TableName=records)
        return played


def tasks_of(world: World) -> Iterator[Any]:
    """The heads in the order of their ids."""
    return iter(sorted(world.store.heads().tasks, key=lambda task: str(task.task_id)))


def text_of(name: str, client: Any) -> str:
    """A story's recording as it is kept."""
    return json.dumps(play(name, client), indent=1, ensure_ascii=False) + "\n"


def text_of_moment(name: str, client: Any) -> str:
    """A moment as it is kept, with all its texts: what continues it has to read them."""
    return json.dumps(record(name, client), indent=1, ensure_ascii=False) + "\n"


def former_release() -> Path:
    """The folder of the former release; there is one, because the service goes back by one release at most."""
    [folder] = FORMER.iterdir()
    return folder


def keep_as_former(name: str) -> None:
    """Replace the former release by today's recordings."""
    shutil.rmtree(FORMER, ignore_errors=True)
    shutil.copytree(MOMENTS_FOLDER, FORMER / name)
    shutil.copytree(BESIDE_FOLDER, FORMER / name / BESIDE_FOLDER.name)
    shutil.copy(MACHINE, FORMER / name / MACHINE.name)
    (FORMER / name / "defaults.json").write_text(json.dumps(defaults(), indent=1) + "\n", encoding="utf-8")


def defaults() -> dict[str, str]:
    """The default of each setting of a deployment, and of each property of the service, as text."""
    fields = Settings.model_fields.items()
    settings = {f"delegation:{name.replace('_', '-')}": field for name, field in fields if not field.is_required()}
    return {name: repr(field.get_default()) for name, field in settings.items()} | dict(default_properties())


def files() -> dict[Path, str]:
    """Every recording as it is made."""
    found: dict[Path, str] = {}
    for folder, texts, names in (
        (FOLDER, text_of, STORIES),
        (MOMENTS_FOLDER, text_of_moment, MOMENTS),
        (BESIDE_FOLDER, text_of_form, FORMS),
    ):
        with moto() as client:
            found |= {folder / f"{name}.json": texts(name, client) for name in names}
    return found


def main(arguments: Sequence[str]) -> None:
    """Write every recording, or keep what is written as the former release's."""
    parser = argparse.ArgumentParser(description="Record what is stored and answered.")
    parser.add_argument(
        "--former", metavar="COMMIT", help="keep what is recorded as that of the release of this commit"
    )
    former = parser.parse_args(arguments).former
    if former is not None:
        keep_as_former(former)
        return
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
