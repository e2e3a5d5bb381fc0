"""The stack that all acceptance tests share, as a separate process."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.infra.security import recording
from tests.infra.security.recorder import FOLDER, plugin_environment
from tests.integration.acceptance.kills import KilledJob, kill_a_running_job
from tests.integration.acceptance.world import ATTEMPT_SECONDS, INLINE_MAX_FILES, KEPT, RunningStack
from tests.integration.local.stack_process import StackProcess, all_ended, descendants, watch

FOLDER_OF_TESTS = "tests/integration/acceptance/"
RECORDING = Path(__file__).with_name("recording_stack.py")


_running = contextlib.ExitStack()


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Yield the stack, which ends after the last test of this folder: it would sweep beside all that follow."""
    yield _running.enter_context(_stack(request, tmp_path_factory))
    _running.close()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or not nextitem.nodeid.startswith(FOLDER_OF_TESTS):
        _running.close()


@contextlib.contextmanager
def _stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Start a stack with short intervals, so that retries and repeated dispatches take seconds.

    The AWS calls of its functions and jobs are recorded; one that the committed recording has not fails the last test.
    """
    if sys.platform != "linux":
        pytest.skip("reads processes from /proc")
    folder = tmp_path_factory.mktemp("acceptance")
    recorded = folder / "recorded.jsonl"
    calls = Path(os.environ.get(FOLDER) or folder / "calls")
    calls.mkdir(exist_ok=True)
    process = StackProcess(
        folder / "state",
        *("--inline-max-files", str(INLINE_MAX_FILES), "--sweep-seconds", "2"),
        *("--property", "delegation.retry.TABLE_PURGE.initial-backoff-duration=1s"),
        *("--property", "delegation.dispatch.grace-duration=5s"),
        *("--gateway", "--property", f"delegation.drop.grace.lake.{KEPT}=1h"),
        program=(str(RECORDING), str(recorded)),
        env=plugin_environment(calls),
    )
    try:
        with contextlib.closing(RunningStack(process, recorded)) as running, ThreadPoolExecutor(1) as background:
            if any("killed_job" in getattr(item, "fixturenames", ()) for item in request.session.items):
                # The longest scenario starts at once, in parallel with the tests that do not use it.
                running.killing = background.submit(kill_a_running_job, running)
            yield running
        watched = watch(descendants(process.pid))
    finally:
        status = process.end(signal.SIGTERM)
    assert status == 0
    assert all_ended(watched, within_seconds=30)
    assert not process.path.exists()
    assert recording.in_folder(calls), "the recorder recorded nothing"
    recording.require_known(calls)


@pytest.fixture(scope="session")
def killed_job(world: RunningStack) -> KilledJob:
    """A Spark job that was killed, with the outcome of its task."""
    killed: KilledJob = world.killing.result()
    return killed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a test outlast an attempt that a busy machine lost: the first that needs the shared job waits for it."""
    for item in items:
        if item.nodeid.startswith(FOLDER_OF_TESTS):
            item.add_marker(pytest.mark.timeout(2 * ATTEMPT_SECONDS))
