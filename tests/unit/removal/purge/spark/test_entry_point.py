"""The entry point of the Spark job, without Spark."""

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from delegation.orchestration.failures import Step
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from tests.kit.lakes.lake import filled
from tests.kit.worlds.service import World
from tests.paths import ROOT


@pytest.fixture
def entry() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_task", ROOT / "spark" / "run_task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("attempt", [1, 2], ids=["no attempt runs", "former attempt"])
def test_a_former_attempt_does_nothing(entry: ModuleType, monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    world = filled(World(), "orders")
    task_id = world.submit(world.body("orders")).task_id
    held = world.steps.acquire(Step(task_id, 1), world.deadline())["attempt"]
    if attempt == held:
        world.tasks.leases.end_attempt(task_id, held, AttemptError("JOB_FAILED", "killed", ErrorClass.TRANSIENT))
    before, objects = world.tasks.reads.get(task_id), set(world.lake.uris())
    monkeypatch.setattr(entry, "job_tasks", lambda: world.tasks)
    monkeypatch.setattr("delegation.wiring.operations.shared_access", lambda _tasks: (world.behavior, None))
    assert entry.main(["--task-id", task_id, "--attempt", str(attempt)]) == 0
    assert world.tasks.reads.get(task_id) == before
    assert set(world.lake.uris()) == objects


@pytest.mark.parametrize("arguments", [[], ["--task-id", "t"], ["--task-id", "t", "--attempt", "first"]])
def test_both_arguments_are_required(entry: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        entry.main(arguments)


def test_the_inline_engine_does_not_import_pyspark() -> None:
    """The Lambda package does not have pyspark."""
    code = (
        "import sys, delegation.handlers.attempts, delegation.removal.spark_executors; print('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "functions")},
    )
    assert done.stdout.strip() == "False"
