"""The engines with which orders of events are played."""

import pytest

from delegation.removal.orphans.run import OrphanRun
from delegation.storage import memory


@pytest.fixture(params=["inline", "executors"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each order of events be one of an engine that lists and compares in one process, and with executors."""
    if request.param == "executors":
        pytest.importorskip("pyspark")
        from tests.unit.removal.orphans.engines.sparkless import SparklessOrphans

        monkeypatch.setattr(OrphanRun.__init__, "__defaults__", (SparklessOrphans(),))
        monkeypatch.setattr(memory, "PAGE", 2)
