"""What another table references when a purge is asked for is never deleted, in whatever order that came about."""

from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from infra.local.aws.server import REGION
from infra.local.demo.tables import NAMESPACE
from tests.integration.acceptance.world import SUBMIT, RunningStack

pytestmark = pytest.mark.stack

ROWS = 40


def created(world: RunningStack, name: str, namespace: str = NAMESPACE):
    """Create a table with a file of its own; its name is made unique."""
    world.catalog.create_namespace_if_not_exists(namespace)
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = world.catalog.create_table((namespace, f"{name}_{uuid4().hex[:8]}"), schema)
    table.append(pa.table({"id": list(range(ROWS))}))
    return table


def files_of(table) -> list[str]:
    return [task.file.file_path for task in table.scan().plan_files()]


def with_every_file(world: RunningStack, name: tuple[str, ...]):
    """Load a table with credentials of an administrator: those that are vended for it cover no other table's files."""
    table = world.catalog.load_table(name)
    table.io = load_file_io(
        {
            "s3.endpoint": world.stack.s3_endpoint,
            "s3.region": REGION,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
        }
    )
    return table


def lend(world: RunningStack, lender, borrower) -> None:
    """Have a table take the files of another one."""
    with_every_file(world, borrower.name()).add_files(files_of(lender), check_duplicate_files=False)


def purge(world: RunningStack, name: str, *, waits: bool = True) -> None:
    """Purge a table through the HTTPS endpoint, and wait for its success."""
    request = world.request(world.current_table(name))
    if waits:
        answer = world.settled(request)[-1]
        assert (answer.status_code, answer.json().get("status")) == (200, "COMPLETED_SUCCESS"), answer.text
        return
    identity = {"table_identity": world.identity(name)}
    answer = world.post(SUBMIT, {**request, "operation_parameters": identity})
    assert answer.status_code == 202, answer.text
    assert world.outcome(answer.json()["delegation_task_id"])["status"] == "SUCCESS"


def count(world: RunningStack, name: tuple[str, ...]) -> int:
    """Read a table to its end."""
    return with_every_file(world, name).scan().to_arrow().num_rows


@pytest.mark.parametrize(
    ("namespace", "waits"),
    [
        (NAMESPACE, True),
        ("elsewhere", False),
        pytest.param(NAMESPACE, False, marks=pytest.mark.long),
        pytest.param("elsewhere", True, marks=pytest.mark.long),
    ],
)
def test_files_that_were_taken_just_before_the_purge_are_kept(world: RunningStack, namespace: str, waits: bool) -> None:
    lender, borrower = created(world, "lender"), created(world, "borrower", namespace)
    purge(world, created(world, "before").name()[-1])
    lend(world, lender, borrower)
    purge(world, lender.name()[-1], waits=waits)
    assert count(world, borrower.name()) == 2 * ROWS


@pytest.mark.parametrize("waits", [True, pytest.param(False, marks=pytest.mark.long)])
def test_files_of_a_table_that_replaced_another_just_before_the_purge_are_kept(
    world: RunningStack, waits: bool
) -> None:
    lender, staging, prod = (created(world, name) for name in ("lender", "staging", "prod"))
    lend(world, lender, staging)
    purge(world, created(world, "before").name()[-1])
    world.catalog.drop_table(prod.name())
    world.catalog.rename_table(staging.name(), prod.name())
    purge(world, lender.name()[-1], waits=waits)
    assert count(world, prod.name()) == 2 * ROWS


@pytest.mark.long
def test_files_of_two_tables_that_changed_names_just_before_the_purge_are_kept(world: RunningStack) -> None:
    lender, one, other = (created(world, name) for name in ("lender", "one", "other"))
    lend(world, lender, one)
    purge(world, created(world, "before").name()[-1])
    aside = (NAMESPACE, f"aside_{uuid4().hex[:8]}")
    world.catalog.rename_table(one.name(), aside)
    world.catalog.rename_table(other.name(), one.name())
    world.catalog.rename_table(aside, other.name())
    purge(world, lender.name()[-1])
    assert (count(world, other.name()), count(world, one.name())) == (2 * ROWS, ROWS)
