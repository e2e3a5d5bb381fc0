"""The calls of handlers are recorded, and one that is not in the committed recording fails its test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.security import recording
from tests.infra.security.recorder import FOLDER, plugin_environment


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this process's recording, or that of `python -m tests.infra.security.record`."""
    given = os.environ.get(FOLDER)
    return tmp_path_factory.mktemp("calls") if given is None else Path(given)


@pytest.fixture(autouse=True)
def _recorded_calls(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in plugin_environment(recorded).items():
        monkeypatch.setenv(name, value)
    yield
    recording.require_known(recorded)
