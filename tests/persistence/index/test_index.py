"""What an index does from commit to commit: embedded over stripes, removal, spilling out, reading no more than needed.

The cases of spilling bear the names they have upstream (Apache Polaris, TestUpdatableIndexImpl).
"""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from polaris_persistence.errors import CorruptIndexError
from polaris_persistence.index.format import decode_head
from polaris_persistence.index.index import MOST_AHEAD, Index
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.index.spill import IndexPolicy
from polaris_persistence.index.stripes import STRIPES, IndexStripe, head_links
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from tests.persistence.index.index_fixtures import Catalog, Stripes, name, table

SMALL = IndexPolicy(min_embedded=100, max_embedded=4_096, stripe=1_024)
AT_ONCE = IndexPolicy(min_embedded=0, max_embedded=0, stripe=1_024)
"""Nothing stays embedded: every commit spills all its changes."""


def spilled(count: int, policy: IndexPolicy = SMALL) -> Catalog:
    """Return a catalog whose names 0..count-1 are all in stripes."""
    catalog = Catalog(AT_ONCE)
    catalog.put((name(number), table(number)) for number in range(count))
    catalog.policy = policy
    catalog.stripes.batches.clear()
    catalog.stripes.written.clear()
    return catalog


def embedded(catalog: Catalog) -> dict[bytes, ObjectRef | None]:
    entries = decode_head(catalog.embedded)[1]
    return {key: entries.ref(number) for number, key in enumerate(entries.keys)}


def test_an_empty_index_has_nothing() -> None:
    index = Index.empty()
    assert index.get(name(1)) is None
    assert list(index.items()) == []
    assert not index.remove(name(1))
    assert not index.changed
    assert index.finish(SMALL, Stripes().write) == (b"", ())


def test_an_unchanged_index_is_finished_as_the_bytes_it_was_loaded_from() -> None:
    catalog = spilled(200)
    index = catalog.load()
    index.put(name(500), table(1))
    assert index.changed
    index.remove(name(500))
    index.remove(name(3))
    index.put(name(3), table(3))
    assert not index.changed
    assert index.finish(SMALL, catalog.stripes.write) == (catalog.embedded, ())


def test_remove_exists_in_reference_and_updates() -> None:
    catalog = spilled(200)
    catalog.put([(name(7), table(99))])
    catalog.commit(lambda index: index.remove(name(7)) or None)
    assert embedded(catalog) == {name(7): None}
    assert name(7) not in dict(catalog.load().items())


def test_spill_out_initial() -> None:
    catalog = Catalog(SMALL)
    catalog.put((name(number), table(number)) for number in range(300))
    assert embedded(catalog) == {}
    stripes = decode_head(catalog.embedded)[0]
    assert len(stripes) > 1
    assert [stripe.id for stripe in stripes] == catalog.stripes.written
    assert sum(stripe.entries for stripe in stripes) == 300
    assert all(stripe.size <= SMALL.stripe for stripe in stripes)
    assert [(key, ref.id) for key, ref in catalog.load().items()] == sorted((name(n), n) for n in range(300))


def test_spill_out() -> None:
    """Only stripes with new entries are written, the others keep their objects."""
    catalog = spilled(2_000, IndexPolicy(min_embedded=90, max_embedded=400, stripe=1_024))
    before = decode_head(catalog.embedded)[0]
    catalog.put((IndexKey.of("ns042", f"new{number}"), table(number)) for number in range(60))
    after = decode_head(catalog.embedded)[0]
    assert embedded(catalog) == {}
    assert 1 <= len(catalog.stripes.written) <= 3
    assert {stripe.id for stripe in after} - {stripe.id for stripe in before} == set(catalog.stripes.written)
    assert len(catalog.stripes.batches) == 1


def test_the_fullest_stripe_is_spilled_first_and_the_rest_stays_embedded() -> None:
    catalog = spilled(2_000, IndexPolicy(min_embedded=90, max_embedded=400, stripe=1_024))
    few = [(IndexKey.of("ns099", f"late{number}"), table(number)) for number in range(4)]
    catalog.put([*few, *((IndexKey.of("ns001", f"early{number:02}"), table(number)) for number in range(60))])
    assert embedded(catalog) == dict(few)


@pytest.mark.parametrize(("length", "stripes"), [(900, 0), (1_000, 1)])
def test_force_spill_large_entry_before_embedded_index_limit(length: int, stripes: int) -> None:
    catalog = Catalog(IndexPolicy(min_embedded=2_000, max_embedded=4_000))
    catalog.put([(IndexKey.of("x" * length), table(1))])
    assert (len(catalog.stripes.written), len(embedded(catalog))) == (stripes, 1 - stripes)


def test_force_spill_mixed_entries_round_trip() -> None:
    catalog = spilled(2_000, IndexPolicy(min_embedded=2_000, max_embedded=4_000, stripe=1_024))
    large = IndexKey.of("ns050", "x" * 1_100)
    catalog.put([(large, table(1)), (IndexKey.of("ns001", "small"), table(2))])
    assert embedded(catalog) == {IndexKey.of("ns001", "small"): table(2)}
    index = catalog.load()
    assert (index.get(large), index.get(IndexKey.of("ns001", "small"))) == (table(1), table(2))
    assert len(list(index.items())) == 2_002


