"""One leg of an upgrade, by the code of one release, on tables in DynamoDB Local that the other release uses too.

`python -m tests.golden.legs leave|step|finish URL`, in the tree of that release: `leave` lives every moment in
tables of its own and prints what is under way beside them; `step` reads that, runs one state more of each and prints it
again; `finish` runs all to the end and prints the statuses of the tasks and what of the lake is gone.
"""

import contextlib
import json
import sys
from typing import Any

from delegation.idempotency.store import DynamoDbIdempotencyStore
from delegation.tasks.stores.dynamodb import ConditionalTable, DynamoDbTaskStore
from tests.contract.task_tables import create_task_table, dynamodb_client, no_wait, record_store
from tests.golden.moments import ENDS, MOMENTS, Service, State, seen, surround

Left = dict[str, Any]
"""What goes between two releases beside the tables, whose name it has."""


def opened(client: Any, table: str, *, new: bool) -> Service:
    """A service over a task table and the table of records beside it."""
    store = DynamoDbTaskStore(ConditionalTable(client, tries=12, sleep=no_wait), table)
    records = record_store(store) if new else DynamoDbIdempotencyStore(store, f"{table}-idempotency")
    made = Service(store, records)
    made.tables_of, made.client = (table, f"{table}-idempotency"), client
    return made


def left_by(made: Service, state: State | None) -> Left:
    """What is under way, without the items: those stay in their tables."""
    found = seen(made, state)
    return {name: value for name, value in found.items() if name not in {"tasks", "records"}} | {
        "table": made.tables_of[0],
        "task_count": len(made.store.heads().tasks),
    }


def leave(client: Any) -> dict[str, Left]:
    found = {}
    for name, moment in MOMENTS.items():
        made = opened(client, create_task_table(client), new=True)
        found[name] = left_by(made, moment(made))
    return found


def step(client: Any, moments: dict[str, Left]) -> dict[str, Left]:
    found = {}
    for name, moment in moments.items():
        made = opened(client, moment["table"], new=False)
        under_way = surround(made, moment)
        if under_way is None:
            states = made.dispatch()
            assert len(states) <= 1, "a moment has one execution"
            under_way = states[0] if states else None
        else:
            under_way = made.step(under_way)
        found[name] = left_by(made, None if under_way is None or under_way[0] in ENDS else under_way)
    return found


def finish(client: Any, moments: dict[str, Left]) -> dict[str, Any]:
    found = {}
    for name, moment in moments.items():
        made = opened(client, moment["table"], new=False)
        made.resume(surround(made, moment))
        tasks = made.store.heads().tasks
        found[name] = {
            "statuses": [task.status.value for task in tasks],
            "attempts": [task.attempt_count for task in tasks],
            "deleted": made.deleted(),
        }
    return found


def main(leg: str, url: str) -> None:
    with contextlib.closing(dynamodb_client(url)) as client:
        match leg:
            case "leave":
                answer: Any = leave(client)
            case "step":
                answer = step(client, json.load(sys.stdin))
            case "finish":
                answer = finish(client, json.load(sys.stdin))
            case other:
                raise SystemExit(f"{other} is no leg")
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:3])
