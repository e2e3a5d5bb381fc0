"""The alarms of the synthesized deployment, and what a process printed."""

from typing import Any

import pytest

from tests.infra.operations.watched import WatchedTemplate


@pytest.fixture
def watched(service: Any, monkeypatch: pytest.MonkeyPatch) -> WatchedTemplate:
    """The alarms of its template; this process prints metrics as its functions do."""
    found = WatchedTemplate(service.document)
    found.environ("sweeper", monkeypatch)
    return found
