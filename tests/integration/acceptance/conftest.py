"""The stack that all acceptance tests share, as a process of its own."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.acceptance.kills import KilledJob, kill_a_running_job
from tests.integration.acceptance.world import INLINE_MAX_FILES, World
from tests.integration.local.stack_process import StackProcess

RECORDING = Path(__file__).with_name("recording_stack.py")


@pytest.fixture(scope="session")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A stack that looks again soon: what a person would wait minutes for takes seconds."""
    if sys.platform != "linux":
        pytest.skip("looks at processes through /proc")
    folder = tmp_path_factory.mktemp("acceptance")
    recorded = folder / "recorded.jsonl"
    process = StackProcess(
        folder / "state",
        *("--inline-max-files", str(INLINE_MAX_FILES), "--sweep-seconds", "2"),
        *("--property", "delegation.retry.TABLE_PURGE.initial-backoff-duration=1s"),
        *("--property", "delegation.dispatch.grace-duration=5s"),
        program=(str(RECORDING), str(recorded)),
    )
    try:
        with contextlib.closing(World(process, recorded)) as made, ThreadPoolExecutor(1) as background:
            if any("killed_job" in getattr(item, "fixturenames", ()) for item in request.session.items):
                # The one long story begins at once, beside the tests that do not look at it.
                made.killing = background.submit(kill_a_running_job, made)
            yield made
    finally:
        process.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def killed_job(world: World) -> KilledJob:
    """A Spark job that was killed, and its task followed to its end."""
    killed: KilledJob = world.killing.result()
    return killed
