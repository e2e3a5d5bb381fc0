"""Purges by the inline engine on real S3 servers, one resumed after a kill: nothing is left, nothing else touched."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.hostile.world import STRANGERS
from tests.s3_servers.purges import Planted, Purges, clear, plant, stored
from tests.s3_servers.servers import RealServer

# An object named like a folder of others cannot be on a server that keeps objects as files.
NO_FILES = ("wh/doomed",)
MORE_THAN_A_CALL = 1200
pytestmark = pytest.mark.long
Plant = Callable[..., tuple[Planted, Purges]]


@pytest.fixture
def planted(server: RealServer, tmp_path: Path) -> Iterator[Plant]:
    def planting(**how: int) -> tuple[Planted, Purges]:
        found = plant(server, without=NO_FILES, **how)
        assert stored(server) == found.own | found.others
        return found, Purges(server, found.metadata_location, found.table_uuid, tmp_path)

    yield planting
    clear(server)


def test_a_small_table_is_purged(server: RealServer, planted: Plant) -> None:
    found, purges = planted()
    result = purges.attempt()
    assert (result.status, result.files_deleted) == ("PURGED", len(found.own))
    assert stored(server) == found.others


def test_a_table_of_more_files_than_a_call_takes_is_purged(server: RealServer, planted: Plant) -> None:
    found, purges = planted(more=MORE_THAN_A_CALL)
    assert len(found.own) > MORE_THAN_A_CALL
    assert purges.attempt().files_deleted == len(found.own)
    assert stored(server) == found.others


def test_a_purge_whose_process_was_killed_is_resumed(server: RealServer, planted: Plant) -> None:
    found, purges = planted()
    assert purges.attempt_that_is_killed(deleted=6) == -signal.SIGKILL
    left = stored(server)
    assert found.others < left < found.others | found.own
    purges.attempt(2)
    assert stored(server) == found.others


def test_neighbours_and_strangers_are_there_to_be_harmed(planted: Plant) -> None:
    found, _ = planted()
    assert {key for _, key in found.others} >= set(STRANGERS) - set(NO_FILES)
    assert any(key.startswith("wh/sibling/metadata/") for _, key in found.others)
