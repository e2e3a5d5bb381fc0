"""A catalog with a torn, an encrypted and a foreign table: its purges are held, and run after each was exempted."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from delegation.cli.catalog import references as commands
from delegation.cli.connection import Connection
from delegation.removal.chunks import Phase
from delegation.removal.index import planned_paths, read_index
from delegation.tasks.life.model import Status
from tests.kit.lakes.lake import filled, rows
from tests.kit.worlds.indexed import IndexedWorld
from tests.unit.cli.conftest import OPERATOR

NAMES = ("foreign", "sealed", "torn")
RunCommand = Callable[..., Result]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> IndexedWorld:
    """Three tables that cannot be read beside a table to purge; the command works on the same stores."""
    world = filled(IndexedWorld(), "t")
    for name in NAMES:
        world.other.create(name, location=f"s3://elsewhere/{name}").append(rows(1))
    world.other.create("whole", location="s3://elsewhere/whole").append(rows(1))
    (manifest,) = world.other.table("torn").current_snapshot().manifests(world.other.io)
    world.lake.objects["elsewhere", manifest.manifest_path.removeprefix("s3://elsewhere/")] = b"x" * len(
        world.lake.objects["elsewhere", manifest.manifest_path.removeprefix("s3://elsewhere/")]
    )
    snapshots: dict[str, Any] = {name: world.other.metadata(name)["snapshots"] for name in NAMES}
    encrypted = [{**one, "key-id": "k"} for one in snapshots["sealed"]]
    world.other.rewrite_metadata("sealed", {"snapshots": encrypted, "format-version": 3})
    abroad = [{**one, "manifest-list": "gs://abroad/snap.avro"} for one in snapshots["foreign"]]
    world.other.rewrite_metadata("foreign", {"snapshots": abroad, "location": "gs://abroad"})
    monkeypatch.setattr(Connection, "reference_store", lambda _self, _table: world.index)
    monkeypatch.setattr(Connection, "task_store", lambda _self, _table: world.store)
    monkeypatch.setattr(Connection, "operator", lambda _self, _table: OPERATOR)
    monkeypatch.setattr(commands, "utc_now", world.clock)
    return world


@pytest.mark.parametrize("columns", [80, 160])
def test_held_listed_exempted_done(
    world: IndexedWorld, run: RunCommand, stack: Any, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    kept = {uri for uri in world.lake.uris() if "elsewhere" in uri}
    task = world.purge("t")
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    words = ("references", "blocking", "cat", "--stack", str(stack))
    screen = run(*words).stdout
    found = json.loads(run(*words, "--json").stdout)["blocking"]
    assert {one["what"]: one["error_code"] for one in found} == {
        "cat.other.foreign": "UNSUPPORTED_LOCATION",
        "cat.other.sealed": "UNSUPPORTED",
        "cat.other.torn": "CORRUPT_MANIFEST",
    }
    for name in NAMES:
        assert f"delegation references exempt cat.other.{name} --why …" in " ".join(screen.split())
        done = run(
            "references", "exempt", f"cat.other.{name}", "--why", f"{name}, not ours", "--yes", "--stack", str(stack)
        )
        assert done.exit_code == 0, done.output
    task = _ended(world, task.task_id)
    assert task.status is Status.SUCCESS
    assert {uri for uri in world.lake.uris() if "elsewhere" in uri} == kept
    assert {uri for uri in world.lake.uris() if uri.startswith("s3://lake/wh/t/")} == set()
    (checked,) = world.receipt(task)["references"]
    assert [(one["what"], one["why"], one["by"]) for one in checked["exempted"]] == [
        (f"cat.other.{name}", f"{name}, not ours", OPERATOR) for name in NAMES
    ]
    plan = read_index(world.plans, task.details["plan_segments"][0]["id"])
    assert not any("elsewhere" in path for path in planned_paths(world.plans, [plan], tuple(Phase)))
    assert run(*words).stdout.count("exempt until") == 3


def _ended(world: IndexedWorld, task_id: str) -> Any:
    """Let what is due run until the task has ended; each of three tables is met by one attempt."""
    for _ in range(4):
        world.sweep()
        world.drive()
        task = world.tasks.reads.get(task_id)
        if task.is_terminal:
            return task
    return task
