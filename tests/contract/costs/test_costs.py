"""The figures of docs/costs.md, counted: every operation and whole lives, by calls and by write units."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import ReservationStore
from delegation.idempotency.service import Acceptance
from delegation.idempotency.store import IdempotencyStore
from delegation.notifications.delivery import Notifier
from delegation.tasks.stores.admission import AdmissionStore
from delegation.tasks.stores.base import TaskStore
from delegation.tasks.stores.notifications import NotificationStore
from delegation.tasks.submit import Handle, Tasks
from delegation.tasks.work.hooks import DispatchMessages
from delegation.tasks.work.reads import TaskReads
from delegation.tasks.work.service import Dispatching, OperatorChanges, TaskService
from delegation.tasks.work.submission import TaskSubmission
from delegation.tasks.work.writes import Leases, WriteLoop
from tests.contract.costs.lives import LIVES
from tests.contract.costs.metering import Meter, item_size, size_of
from tests.contract.costs.operations import OPERATIONS, Act, Harness
from tests.contract.task_tables import dynamodb_client, moto, task_store
from tests.contract.where import LOCAL, MOTO
from tests.paths import ROOT

PAGE = ROOT / "docs" / "costs.md"
TABLE = ROOT / "tests" / "contract" / "costs" / "operations.md"
Costs = tuple[int, int, int]
# Composed of other operations, equal to one of the store, or without a call.
_COMPOSED = {
    "DispatchMessages": "send send_again wake",
    "Dispatching": "end_external_jobs presume_lost",
    "Handle": "cancel children get peek result value_of wait waiting",
    "Leases": "adopt_all await_child",
    "Mutations": "is_held may_have_run",
    "OperatorChanges": "release",
    "TaskReads": "adopted_by children children_of due find find_many heads outcome received versions with_result",
    "TaskService": "drain having holding holding_as",
    "TaskSubmission": "create create_all create_child first obstacle requested requested_again resubmitted",
    "Tasks": "handle submit_children",
    "WriteLoop": "change ended_attempt hasten notifying remove report_partly_done require_lease step written",
}
COMPOSED = {f"{kind}.{name}" for kind, names in _COMPOSED.items() for name in names.split()}


KINDS = (
    *(AdmissionStore, TaskStore, NotificationStore, IdempotencyStore, ReservationStore),
    *(TaskService, TaskReads, WriteLoop, TaskSubmission, Leases, Dispatching, OperatorChanges, DispatchMessages),
    *(Tasks, Handle, Acceptance, Mutations, Notifier),
)
UNLIMITED = "background purge, in a Lambda"
LIMITED = f"{UNLIMITED}, with limits"
NOTIFIED = f"{UNLIMITED}, with an event and a callback"
"""Two more for each delivery: it is counted before it begins, and what was delivered is deleted."""

UNDERSTATED = {
    "TaskStore.create_all, two tasks",
    "Tasks.submit_all, two tasks",
    "TaskStore.apply(Advance) to an end with a callback",
    "TaskStore.apply(Expect) with a callback",
    "NotificationStore.remove_notification",
    "Notifier.take, delivered",
    "TaskStore.apply(Advance) through another version",
    "TaskStore.apply, a lost race",
    "TaskStore.remove",
    "TaskStore.forget, two rows",
    "Leases.start",
    "Tasks.submit, attached",
    "Leases.adopt",
    "TaskStore.apply(Adopt)",
    "TaskStore.apply(Adopt) with the head",
    "TaskStore.disown, one child",
    "Tasks.submit, a child",
    "Tasks.submit, a second child",
    "Mutations.perform, replayed",
    "Mutations.perform, after an unknown outcome",
}
"""DynamoDB Local reports nothing for a refusal, deletes without their size, and not every put of some transactions."""


def documented() -> dict[str, Costs]:
    """Return the rows of the page and of the table of operations: name, write calls, write units, read calls."""
    text = PAGE.read_text(encoding="utf-8") + TABLE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    found = {name: (int(writes), int(units), int(reads)) for name, writes, units, reads in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module", params=[MOTO, LOCAL])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "moto":
        with moto() as in_moto:
            yield in_moto
    else:
        yield dynamodb_client(request.getfixturevalue("dynamodb_local").url)


@pytest.fixture(scope="module")
def meter(client: Any) -> Meter:
    return Meter(client)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_costs_what_is_documented(
    request: pytest.FixtureRequest, client: Any, meter: Meter, name: str
) -> None:
    ready: Callable[[Harness], Act] = OPERATIONS[name]
    with task_store(client) as store:
        act = ready(Harness(store))
        with meter.measured() as cost:
            act()
    assert (cost.writes, cost.units, cost.reads) == documented()[name]
    if request.node.callspec.params["client"] == "local" and name not in UNDERSTATED:
        assert cost.units == cost.reported


@pytest.mark.parametrize("name", LIVES)
def test_a_life_costs_what_is_documented(client: Any, meter: Meter, name: str) -> None:
    with task_store(client) as store:
        live = LIVES[name](store)
        with meter.measured() as cost:
            live()
    assert (cost.writes, cost.units, cost.reads) == documented()[name]


def test_accepting_is_one_write_and_an_uncontended_life_at_most_six_and_a_purge_two_more() -> None:
    costs = documented()
    accepting = [
        name for name in OPERATIONS if name.startswith(("Acceptance.accept", "Tasks.submit")) and "replayed" not in name
    ]
    assert {name for name in accepting if costs[name][0] != 1} == {
        "Tasks.submit, a child",
        "Tasks.submit, a second child",
    }
    more = {LIMITED: costs[UNLIMITED][0] + 2, NOTIFIED: costs[UNLIMITED][0] + 4}
    most = {name: 8 if "purge" in name else 6 for name in LIVES}
    assert {name: costs[name][0] for name in LIVES if costs[name][0] > most[name]} == more


def test_a_mutation_with_a_key_is_two_calls_and_its_replay_one() -> None:
    costs = documented()
    assert sum(costs["Mutations.perform"][::2]) == 2
    assert sum(costs["Mutations.perform, replayed"][::2]) == 1


def test_every_operation_is_documented() -> None:
    public = {
        f"{kind.__name__}.{name}"
        for kind in KINDS
        for name, _ in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    named = {re.match(r"\w+\.\w+", name)[0] for name in documented() if re.match(r"\w+\.\w+", name)}  # type: ignore[index]
    assert named == public - COMPOSED
    assert set(documented()) == {*OPERATIONS, *LIVES}


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "häu"}, 4),
        ({"N": "0"}, 1),
        ({"N": "12"}, 2),
        ({"N": "-123"}, 3),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"L": [{"S": "ab"}]}, 6),
        ({"M": {"k": {"S": "ab"}}}, 7),
    ],
)
def test_sizes_are_those_of_the_developer_guide(value: dict[str, Any], size: int) -> None:
    assert size_of(value) == size
    assert item_size({"name": value}) == size + 4