def test_allow_entry_that_exceeds_stripe_size() -> None:
    catalog = Catalog(IndexPolicy(min_embedded=0, max_embedded=10, stripe=64))
    keys = [IndexKey.of(letter * 500) for letter in "abc"]
    index = catalog.put((key, table(number)) for number, key in enumerate(keys))
    assert len(catalog.stripes.written) == 3
    assert [key for key, _ in index.items()] == keys


def test_separators_are_the_shortest_that_distinguish_stripes() -> None:
    catalog = Catalog(AT_ONCE)
    keys = [IndexKey.of(f"{number:03}" + "x" * 200) for number in range(200)]
    index = catalog.put((key, table(number)) for number, key in enumerate(keys))
    assert len(index.stripes) > 1
    assert max(len(stripe.separator) for stripe in index.stripes) <= 3
    assert [index.get(key) for key in keys] == [table(number) for number in range(200)]


def test_legacy_oversized_reference_stripe_can_be_repartitioned_during_later_spill_out() -> None:
    """A policy with smaller stripes splits the rewritten stripes and keeps the others."""
    catalog = spilled(2_000, IndexPolicy(min_embedded=0, max_embedded=0, stripe=8_192))
    before = {stripe.id for stripe in catalog.load().stripes}
    catalog.policy = IndexPolicy(min_embedded=0, max_embedded=0, stripe=300)
    index = catalog.put([(name(1_050), table(5))])
    kept = [stripe for stripe in index.stripes if stripe.id in before]
    new = [stripe for stripe in index.stripes if stripe.id not in before]
    assert len(kept) == len(before) - 1
    assert len(new) > 1
    assert max(stripe.size for stripe in new) <= 300
    assert len(list(index.items())) == 2_000
    assert index.get(name(1_050)) == table(5)


def test_threads_share_stripes_that_are_not_decoded_yet() -> None:
    catalog = spilled(5_000)
    refs = [stripe.ref for stripe in catalog.load().stripes]
    for _ in range(5):
        shared = dict(zip(refs, catalog.stripes.fetch(refs), strict=True))
        start = threading.Barrier(8)

        def read(number: int, shared: Any = shared, start: threading.Barrier = start) -> list[int]:
            index = Index.load(catalog.embedded, lambda wanted: [shared[ref] for ref in wanted])
            start.wait()
            found = [index.get(name(at)) for at in range(number, 5_000, 8)]
            return [ref.id for ref in found if ref is not None]

        with ThreadPoolExecutor(8) as pool:
            assert sorted(itertools.chain.from_iterable(pool.map(read, range(8)))) == list(range(5_000))


def test_empty_stripes_are_dropped_and_small_ones_joined() -> None:
    catalog = spilled(2_000, AT_ONCE)
    count = len(decode_head(catalog.embedded)[0])

    def remove(index: Index) -> None:
        for key in [key for key, _ in index.items()]:
            if key.elements()[0] not in ("ns000", "ns050", "ns099"):
                assert index.remove(key)

    index = catalog.commit(remove)
    assert len(list(index.items())) == 60
    assert len(decode_head(catalog.embedded)[0]) <= count / 5
    index = catalog.commit(lambda index: [index.remove(key) for key, _ in index.items()] and None)
    assert list(index.items()) == []
    assert decode_head(catalog.embedded)[0] == ()


def test_a_put_reads_nothing_and_a_lookup_one_stripe_or_none_if_the_key_is_embedded() -> None:
    catalog = spilled(2_000)
    catalog.put([(name(5), table(5_000)), (name(9_999), table(1))])
    assert catalog.stripes.batches == []
    index = catalog.load()
    assert index.get(name(5)) == table(5_000)
    assert catalog.stripes.batches == []
    assert [index.get(name(6)), index.get(name(106)), index.get(name(6))] == [table(6), table(106), table(6)]
    assert [len(batch) for batch in catalog.stripes.batches] == [1]


def test_several_keys_are_read_with_one_batch() -> None:
    catalog = spilled(2_000)
    wanted = [name(number) for number in (1, 20, 21, 50, 99, 7_000)]
    assert [ref and ref.id for ref in catalog.load().get_many(wanted).values()] == [1, 20, 21, 50, 99, None]
    assert len(catalog.stripes.batches) == 1
    assert len(set(catalog.stripes.batches[0])) == len(catalog.stripes.batches[0])


def test_a_long_listing_reads_ahead_in_growing_batches_and_a_short_one_does_not() -> None:
    catalog = spilled(20_000)
    index = catalog.load()
    next(index.items())
    assert [len(batch) for batch in catalog.stripes.batches] == [1]
    assert len(list(index.items())) == 20_000
    sizes = [len(batch) for batch in catalog.stripes.batches]
    assert sizes[1:6] == [1, 2, 4, 8, 16]
    assert max(sizes) == MOST_AHEAD
    assert sum(sizes) == len(index.stripes)


