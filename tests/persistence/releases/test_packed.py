"""Packed snapshots and the last release: what it stored one by one is read, what it did to a packed table too."""

from polaris_persistence.iceberg.packs import PACK_TYPE
from tests.persistence.releases.record import GRACE, recorded
from tests.persistence.releases.record_packed import SNAPSHOTS, PackedSite, document, snapshot


def test_snapshots_that_the_last_release_stored_one_by_one_are_read_and_packed() -> None:
    site = PackedSite(recorded("single_last_release"))
    assert site.table().document() == document(SNAPSHOTS)
    site.add(SNAPSHOTS)
    assert site.table().document()["snapshots"] == [snapshot(number) for number in range(SNAPSHOTS + 1)]
    assert len([key for key in site.backend._objects if key.type == PACK_TYPE.name]) == 1


def test_a_packed_table_that_the_last_release_changed_is_whole() -> None:
    site = PackedSite(recorded("packed_after_downgrade"))
    expected = [snapshot(number) for number in range(SNAPSHOTS + 1)]
    assert site.table().document()["snapshots"] == expected
    for _ in range(3):
        site.clock.advance(GRACE + 10)
        site.maintain()
        assert PackedSite(site.dump()).table().document()["snapshots"] == expected


def test_the_recorded_packed_table_is_what_this_release_writes() -> None:
    site = PackedSite()
    site.create()
    made, kept = ({row[2] for row in store["objects"]} for store in (site.dump(), recorded("packed_this_release")))
    assert made == kept
    assert PackedSite(recorded("packed_this_release")).table().document() == document(SNAPSHOTS)
