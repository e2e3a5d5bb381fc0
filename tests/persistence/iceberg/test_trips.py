"""How many batches, rows and read units it takes to load a table."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polaris_persistence.errors import CorruptObject
from polaris_persistence.iceberg.packs import MOST_PACKED, PACK_AFTER, PACK_TYPE, IcebergPack, to_pack
from polaris_persistence.objects.objects import ObjectRef
from tests.persistence.iceberg.iceberg_fixtures import (
    Held,
    adding,
    apply,
    as_json,
    document_of,
    pointing,
    pyiceberg_table,
    snapshot_json_of,
    snapshot_of,
)
from tests.persistence.iceberg.metered import MeteredTable


def test_a_table_of_a_thousand_snapshots_is_loaded_in_three_batches_and_eighty_units() -> None:
    document = document_of(pyiceberg_table(2, 1_000))
    table = MeteredTable(document)
    assert as_json(table.load(table.process()).document()) == as_json(document)
    assert table.backend.batches <= 3
    assert table.backend.units <= 80
    warm = table.process()
    table.load(warm).document()
    table.backend.reset()
    table.load(warm).document()
    assert table.backend.batches == 0


def snapshots_in(held: Held, first: int, count: int) -> None:
    """Add snapshots, each in its own state."""
    for number in range(first, first + count):
        table = held.load()
        apply(table, adding(snapshot_json_of(number)))
        held.save(table)


def kinds(held: Held) -> list[str]:
    held.objects.read.clear()
    held.document()
    return [ref.type for ref in dict.fromkeys(held.objects.read)]


def test_snapshots_that_were_added_one_by_one_are_packed() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 0)))
    for first in range(0, 3 * PACK_AFTER, PACK_AFTER):
        snapshots_in(held, first, PACK_AFTER)
        assert kinds(held).count("iceberg-snapshot") <= PACK_AFTER
    assert kinds(held).count(PACK_TYPE.name) <= 2
    assert [one["snapshot-id"] for one in held.document()["snapshots"]] == [
        snapshot_of(number).snapshot_id for number in range(3 * PACK_AFTER)
    ]
    # About log2(n) times each.
    packs = [size for kind, size in held.objects.written if kind == PACK_TYPE.name]
    assert len(packs) <= 4


def test_a_pack_that_lost_most_of_its_snapshots_is_written_again() -> None:
    held = Held().imported(document_of(pyiceberg_table(2, 300)))
    table = held.load()
    removed = [snapshot_of(number).snapshot_id for number in range(1, 290)]
    apply(table, {"action": "remove-snapshots", "snapshot-ids": removed})
    held.save(table)
    packs = [ref for ref in held.objects.read if ref.type == PACK_TYPE.name]
    held.objects.read.clear()
    assert [one["snapshot-id"] for one in held.document()["snapshots"]] == [
        snapshot_of(number).snapshot_id for number in (0, *range(290, 300))
    ]
    assert not set(packs) & set(held.objects.read)


def test_a_document_that_repeats_an_id_keeps_both_parts() -> None:
    document = document_of(pyiceberg_table(2, 100))
    document["snapshots"][50] = document["snapshots"][3] | {"summary": {"operation": "replace"}}
    assert as_json(Held().imported(document).document()) == as_json(document)


def test_a_pack_that_does_not_decode_is_corrupt() -> None:
    pack = IcebergPack(data=b"no pack")
    assert pack.held_bytes() == len(b"no pack")
    with pytest.raises(CorruptObject, match="pack"):
        pack.parts()


PARTS = st.lists(st.none() | st.integers(0, 4), max_size=3 * PACK_AFTER)


@settings(max_examples=50)
@given(PARTS, st.sets(st.integers(0, 4)))
def test_what_is_packed_leaves_few_objects(held: list[int | None], thin: set[int]) -> None:
    refs = {number: ObjectRef(PACK_TYPE.name, number) for number in range(5)}
    entries = [(b"%06d" % at, None if one is None else refs[one]) for at, one in enumerate(held)]
    thinned = {refs[number]: 2 * held.count(number) + 1 for number in thin}
    keys = to_pack(entries, thinned)
    assert keys == sorted(keys)
    chosen = set(keys)
    left = [(key, ref) for key, ref in entries if key not in chosen]
    assert sum(ref is None for _, ref in left) <= PACK_AFTER
    assert not {ref for _, ref in left} & set(thinned)
    # A pack is written as a whole or not at all.
    assert not {ref for key, ref in entries if key in chosen and ref} & {ref for _, ref in left}
    assert len(keys) <= max(MOST_PACKED, len(entries))


def test_a_commit_to_many_snapshots_writes_only_what_changed_and_reads_refs_in_four_batches() -> None:
    """Issue 32, line 12: a commit to a table of 10,000 snapshots once wrote 6.86 MB."""
    document = document_of(pyiceberg_table(2, 1))
    # By hand, because pyiceberg takes long.
    document["snapshots"] = [snapshot_json_of(number) for number in range(2_000)]
    ids = [one["snapshot-id"] for one in document["snapshots"]]
    document["snapshot-log"] = [
        {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in document["snapshots"]
    ]
    document |= {"current-snapshot-id": ids[-1], "last-sequence-number": 2_000}
    document["refs"] = {"main": {"snapshot-id": ids[-1], "type": "branch"}}
    document["refs"] |= {f"tag {number}": {"snapshot-id": ids[0], "type": "tag"} for number in range(1_000)}
    held = Held().imported(document)
    new = snapshot_json_of(2_000)
    commits: list[list[Any]] = [
        [adding(new), pointing("main", new["snapshot-id"])],
        [pointing("main", ids[-1])],
        [{"action": "set-snapshot-ref", "ref-name": "new", "type": "tag", "snapshot-id": ids[7]}],
        [{"action": "remove-snapshot-ref", "ref-name": "tag 3"}],
        [{"action": "remove-snapshots", "snapshot-ids": [ids[1_000]]}],
        [{"action": "set-properties", "updates": {"a": "b"}}],
        [{"action": "upgrade-format-version", "format-version": 3}],
    ]
    for updates in commits:
        before = len(held.objects.written)
        table = held.load()
        apply(table, *updates)
        held.save(table)
        assert sum(size for _, size in held.objects.written[before:]) <= 4_096, updates
    stored = MeteredTable(document)
    assert len(stored.load(stored.process()).parts("refs")) == 1_001
    assert stored.backend.batches <= 4
