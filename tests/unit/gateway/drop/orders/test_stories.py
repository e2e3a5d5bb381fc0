"""Drops, duplicates, restores, clones and kills in any order: no live file is deleted, and no key drops two tables.

`make gateway-stories` plays more of them.
"""

from collections.abc import Callable

import pytest

from delegation.gateway.drop import behavior, sequence
from delegation.gateway.drop.tombstones import Tombstone
from tests.effort import THOROUGH
from tests.kit.explorer import WrongOutcome
from tests.unit.gateway.drop.orders.stories import EXPLORER


@pytest.mark.usefixtures("quiet")
def test_no_order_of_events_deletes_a_live_file_or_drops_two_tables_for_one_key() -> None:
    heard = EXPLORER.total(range(100 if THOROUGH else 12))
    assert {line for line in heard if line.startswith("drop")} >= {"drop 204", "drop 404", "drop 503"}
    assert {line for line in heard if line.startswith("restore")} >= {"restore 200", "restore 409"}


def forgets_the_heir(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(behavior.DropBehavior, "_neighbours", lambda _self, _ctx, _record: lambda _roots: iter(()))


def purges_whatever_it_moved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tombstone, "is_of_another_table", property(lambda _record: False))
    patch.setattr(behavior, "_TO_PURGE", frozenset(behavior.TombstoneState))
    begun = behavior.DropBehavior._begun

    def without_comparison(self: behavior.DropBehavior, task: object) -> Tombstone:
        find = self.tombstones.store.get
        record = find(behavior.TablePurge.of(task).properties[behavior.TOMBSTONE])  # type: ignore[arg-type]
        return record if record.table_uuid != record.expected_uuid else begun(self, task)  # type: ignore[union-attr,return-value,arg-type]

    patch.setattr(behavior.DropBehavior, "_begun", without_comparison)


def forgets_whom_a_key_chose(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequence._Drop, "_chosen_before", lambda _self, _key: None)
    patch.setattr(sequence._Drop, "earlier_of_key", lambda _self, _key: None)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("break_", "first"), [(forgets_the_heir, 9), (purges_whatever_it_moved, 123), (forgets_whom_a_key_chose, 531)]
)
def test_the_stories_notice_a_service_that_guesses(
    break_: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the seed `first` on, so that the test is short."""
    break_(monkeypatch)
    with pytest.raises(WrongOutcome):
        EXPLORER.total(range(first, first + 100))
