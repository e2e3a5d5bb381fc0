import contextlib
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.store import TombstoneConflict, TombstoneStore
from delegation.gateway.drop.tombstones import MovedTable, Tombstone, TombstoneState
from delegation.identifiers import TableIdentifier

NOW: Final = datetime(2026, 11, 22, 12, 0, 0, 123456, tzinfo=UTC)
TABLE: Final = TableIdentifier("lake", ("sales", "é.u"), "orders")
HIDDEN: Final = ("delegation_tombstones",)
_MOVED: Final = MovedTable(table_uuid="u-2", metadata_location="s3://b/m.json", location="s3://b", format_version=2)


def pending(table: TableIdentifier = TABLE, now: datetime = NOW, **fields: Any) -> Tombstone:
    given = {"expected_uuid": "U-1", "caller": "principal:ann", "waits": False, **fields}
    return records.pending("POLARIS", table, HIDDEN, now, **given)


def renamed(record: Tombstone, now: datetime = NOW) -> Tombstone:
    return records.renamed(record, _MOVED, now, task_id="task", grace=timedelta(days=7))


class TombstoneStorePromises:
    """The promises to sequential callers. A subclass overrides the fixture `store`."""

    @pytest.fixture
    def store(self) -> TombstoneStore:
        """Return a new, empty store that shares nothing with another test's."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store`")

    def test_a_record_comes_back_whole_in_every_state(self, store: TombstoneStore) -> None:
        record = pending(waits=True)
        store.put(record)
        assert store.get(record.tombstone_id) == record
        target = TableIdentifier("lake", ("sales",), "again")
        for change in (
            renamed,
            lambda record: records.failed(record, NOW, "GC_DISABLED: no"),
            lambda record: records.restoring(record, target, NOW),
            lambda record: records.restored(record, NOW),
        ):
            after = change(record)
            store.replace(after, record)
            assert store.get(record.tombstone_id) == after
            record = after
        assert (record.version, record.restore_identifier) == (5, target)
        assert store.get(pending().tombstone_id) is None

    def test_an_id_that_is_taken_is_refused_with_its_record(self, store: TombstoneStore) -> None:
        record = pending()
        store.put(record)
        with pytest.raises(TombstoneConflict) as refused:
            store.put(record.model_copy(update={"nonce": "another"}))
        assert refused.value.stored == record

    def test_replacing_is_conditional_on_what_was_read(self, store: TombstoneStore) -> None:
        record = pending()
        with pytest.raises(TombstoneConflict) as absent:
            store.replace(renamed(record), record)
        store.put(record)
        mine = renamed(record)
        store.replace(mine, record)
        with pytest.raises(TombstoneConflict) as refused:
            store.replace(records.cleared(record, NOW, "404"), record)
        assert (absent.value.stored, refused.value.stored) == (None, mine)
        assert store.get(record.tombstone_id) == mine

    def test_the_same_write_again_is_no_conflict(self, store: TombstoneStore) -> None:
        record = pending()
        store.put(record)
        store.put(record)
        mine = renamed(record)
        store.replace(mine, record)
        store.replace(mine, record)
        assert store.get(record.tombstone_id) == mine

    def test_a_table_s_records_come_newest_first(self, store: TombstoneStore) -> None:
        first, second, third = (pending(now=NOW + timedelta(seconds=each)) for each in range(3))
        other = pending(TableIdentifier("lake", ("sales", "é.u"), "order"))
        for record in (second, third, first, other):
            store.put(record)
        assert list(store.of_table("POLARIS", TABLE, 2)) == [third, second]
        assert list(store.of_table("OTHER", TABLE, 2)) == []

    def test_all_records_are_listed_newest_first_in_pages(self, store: TombstoneStore) -> None:
        made = [
            pending(TABLE if n % 2 else TableIdentifier("b", ("n",), str(n)), NOW + timedelta(hours=n))
            for n in range(5)
        ]
        for record in made:
            store.put(record)
        listed: list[Tombstone] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = store.newest(2, cursor)
            listed, cursor, pages = [*listed, *page.tombstones], page.cursor, pages + 1
        assert listed == made[::-1]
        assert pages == 3

    def test_those_of_one_caller_are_listed_newest_first_in_pages(self, store: TombstoneStore) -> None:
        mine = [pending(now=NOW + timedelta(hours=each)) for each in range(3)]
        theirs = [pending(now=NOW + timedelta(hours=each), caller="principal:bob") for each in range(2)]
        for record in (*mine, *theirs):
            store.put(record)
        first = store.newest(2, caller="principal:ann")
        rest = store.newest(2, first.cursor, caller="principal:ann")
        assert [*first.tombstones, *rest.tombstones] == mine[::-1]
        assert store.newest(9, caller="principal:a").tombstones == ()

    def test_what_is_to_be_checked_is_found_the_earliest_first_until_it_ends(self, store: TombstoneStore) -> None:
        late, early = pending(now=NOW), pending(now=NOW - timedelta(minutes=1))
        for record in (late, early):
            store.put(record)
        assert list(store.due(NOW, 10).tombstones) == []
        at = NOW + records.CHECK_AFTER
        assert list(store.due(at, 10).tombstones) == [early, late]
        assert list(store.due(at, 1).tombstones) == [early]
        store.replace(records.cleared(early, NOW, "404"), early)
        moved = records.checked(late, NOW, at + timedelta(minutes=1))
        store.replace(moved, late)
        assert (list(store.due(at, 10).tombstones), moved.state) == ([], TombstoneState.PENDING)
        assert list(store.due(at + timedelta(minutes=1), 10).tombstones) == [moved]

    def test_a_troubled_and_a_dismissed_record_come_back_whole(self, store: TombstoneStore) -> None:
        record = pending()
        store.put(record)
        late = records.troubled(records.troubled(record, NOW, "403"), NOW, "403 again")
        store.replace(late, record)
        assert (store.get(record.tombstone_id), late.attempts) == (late, 2)
        assert list(store.due(NOW + records.backoff(2), 9).tombstones) == [late]
        assert list(store.due(NOW + records.backoff(1), 9).tombstones) == []
        ended = records.dismissed(late, NOW, "its files stay", drops_entry=False)
        store.replace(ended, late)
        assert store.get(record.tombstone_id) == ended
        assert list(store.due(NOW + timedelta(days=9), 9).tombstones) == []


class TombstoneStoreContract(TombstoneStorePromises):
    """The whole contract, with the promises to concurrent threads."""

    def test_one_of_many_threads_writes_the_next_version(self, store: TombstoneStore) -> None:
        record = pending()
        store.put(record)
        won: list[Tombstone] = []

        def write() -> None:
            mine = renamed(record)
            with contextlib.suppress(TombstoneConflict):
                store.replace(mine, record)
                won.append(mine)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert won == [store.get(record.tombstone_id)]
