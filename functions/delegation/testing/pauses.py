from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest

from delegation.tasks.life.model import Caller
from delegation.tasks.pauses import EVERYTHING, PauseMode, PauseRecord, PauseScope, PauseStore, WorkPause

NOW: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
ALL: Final = WorkPause(EVERYTHING, NOW, Caller(client_id="ops", subject="CN=ops"), "Polaris is being upgraded – äöü")
ORDERS: Final = WorkPause(PauseScope(table="lake.sales.orders"), NOW, Caller(client_id="ops"), mode=PauseMode.DRAIN)
REALM: Final = WorkPause(PauseScope(realm="POLARIS"), NOW, Caller(client_id="aws", subject="arn:aws:iam::1:user/a"))


class PauseStorePromises:
    """The promises to sequential callers. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> PauseStore:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`")

    def test_the_record_moves_from_its_revision_only(self, store: PauseStore) -> None:
        assert store.read() == PauseRecord()
        first = PauseRecord(1, (ALL, ORDERS, REALM))
        assert store.write(first) is True
        assert store.read() == first
        assert store.write(replace(first, pauses=())) is False
        assert store.write(PauseRecord(3)) is False
        assert store.read() == first
        assert store.write(PauseRecord(2)) is True
        assert store.read() == PauseRecord(2)


class PauseStoreContract(PauseStorePromises):
    """The whole contract, with the promises to concurrent threads."""

    def test_one_of_many_writers_moves_the_record(self, store: PauseStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            for revision in (1, 2):
                record = PauseRecord(revision, (ALL,))
                assert sum(pool.map(store.write, [record] * 4)) == 1