def test_a_range_reads_only_the_stripes_it_touches() -> None:
    catalog = spilled(20_000)
    index = catalog.load()
    assert len(list(index.items(prefix=IndexKey.of("ns042")))) == 200
    assert sum(map(len, catalog.stripes.batches)) < len(index.stripes) / 20


def test_a_running_listing_does_not_see_later_changes() -> None:
    index = spilled(500).load()
    listing = index.items(prefix=IndexKey.of("ns042"))
    assert next(listing)[1].id == 42
    index.put(name(142), table(1))
    index.remove(name(242))
    assert [ref.id for _, ref in listing] == [142, 242, 342, 442]
    assert [ref.id for _, ref in index.items(prefix=IndexKey.of("ns042"))] == [42, 1, 342, 442]


@pytest.mark.parametrize("ref", [ObjectRef("t", -1), ObjectRef("t", 2**63), ObjectRef("t", 1, 0), ObjectRef("", 1)])
def test_a_ref_that_no_object_can_have_is_refused(ref: ObjectRef) -> None:
    with pytest.raises(ValueError):
        Index.empty().put(name(1), ref)


def test_a_stripe_that_is_missing_or_another_object_raises_corrupt_index_error() -> None:
    catalog = spilled(200)

    def others(refs: object) -> list[Loaded[PersistedModel] | None]:
        return [Loaded(loaded.key, PersistedModel(), 0, 1) for loaded in catalog.stripes.fetch(refs) if loaded]  # type: ignore[arg-type]

    with pytest.raises(CorruptIndexError, match="is missing"):
        Index.load(catalog.embedded, others).get(name(1))
    catalog.stripes.stored.clear()
    with pytest.raises(CorruptIndexError, match="is missing"):
        catalog.load().get(name(1))
    with pytest.raises(CorruptIndexError):
        Index.load(b"\x02garbage", Stripes().fetch)


def test_links_are_the_stripes_and_all_values() -> None:
    catalog = spilled(200)
    catalog.put([(name(1_000), ObjectRef("view", 5, 2))])
    catalog.commit(lambda index: index.remove(name(3)) or None)
    links = list(head_links(catalog.embedded))
    stripes = [ref for ref in links if ref.type == STRIPES.name]
    assert [ref.id for ref in stripes] == [stripe.id for stripe in catalog.load().stripes]
    assert [ref for ref in links if ref.type != STRIPES.name] == [ObjectRef("view", 5, 2)]
    values = [
        ref
        for loaded in catalog.stripes.fetch(stripes)
        if loaded and isinstance(loaded.value, IndexStripe)
        for ref in STRIPES.links(loaded.value, catalog.stripes.fetch)
    ]
    assert sorted(ref.id for ref in values) == list(range(200))
    assert list(head_links(b"")) == []


def test_the_threshold_grows_with_the_square_root_of_the_total() -> None:
    policy = IndexPolicy(min_embedded=10, max_embedded=10**9, copied=0)
    assert policy.threshold(20, 1_000_000, 1) == 6_324  # √(2·20·10⁶)
    assert policy.threshold(20, 4_000_000, 1) == 12_649
    assert policy.threshold(20, 1_000_000, 1_000) == 3_165  # half of it, as stripes are written one by one
    assert policy.threshold(20, 0, 0) == 10
    assert IndexPolicy(max_embedded=5_000).threshold(20, 10**9, 100) == 5_000


def test_the_threshold_of_a_head_that_is_written_twice_is_smaller() -> None:
    policy = IndexPolicy(min_embedded=10, max_embedded=10**9, copied=4_096)
    assert policy.threshold(20, 100_000, 1) == 1_414  # √(20·10⁵)
    assert policy.threshold(20, 800_000, 1) == 4_000
    assert policy.threshold(20, 1_000_000, 1) == 6_324  # too large for the copy


def test_the_embedded_part_stays_about_the_threshold_while_tables_change() -> None:
    catalog = spilled(5_000, IndexPolicy(min_embedded=200, max_embedded=10_000, stripe=4_096))
    sizes = []
    for number in range(400):
        catalog.put([(name(number * 37 % 5_000), table(10_000 + number))])
        sizes.append(len(catalog.embedded))
    index = catalog.load()
    threshold = catalog.policy.threshold(18, sum(stripe.size for stripe in index.stripes), len(index.stripes))
    assert max(sizes) < 2 * threshold
    assert len(catalog.stripes.written) < 200
    assert {ref.id for _, ref in index.items()} == {*range(10_000, 10_400)} | {
        number for number in range(5_000) if number not in {n * 37 % 5_000 for n in range(400)}
    }


@pytest.mark.parametrize("wrong", [{"min_embedded": -1}, {"max_embedded": 5}, {"stripe": 0}])
def test_an_invalid_policy_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        IndexPolicy(**wrong)
